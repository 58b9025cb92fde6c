"""Test the comparison of variants of an app: numbers computed by hand, and missing ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import variantapp
from comparable import publish
from refusals import refused
from trimaran.compare import comparison, variant_tables
from trimaran.compare.result import Comparison, Epoch, Variant, Variants
from trimaran.errors import UsageError
from trimaran.run import run_directory


@pytest.fixture
def app(checkout: Path) -> Path:
    """Write the app with variants, and return its folder."""
    return variantapp.write(checkout)


def variants(found: Comparison) -> Variants:
    assert found.variants is not None
    return found.variants


@pytest.fixture
def runs(app: Path, checkout: Path, own_place: Path) -> list[Path]:
    """Create three runs of the variant "sloop", two of "ketch", and one of "ketch, spinnaker".

    The runs of "ketch" have two ranks. Medians of the metric `lap` without its first value: 40, 50
    and 60; 20 and 30; 100.
    """
    sloop = variantapp.recipe(checkout)
    ketch = variantapp.recipe(checkout, "cpu-2core-ketch-smoke", rig="ketch", masts=2)
    full = variantapp.recipe(checkout, "cpu-2core-full-smoke", rig="ketch", spinnaker=True)
    leave = variantapp.leave
    return [
        leave(own_place / "a1", sloop, (0.50, 0.70, 0.90, 0.91), (99, 40, 70, 30), sent=0.0,
              size=1, changed={"seed": 1}),
        leave(own_place / "a2", sloop, (0.52, 0.72, 0.95, 0.92), (1, 50, 50, 50), sent=0.0,
              size=1, changed={"seed": 2}),
        leave(own_place / "a3", sloop, (0.60, 0.74, 0.94, 0.93), (80, 60, 60, 10), sent=0.0,
              size=1, changed={"seed": 3}),
        leave(own_place / "b1", ketch, (0.40, 0.60, 0.80, None), (9, 20, 20, 20), sent=3e6,
              size=2, changed={"seed": 1}),
        leave(own_place / "b2", ketch, (0.50, 0.70, 0.84, 0.85), (9, 30, 30, 30), sent=5e6,
              size=2, changed={"seed": 2}),
        leave(own_place / "c", full, (0.30, 0.50, 0.60, 0.70), (9, 100, 100, 100), size=2),
    ]


def test_the_numbers_of_variants(runs: list[Path]) -> None:
    """The speed-ups over the baseline are 2 and 0.5, and the mean amount of sent data is 4 MB.

    An epoch takes 50 s with the baseline: 50 / 25 = 2 and 50 / 100 = 0.5. The two runs of "ketch"
    send 3 MB and 5 MB per step.
    """
    found = variants(comparison.compare(runs)[0])
    assert [(one.group, one.name, one.ranks) for one in found.groups] == [
        ("A", "sloop", 1), ("B", "ketch", 2), ("C", "ketch, spinnaker", 2)]
    assert [one.times for one in found.groups] == [[40, 50, 60], [20, 30], [100]]
    assert [one.time for one in found.groups] == [50, 25, 100]
    assert [one.speedup for one in found.groups] == [1, 2, 0.5]
    assert [one.sent for one in found.groups] == [0, 4, None]
    assert [one.lines for one in found.groups] == [0, 3, 3]


def test_the_metric_after_an_epoch_is_the_mean_of_runs_that_all_have_it(runs: list[Path]) -> None:
    sloop, ketch, _ = variants(comparison.compare(runs)[0]).groups
    assert [one.epoch for one in sloop.epochs] == [1, 2, 3, 4]
    assert [one.value for one in sloop.epochs] == pytest.approx([54, 72, 93, 92])
    assert [one.epoch for one in ketch.epochs] == [1, 2, 3]
    assert [one.value for one in ketch.epochs] == pytest.approx([45, 65, 82])
    assert [one.seconds for one in ketch.epochs] == [102, 202, 302]


def test_evidence_has_the_same_numbers_as_its_run(runs: list[Path]) -> None:
    own = variants(comparison.compare(runs)[0])
    published = variants(comparison.compare([publish(run) for run in runs])[0])
    assert published == own


def test_evidence_of_an_older_version_tells_its_variant_by_its_recipe(
    runs: list[Path], checkout: Path
) -> None:
    files = [publish(run) for run in runs[2:4]]
    for file in files:
        content = json.loads(file.read_text())
        del content["variant"]
        file.write_text(json.dumps(content))
    found, _ = comparison.compare(files)
    assert [(one.name, one.time, one.speedup, one.epochs, one.sent, one.lines)
            for one in variants(found).groups] == [
        ("sloop", None, None, [], None, 0), ("ketch", None, None, [], None, 3)]
    assert any(note.startswith("No run of sloop; ketch reports lap") for note in found.notes)
    path = checkout / "recipes/sailing/cpu-2core-ketch-smoke.yaml"
    path.write_text(path.read_text() + "\n# Changed since the run.\n")
    assert comparison.compare(files)[0].variants is None
    found, _ = comparison.compare([*files, runs[5]])
    assert [one.group for one in variants(found).groups] == ["A", "C"]
    assert any(note.startswith("The table lacks 1 of 3 groups: their rig") for note in found.notes)


def test_pooled_runs_of_several_variants_are_not_one_variant(
    runs: list[Path], checkout: Path, own_place: Path
) -> None:
    other = variantapp.recipe(checkout, rig="yawl")
    yawl = variantapp.leave(own_place / "y", other, (0.5, 0.6), (3, 6))
    found, _ = comparison.compare([*runs, yawl], ["recipe-file"])
    assert found.groups[0].runs == ["A1", "A2", "A3", "A4"]
    assert [one.group for one in variants(found).groups] == ["B", "C"]


@pytest.mark.parametrize(("change", "message"), [
    ({"arguments": {"rig": "ketch"}}, "rig=ketch contradicts the changed arguments"),
    ({"arguments": {"rig": "yawl", "spinnaker": True}},
     "the recipe and the changed arguments give rig=yawl spinnaker=False"),
    ({"arguments": {"rig": "yawl", "crew": 2}}, "the recipe and the changed arguments give"),
    ({"arguments": {"spinnaker": False}}, "the recipe and the changed arguments give"),
    ({"epochs": [{"epoch": 1, "at": 1.0, "value": 60.0, "time": 1.0}]},
     "score after the last epoch is 60, but 50 in the verdict"),
    ({"epochs": [{"epoch": epoch, "at": 1.0, "value": 1.0, "time": 1.0} for epoch in (2, 1)]},
     "the epochs are not in order"),
    ({"epochs": [{"epoch": 0, "at": 1.0, "value": 1.0, "time": 1.0}]}, "epochs.0.epoch"),
    ({"sent": "much"}, "variant.sent"),
    ({"masts": 2}, "variant.masts"),
])
def test_evidence_with_an_impossible_variant_is_refused(
    app: Path, checkout: Path, own_place: Path, change: dict[str, object], message: str
) -> None:
    recipe = variantapp.recipe(checkout)
    run = variantapp.leave(own_place / "a", recipe, (0.5,), (3,), changed={"rig": "yawl"})
    file = publish(run)
    content = json.loads(file.read_text())
    assert content["variant"]["arguments"] == {"rig": "yawl", "spinnaker": False}
    content["variant"] |= change
    file.write_text(json.dumps(content))
    with refused("evidence-invalid", message, kind=UsageError):
        comparison.compare([file, run])


def test_the_variant_of_evidence_must_follow_from_a_recipe_that_did_not_change(
    app: Path, checkout: Path, own_place: Path
) -> None:
    """Evidence is refused if its variant contradicts its recipe, unless the recipe has changed.

    Evidence is also accepted if its variant lacks an option that the recipe does not set. For
    example, the app card may have named this option only after the run.
    """
    run = variantapp.leave(own_place / "a", variantapp.recipe(checkout), (0.5,), (3,))
    file = publish(run)
    content = json.loads(file.read_text())

    def tell(**arguments: object) -> None:
        content["variant"]["arguments"] = arguments
        file.write_text(json.dumps(content))

    tell(rig="ketch", spinnaker=False)
    with refused("evidence-invalid", "give rig=sloop spinnaker=False", kind=UsageError):
        comparison.compare([file, run])
    tell(rig="sloop")  # as if the card named the spinnaker after the run
    comparison.compare([file, run])
    path = checkout / "recipes/sailing/cpu-quickstart.yaml"
    path.write_text(path.read_text() + "# A new wording.\n")
    tell(rig="ketch")  # the recipe of the run is not known any more
    comparison.compare([file, run])
    tell(rig="galley")
    with refused("evidence-invalid", "rig must be one of sloop", kind=UsageError):
        comparison.compare([file, run])


def test_a_value_that_the_unit_makes_infinite_does_not_count(
    app: Path, checkout: Path, own_place: Path
) -> None:
    (app / "app.yaml").write_text(variantapp.CARD.replace("most: 100, ", ""))
    recipe = variantapp.recipe(checkout)
    run = variantapp.leave(own_place / "a", recipe, (0.5, 1e307, 0.6), (3, 4, 5))
    content = json.loads(publish(run).read_text())
    assert [one["value"] for one in content["variant"]["epochs"]] == [50, None, 60]
    assert [value for _, _, value in content["curves"][0]["points"]] == [50, 60]


def test_runs_of_one_variant_or_of_an_app_without_variants_have_no_table(
    runs: list[Path], app: Path
) -> None:
    assert comparison.compare(runs[:2])[0].variants is None
    text = variantapp.CARD.partition("variants:")[0]
    (app / "app.yaml").write_text(text)
    found, _ = comparison.compare(runs)
    assert found.variants is None
    assert "variant" not in json.loads(publish(runs[0]).read_text())


def test_the_card_of_the_checkout_says_what_is_compared(
    app: Path, checkout: Path, own_place: Path
) -> None:
    """The app card of an older run has no variants; then the card of the checkout is used."""
    (app / "app.yaml").write_text(variantapp.CARD.partition("variants:")[0])
    paths = []
    for rig, lap in (("sloop", 6), ("yawl", 4)):
        recipe = variantapp.recipe(checkout, f"cpu-2core-{rig}-smoke", rig=rig)
        paths.append(variantapp.leave(own_place / rig, recipe, (0.5, 0.6), (3, lap)))
    (app / "app.yaml").write_text(variantapp.CARD)
    found = variants(comparison.compare(paths)[0])
    assert [(one.speedup, one.lines) for one in found.groups] == [(1, 0), (1.5, 0)]


def test_a_changed_argument_is_another_variant_and_the_first_run_is_the_base(
    app: Path, checkout: Path, own_place: Path
) -> None:
    recipe = variantapp.recipe(checkout, rig="ketch")
    paths = [
        variantapp.leave(own_place / "a", recipe, (0.5, 0.6), (3, 6)),
        variantapp.leave(own_place / "b", recipe, (0.5, 0.6), (3, 12), changed={"rig": "sloop"}),
        variantapp.leave(own_place / "c", recipe, (0.5,), (3,), changed={"rig": "raft"}),
    ]
    found, _ = comparison.compare(paths)
    assert [(one.name, one.file, one.lines, one.speedup) for one in variants(found).groups] == [
        ("ketch", "src/ketch.py", 0, 1), ("sloop", "src/sloop.py", 3, 0.5),
        ("raft", None, None, None)]
    assert any(note.startswith("These variants have no count of lines: raft.")
               for note in found.notes)
    found, _ = comparison.compare([paths[2], paths[0]])
    assert [one.lines for one in variants(found).groups] == [None, None]
    assert not any("no file to" in note or "Lines that differ" in note for note in found.notes)


def test_code_that_is_not_here_is_not_compared_and_code_that_is_not_python_is_refused(
    runs: list[Path], app: Path
) -> None:
    (app / "src/ketch.py").write_text("def (")
    with refused("file-invalid", app / "src/ketch.py", kind=UsageError):
        comparison.compare(runs)
    (app / "src/sloop.py").unlink()
    found, _ = comparison.compare(runs)
    assert [one.lines for one in variants(found).groups] == [None, None, None]
    assert any("no count of lines: sloop; ketch; ketch, spinnaker." in note for note in found.notes)


def test_the_last_value_of_an_epoch_counts_and_impossible_ones_do_not(
    app: Path, checkout: Path, own_place: Path
) -> None:
    paths = []
    for rig in ("sloop", "ketch"):
        recipe = variantapp.recipe(checkout, f"cpu-2core-{rig}-smoke", rig=rig)
        paths.append(variantapp.leave(own_place / rig, recipe, (0.5, 0.6, 0.7), (3, 6, 8)))
    log = paths[1] / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in list(lines):
        where = line.get("metadata", {})
        if line["key"] == "lap_seconds" and where["epoch_num"] == 2:
            lines.insert(lines.index(line) + 1, {**line, "value": 2.0})
        if line["key"] == "eval_score" and where["epoch_num"] == 1:
            line["value"] = 1.01
        if line["key"] == "lap_seconds" and where["epoch_num"] == 3:
            line["value"] = -8.0
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = paths[1] / "run.json"
    content = json.loads(record.read_text())
    content["files"] = run_directory.hashes(paths[1])
    record.write_text(json.dumps(content))
    ketch = variants(comparison.compare(paths)[0]).groups[1]
    assert (ketch.times, ketch.speedup) == ([2], 3.5)
    assert [one.epoch for one in ketch.epochs] == [2, 3]


def variant(name: str, epochs: int, group: str = "A") -> Variant:
    means = [Epoch(epoch=epoch, seconds=epoch, value=epoch) for epoch in range(1, epochs + 1)]
    return Variant(group=group, name=name, ranks=None, times=[], time=None, speedup=None,
                   epochs=means, sent=None, file=None, lines=None)


@pytest.mark.parametrize(("epochs", "shown"), [
    (0, []), (1, [1]), (5, [1, 2, 3, 4, 5]), (6, [1, 2, 3, 5, 6]), (90, [1, 23, 45, 68, 90]),
])
def test_the_table_shows_at_most_five_epochs_with_the_first_and_the_last(
    runs: list[Path], epochs: int, shown: list[int]
) -> None:
    found = variants(comparison.compare(runs)[0])
    found = found.model_copy(update={"groups": [variant("a", epochs), variant("b", 0, "B")]})
    assert variant_tables.shown_epochs(found) == shown
    assert not any("more than 120 epochs" in note for note in variant_tables.notes(found, 2))
    assert variant_tables.rows(found)[0][-1] == (", ".join(f"{one}.0" for one in shown) or "-")
    assert variant_tables.rows(found)[1][2:] == [
        "-", "-", "-", "-", "-", ", ".join("-" for _ in shown) or "-"]


def test_notes_say_what_the_numbers_do_not_show(runs: list[Path]) -> None:
    found = comparison.compare(runs)[0]
    said = " ".join(found.notes)
    assert "Ranks are processes" in said
    assert "A changed line counts twice" in said
    long = variants(found).model_copy(update={"groups": [variant("a", 121), variant("b", 0, "B")]})
    assert any("more than 120 epochs" in note for note in variant_tables.notes(long, 2))


def test_drawings_have_a_line_and_a_row_for_each_variant(runs: list[Path]) -> None:
    found = variants(comparison.compare(runs)[0])
    panel, times = variant_tables.panel(found), variant_tables.times(found)
    assert panel is not None
    assert [line.label for line in panel.lines] == ["sloop", "ketch", "ketch, spinnaker"]
    assert [(point.step, point.seconds) for point in panel.lines[1].points] == [
        (1, 102), (2, 202), (3, 302)]
    assert times is not None
    assert [(row.name, row.mark, row.text) for row in times.rows] == [
        ("sloop", 50, "50.0, 1.00x"), ("ketch", 25, "25.0, 2.00x"),
        ("ketch, spinnaker", 100, "100.0, 0.50x")]
    assert [dot.value for dot in times.rows[0].dots] == [40, 50, 60]
    twice = found.model_copy(update={"groups": [variant("a", 1), variant("a", 1, "B")]})
    panel = variant_tables.panel(twice)
    assert panel is not None
    assert [line.label for line in panel.lines] == ["a (A)", "a (B)"]
    nothing = found.model_copy(update={"groups": [variant("a", 0), variant("b", 0, "B")]})
    assert (variant_tables.panel(nothing), variant_tables.times(nothing)) == (None, None)
