"""Test the comparison of runs: groups, differences, time to reach a level, scaling, errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comparable import Make, noise, publish
from refusals import refused
from trimaran.compare import comparison, efficiency, sources
from trimaran.compare.comparison import compare
from trimaran.compare.noise import METHODS, NONE, STRETCHES
from trimaran.compare.result import Comparison, Metric
from trimaran.compare.sources import Side
from trimaran.errors import UsageError
from trimaran.recipes.expectation import Efficiency


def metric(found: Comparison, name: str) -> Metric:
    return next(one for one in found.metrics if one.metric == name)


def test_repeats_are_groups_and_the_first_is_compared_with(make: Make) -> None:
    paths = [make("one", (0.90,), seed=1), make("b", (0.80,), epochs=9),
             make("two", (0.92,), seed=2), make("three", (0.91,), seed=3)]
    found, _ = compare([paths[0], publish(paths[1]), publish(paths[2]), paths[3]])
    assert [(group.name, group.runs) for group in found.groups] == [
        ("A", ["A1", "A2", "A3"]), ("B", ["B"])
    ]
    assert found.groups[1].unlike == ["arguments epochs=9 instead of the recipe's"]
    top1 = metric(found, "val_top1")
    assert [round(summary.mean, 6) for summary in top1.groups] == [91.0, 80.0]
    assert top1.groups[0].deviation == pytest.approx(1.0)
    [difference] = top1.differences
    assert (round(difference.value, 6), difference.outcome) == (-11.0, "more than noise")
    assert difference.percent == pytest.approx(-100 * 11 / 91)


def test_repeats_alone_are_compared_with_the_first(make: Make) -> None:
    found, _ = compare([make("new", (0.8,)), make("a", (0.9,), seed=2), make("b", (0.91,), seed=3)])
    assert [group.runs for group in found.groups] == [["A"], ["B1", "B2"]]
    assert any("repeats of resnet-imagenet/cpu-smoke" in note for note in found.notes)


def test_the_speed_of_two_runs_is_judged_by_their_windows(make: Make) -> None:
    a, b = make("a", speeds=noise(1, 1000)), make("b", speeds=noise(2, 1100))
    for paths in ([a, b], [publish(a), b]):
        found, _ = compare(paths)
        [speed] = metric(found, "throughput").differences
        assert speed.outcome == "more than noise within the runs"
        assert speed.low is not None
        assert 80 < speed.low < 100
        assert metric(found, "val_top1").differences[0].outcome == "no difference"
        assert METHODS[STRETCHES] in found.notes


def test_the_energy_of_runs_is_compared_where_both_measured_it(make: Make) -> None:
    paths = [make("a", joules=2.0), make("b", joules=2.5), make("c", seed=2)]
    for two in (paths[:2], [publish(paths[0]), paths[1]]):
        energy = metric(compare(two)[0], "energy_per_sample")
        assert [summary.values for summary in energy.groups] == [[2.0], [2.5]]
        assert [one.percent for one in energy.differences] == [25.0]
    found = compare([paths[0], paths[2]])[0]
    assert "energy_per_sample" not in [one.metric for one in found.metrics]


def test_other_machines_make_other_groups_unless_they_are_pooled(make: Make) -> None:
    paths = [make("a"), make("b", seed=2), make("c", cores=64)]
    assert [group.runs for group in compare(paths)[0].groups] == [["A1", "A2"], ["B"]]
    found, _ = compare(paths, ["machine"])
    assert [group.runs for group in found.groups] == [["A"], ["B1", "B2"]]
    assert any("--pool" in note and "machine" in note for note in found.notes)
    with refused("name-unknown", "'wether'", kind=UsageError):
        compare(paths, ["wether"])


def test_when_a_level_was_reached_is_told_over_steps_and_time(make: Make) -> None:
    """A comparison names step and time at which each run reached the recipe's bound of 89.1 %."""
    found, _ = compare([make("a", (0.5, 0.895, 0.9)), make("b", (0.5, 0.6, 0.9), seed=2),
                        make("c", (0.8,), seed=3)])
    reach = next(one for one in found.reached if one.metric == "val_top1")
    assert reach.level == pytest.approx(89.1)
    assert [(one.run, one.step, one.seconds) for one in reach.runs] == [
        ("A", 20, 20.0), ("B1", 30, 30.0), ("B2", None, None)
    ]


