"""The site shows results by framework version, and marks a release slower than the previous."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import pytest

from generator import measured, rates, recipes, releases, results, scaling
from generator import sources as everything
from generator.recipes import place
from generator.sources import Sources
from trimaran import paths
from trimaran.evidence.content import LISTED, sealed

RESULTS = "site/results"
RECIPE = "resnet-imagenet/v100x8-throughput"
SERIES = "resnet-imagenet/v100x1-horovod-scaling"
KEPT = ("futuregan/cpu-quickstart", "resnet-imagenet/cpu-quickstart")
SOURCE = paths.repository()
PATTERN = f"{RESULTS}/resnet-imagenet/cpu-2node-smoke/2026-11-24-epyc-avx512-2core-seed17.json"


@pytest.fixture
def root(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the repository with the evidence of two recipes, to which a test may add files."""
    source = SOURCE
    for folder, left_out in (("", "site"), ("site", "results")):
        (own_place / folder).mkdir(exist_ok=True)
        for path in (source / folder).iterdir():
            if path.name != left_out:
                (own_place / folder / path.name).symlink_to(path)
    for name in KEPT:
        shutil.copytree(source / RESULTS / name, own_place / RESULTS / name)
    shutil.copy(source / RESULTS / LISTED, own_place / RESULTS)
    monkeypatch.setenv("TRIMARAN_ROOT", str(own_place))
    return own_place


def add(
    root: Path, version: str | None, *rates: float, gpu: str = "AMD Instinct MI300X (gfx942)",
    day: str = "2026-11-24", recipe: str = RECIPE,
) -> None:
    """Write the evidence of runs on eight GPUs with this version of PyTorch."""
    content = json.loads((SOURCE / PATTERN).read_text())
    content["run"]["recipe"] |= {"name": recipe, "changed": {}}
    content["run"] |= {"host": content["run"]["host"] | {"accelerators": [gpu] * 8}, "nodes": []}
    content["run"]["environment"]["packages"]["torch"] = version
    content["run"] |= {"started": f"{day}T10:00:00Z", "ended": f"{day}T11:00:00Z"}
    [row] = [row for row in content["verdict"]["rows"] if row["metric"] == "throughput"]
    folder = root / RESULTS / recipe.partition("@")[0]
    folder.mkdir(parents=True, exist_ok=True)
    for number, rate in enumerate(rates, start=len(list(folder.iterdir()))):
        row |= {"measured": rate, "outcome": "NO REFERENCE"}
        verdict = {"outcome": "NO REFERENCE", "reasons": [], "rows": [row]}
        whole = sealed(content | {"verdict": verdict, "curves": []})
        (folder / f"{day}-host-{number}.json").write_text(json.dumps(whole))


def found() -> list[releases.Release]:
    return list(releases.releases_of(everything.read().standings[RECIPE]))


def shown(sources: Sources) -> str:
    [page] = [page for page in results.pages(sources) if page.place == "results/throughput.md"]
    return page.text


def test_a_slower_release_shows(root: Path) -> None:
    """A release with 65 % of the previous release's rate is marked as slower.

    PyTorch issue 180500 reports that PyTorch 2.10 is 30 to 40 % slower on eight MI300X.
    """
    add(root, "2.9.1+rocm6.4", 20_000, 20_400, 19_800)
    add(root, "2.10.0+rocm7.0", 13_000, 13_200, 12_900)
    first, second = found()
    assert (first.ran.version, second.ran.version) == ("2.9.1+rocm6.4", "2.10.0+rocm7.0")
    assert (first.ratio, first.slower, second.slower) == (None, False, True)
    assert second.ratio == pytest.approx(0.65)
    text = shown(everything.read())
    assert '<span class="chip slower">slower</span>' in text
    assert "65 % of 2.9.1+rocm6.4, slower" in text
    assert "8 x AMD Instinct MI300X (gfx942)" in text


@pytest.mark.parametrize(("older", "newer", "slower"), [
    ((100, 101), (94, 93), True),
    ((100, 101), (96, 97), False),  # less than the smallest loss that counts
    ((100, 90), (91, 85), False),  # the runs overlap
    ((100, 101), (130, 131), False),
])
def test_a_loss_counts_beyond_five_percent_and_beyond_the_spread(
    root: Path, older: tuple[float, ...], newer: tuple[float, ...], slower: bool
) -> None:
    add(root, "2.9.1", *older)
    add(root, "2.10.0", *newer)
    assert found()[1].slower is slower
    assert ('chip slower' in shown(everything.read())) is slower


def test_versions_of_one_day_are_not_mixed(root: Path) -> None:
    add(root, "2.9.1", 100)
    add(root, "2.10.0", 60)
    read = everything.read()
    groups = measured.rates_of(read.standings[RECIPE])
    assert sorted((ran.version, ran.rate) for ran in groups) == [("2.10.0", 60), ("2.9.1", 100)]
    rows = [row for row in rates.ran(read).rows if row[0] == RECIPE]
    assert {(row[1], row[7]) for row in rows} == {("60", "torch 2.10.0"), ("100", "torch 2.9.1")}


def test_only_versions_on_the_same_machine_are_compared(root: Path) -> None:
    add(root, "2.9.1", 100)
    add(root, "2.10.0", 60, gpu="NVIDIA H100 80GB HBM3")
    add(root, None, 10)
    assert found() == []


def test_the_newest_day_of_a_version_counts(root: Path) -> None:
    add(root, "2.9.1", 100, day="2026-11-20")
    add(root, "2.9.1", 80, day="2026-11-24")
    add(root, "2.10.0", 79)
    assert found()[1].ratio == pytest.approx(79 / 80)


def test_a_line_of_a_scaling_plot_has_one_version(root: Path) -> None:
    for point, rate in ((1, 300), (2, 590)):
        add(root, "2.9.1", rate, recipe=f"{SERIES}@{point}")
        add(root, "2.10.0", 0.6 * rate, recipe=f"{SERIES}@{point}")
    lines = scaling.lines_of(SERIES, everything.read().recipes[SERIES])
    drawn = {line.origin: [size.rate for size in line.sizes] for line in lines}
    gpu = "measured on AMD Instinct MI300X (gfx942), torch"
    assert drawn[f"{gpu} 2.9.1"] == [300, 590]
    assert drawn[f"{gpu} 2.10.0"] == [180, 354]


@pytest.mark.parametrize(("today", "stale"), [("2027-11-24", False), ("2027-11-25", True)])
def test_evidence_is_stale_relative_to_the_given_date(
    root: Path, today: str, stale: bool
) -> None:
    shutil.rmtree(root / RESULTS / "resnet-imagenet")
    read = everything.read(dt.date.fromisoformat(today))
    name = "futuregan/cpu-quickstart"
    pages = [page for page in recipes.pages(read) if page.place == place(name)]
    pages += [page for page in results.pages(read) if page.place == "results/index.md"]
    for page in pages:
        assert ('<span class="chip stale">stale</span>' in page.text) is stale, page.place
    assert ("(stale)" in shown(read)) is stale


def test_evidence_of_another_recipe_file_is_shown_as_older(root: Path) -> None:
    name = "resnet-imagenet/cpu-quickstart"
    [page] = [page for page in recipes.pages(everything.read()) if page.place == place(name)]
    lines = page.text.splitlines()
    [newest] = [line for line in lines if "2026-11-24-epyc-avx512-2core-seed17" in line]
    [older] = [line for line in lines if "2026-11-23-epyc-avx2-2core-seed17" in line]
    chip = '<span class="chip older">older</span>'
    assert chip in older
    assert chip not in newest
    assert "torch 2.13.0+cpu" in newest