def test_without_an_expectation_the_level_is_what_all_reached(
    make: Make, checkout: Path
) -> None:
    paths = [publish(make("a", (0.5, 0.85, 0.9))), publish(make("b", (0.8, 0.85), seed=2))]
    for path in paths:
        content = json.loads(path.read_text())
        content["verdict"] |= {"outcome": "NO REFERENCE"}
        content["verdict"]["rows"][0] |= {"outcome": "NO REFERENCE", "low": None}
        path.write_text(json.dumps(content))
    [reach] = compare(paths)[0].reached[:1]
    assert reach.level == pytest.approx(85)
    assert [one.step for one in reach.runs] == [20, 20]


def test_scaling_is_against_the_fewest_ranks(make: Make) -> None:
    found, _ = compare([make("four", speeds=[3600.0], size=4, cores=4),
                        make("one", speeds=[1000.0], size=1, cores=1),
                        make("two", speeds=[1900.0], size=2, cores=2)])
    assert [(one.group, one.ranks, round(one.speedup, 3), round(one.efficiency, 3))
            for one in found.scaling] == [("B", 1, 1.0, 1.0), ("C", 2, 1.9, 0.95),
                                          ("A", 4, 3.6, 0.9)]
    untold = publish(make("a"))  # evidence without the number of ranks
    assert compare([untold, make("b", size=2, epochs=3)])[0].scaling == []


def test_scaling_of_ranks_with_several_gpus_is_over_their_gpus(make: Make) -> None:
    """Efficiency is computed per GPU, not per rank, for runs of one rank with 1, 2 and 4 GPUs.

    Such runs form a scaling series over the number of GPUs per rank.
    """
    found, groups = compare([make("one", speeds=[1000.0], size=1, cores=1),
                             make("two", speeds=[1900.0], size=1, cores=2),
                             make("four", speeds=[3600.0], size=1, cores=4)])
    assert found.scaling == []
    counted = {name: [replace(side, devices=devices) for side in groups[name]]
               for name, devices in zip("ABC", (1, 2, 4), strict=True)}
    assert [(one.group, one.ranks, one.devices, round(one.efficiency, 3))
            for one in efficiency.scaling(counted, found.metrics)] == [
        ("A", 1, 1, 1.0), ("B", 1, 2, 0.95), ("C", 1, 4, 0.9)]


@pytest.mark.parametrize(
    ("rate", "over", "series", "judged", "outcome"),
    [(2 * 880.0, 1, "app/a", True, "PASS"), (2 * 780.0, 1, "app/a", True, "FAIL"),
     (2 * 880.0, 3, "app/a", True, "NO REFERENCE"), (2 * 880.0, 1, "app/b", True, "NO REFERENCE"),
     (2 * 880.0, 1, "app/a", False, "NO REFERENCE")],
)
def test_a_published_efficiency_is_judged_if_both_throughputs_are(
    make: Make, rate: float, over: int, series: str, judged: bool, outcome: str
) -> None:
    """A published efficiency is judged only if both throughputs are judged, too.

    The published value is 87.5 % for two ranks, with a margin of 10 %: at least 78.75 %.
    """
    found, groups = compare([make("one", speeds=[1000.0], size=1, cores=1),
                             make("two", speeds=[rate], size=2, cores=2)])
    published = Efficiency(over=over, value=0.875, lower=-0.1, source="a guide")

    def side(one: Side, point: str) -> Side:
        rows = [row.model_copy(update={"outcome": "PASS" if judged else "NO REFERENCE"})
                for row in one.verdict.rows]
        return replace(one, verdict=one.verdict.model_copy(update={"rows": rows}),
                       experiment=replace(one.experiment, recipe=point))

    known = {"A": [side(groups["A"][0], f"{series}@1")],
             "B": [replace(side(groups["B"][0], "app/a@2"), efficiency=published)]}
    alone, both = efficiency.scaling(known, found.metrics)
    assert alone.expected is None
    assert both.expected is not None
    assert both.expected.outcome == outcome
    assert both.expected.lowest == pytest.approx(0.7875)
    compared = over == 1 and series == "app/a"
    assert both.expected.measured == (pytest.approx(rate / 2000) if compared else None)


@pytest.mark.parametrize("others", [("app/other@1", "app/a@1"), ("app/a@1", "app/other@1")])
def test_a_published_efficiency_is_over_a_point_of_its_own_series(
    make: Make, others: tuple[str, str]
) -> None:
    """The published efficiency is relative to a run of the same series.

    Another recipe with as many devices is not used, in whatever order the runs are given.
    """
    found, groups = compare([
        make("one", speeds=[1000.0], size=1, cores=1),
        make("first", speeds=[1000.0], size=1, cores=1, epochs=3),
        make("two", speeds=[1600.0], size=2, cores=2)])
    names = dict(zip("ABC", (*others, "app/a@2"), strict=True))
    known = {key: [replace(side, experiment=replace(side.experiment, recipe=names[key]))
                   for side in group] for key, group in groups.items()}
    published = Efficiency(over=1, value=0.8, lower=-0.1, source="a guide")
    known["C"] = [replace(known["C"][0], efficiency=published)]
    last = efficiency.scaling(known, found.metrics)[-1].expected
    assert last is not None
    assert last.measured == pytest.approx(0.8)


def test_a_published_efficiency_is_over_the_devices_of_its_source(make: Make) -> None:
    """If a published efficiency is relative to two devices, the measured one is, too: 80 %.

    The rates per rank on 1, 2 and 4 devices are 1000, 900 and 720: 720 is 72 % of 1000, and 80 %
    of 900.
    """
    found, groups = compare([make("one", speeds=[1000.0], size=1, cores=1),
                             make("two", speeds=[1800.0], size=2, cores=2),
                             make("four", speeds=[2880.0], size=4, cores=4)])
    published = Efficiency(over=2, value=0.8, lower=-0.1, source="a guide")
    known = {**groups, "C": [replace(groups["C"][0], efficiency=published)]}
    last = efficiency.scaling(known, found.metrics)[-1]
    assert last.efficiency == pytest.approx(0.72)
    assert last.expected is not None
    assert last.expected.measured == pytest.approx(0.8)


def test_the_devices_of_evidence_are_not_guessed(make: Make) -> None:
    file = publish(make("a", size=2))
    assert sources.load(file).devices == 2
    content = json.loads(file.read_text())
    content["run"]["recipe"]["sha256"] = "0" * 64  # a recipe that is not here
    file.write_text(json.dumps(content))
    assert sources.load(file).devices == 2  # a machine without accelerators
    content["run"]["host"]["accelerators"] = ["Tesla V100-SXM2-16GB"] * 4
    file.write_text(json.dumps(content))
    assert sources.load(file).devices is None


def test_scaling_may_begin_at_several_ranks_and_nodes_do_not_count(make: Make) -> None:
    found, _ = compare([make("eight", speeds=[3000.0], size=8, cores=8),
                        make("two", speeds=[1000.0], size=2, cores=2),
                        make("three", speeds=[1800.0], size=3, cores=3)])
    assert [(one.ranks, round(one.speedup, 3), round(one.efficiency, 3))
            for one in found.scaling] == [(2, 1.0, 1.0), (3, 1.8, 1.2), (8, 3.0, 0.75)]


def test_means_and_deviations_are_of_all_runs_of_a_group(make: Make) -> None:
    """The values are 90, 92, 97, 81 %: the mean is 90, the squared deviations 0, 4, 49, 81."""
    paths = [make(f"a{seed}", (value,), seed=seed)
             for seed, value in enumerate((0.90, 0.92, 0.97, 0.81))]
    top1 = metric(compare([*paths, make("b", (0.45,), epochs=9)])[0], "val_top1")
    assert top1.groups[0].mean == pytest.approx(90)
    assert top1.groups[0].deviation == pytest.approx((134 / 3) ** 0.5)
    [difference] = top1.differences
    assert difference.value == pytest.approx(-45)
    assert difference.percent == pytest.approx(-50)


@pytest.mark.parametrize(("first", "second", "percent"), [
    ([4.0], [5.0], 25.0), ([-4.0], [-3.0], 25.0), ([-4.0], [-5.0], -25.0), ([0.0], [1.0], None),
    ([1.0, 3.0], [3.0], 50.0),
])
def test_percents_are_of_the_first_and_go_its_way(
    first: list[float], second: list[float], percent: float | None
) -> None:
    assert comparison._difference("loss", "B", first, second, []).percent == percent


class Falling:
    """A stand-in for a run: the curve of each metric has `values` at the steps 1, 2 and so on."""

    def __init__(self, *values: float) -> None:
        self.points = [(step, step / 2, value) for step, value in enumerate(values, start=1)]

    def curve(self, metric: str) -> Falling:
        return self


@pytest.mark.parametrize(("level", "up", "step"), [
    (2.0, False, 3), (2.00001, False, 3), (1.5, False, 4), (0.9, False, None), (5.0, False, 1),
    (4.0, True, 1), (4.5, True, 5), (7.0, True, None),
])
def test_a_level_is_reached_by_the_first_value_beyond_it(
    level: float, up: bool, step: int | None
) -> None:
    run: Any = Falling(4.0, 3.0, 2.0, 1.0, 6.0)
    found = comparison._arrival("A", run, "loss", level, up)
    assert (found.step, found.seconds) == (step, None if step is None else step / 2)


def test_runs_in_other_images_and_on_more_nodes_are_other_experiments(make: Make) -> None:
    plain, image, nodes = (publish(make(name, seed=at)) for at, name in enumerate("abc"))
    content = json.loads(image.read_text())
    content["run"]["image"]["digest"] = "sha256:" + "12" * 32
    image.write_text(json.dumps(content))
    content = json.loads(nodes.read_text())
    content["run"]["nodes"] = [content["run"]["host"]]
    nodes.write_text(json.dumps(content))
    groups = compare([plain, image, nodes])[0].groups
    assert [group.nodes for group in groups] == [1, 1, 2]
    assert [[text.partition(" ")[0] for text in group.unlike] for group in groups] == [
        [], ["image"], ["machine"]
    ]
    assert groups[2].machine.startswith("2 nodes, each ")


def test_a_series_is_its_runs(make: Make, own_place: Path) -> None:
    (own_place / "series").mkdir()
    for nodes in (1, 2):
        make(f"series/nodes-{nodes:04}", speeds=[900.0 * nodes], size=nodes, cores=nodes)
    runs = {1: "nodes-0001", 2: "nodes-0002"}
    (own_place / "series/scaling.json").write_text(json.dumps({"recipe": "a", "runs": runs}))
    found, _ = compare([own_place / "series"])
    assert [run.source for run in found.runs] == [f"{own_place}/series/{name}"
                                                  for name in runs.values()]
    assert [round(one.speedup, 3) for one in found.scaling] == [1.0, 2.0]


def test_notes_name_the_methods_that_were_used_and_no_others(make: Make) -> None:
    notes = compare([make("a"), make("b", epochs=3)])[0].notes
    assert METHODS[NONE] in notes
    assert "Welch" not in " ".join(notes)


def test_runs_of_several_apps_are_refused(make: Make, checkout: Path) -> None:
    a, b = make("a"), publish(make("b"))
    b.write_text(b.read_text().replace("resnet-imagenet/cpu-smoke", "other/cpu-smoke"))
    other = checkout / "apps/other"
    other.mkdir()
    card = (checkout / "apps/resnet-imagenet/app.yaml").read_text()
    (other / "app.yaml").write_text(card)
    with refused("runs-incomparable", f"{b} of other", kind=UsageError):
        compare([a, b])


def test_an_app_that_nobody_knows_here_is_named(make: Make) -> None:
    a, b = make("a"), publish(make("b"))
    b.write_text(b.read_text().replace("resnet-imagenet/cpu-smoke", "other/cpu-smoke"))
    with pytest.raises(UsageError, match="other"):
        compare([a, b])


def test_runs_without_a_metric_in_common_are_refused(make: Make) -> None:
    a, b = make("a"), publish(make("b"))
    content = json.loads(b.read_text())
    content["verdict"]["rows"] = [
        {**row, "at": "best"} if row["metric"] != "throughput" else {**row, "at": "end"}
        for row in content["verdict"]["rows"]
    ]
    b.write_text(json.dumps(content))
    with refused("runs-incomparable", "val_top1 (best)", kind=UsageError):
        compare([a, b])


def test_one_run_and_one_twice_are_refused(make: Make, own_place: Path) -> None:
    a = make("a")
    with refused("argument-missing", "two", kind=UsageError):
        compare([a])
    (own_place / "link").symlink_to(a)
    with refused("run-repeated", a, own_place / "link", kind=UsageError):
        compare([a, own_place / "link"])
