"""Tests of the graph and the table of all images: up to date, complete, and well drawn."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from generator import image_graph, image_overview, sources
from refusals import refused
from trimaran import paths
from trimaran.errors import UsageError
from trimaran.images import definition

ALL = [definition.load(name) for name in definition.names()]
WRITTEN = paths.repository() / "site/results/images/torch-cpu/2026-11-28-epyc-bf16-2core.json"
ALL_BY_NAME = {image.name: image for image in ALL}
README = paths.repository() / "containers/README.md"
SVG = "{http://www.w3.org/2000/svg}"


def drawn() -> ET.Element:
    """Return the parsed SVG that shows all images."""
    return ET.fromstring(image_graph.svg(ALL))  # noqa: S314 - written by us


def with_apps(*names: str) -> list[definition.Image]:
    """Return all images of the checkout, and for each of `names` an app image on torch-cpu."""
    app = definition.load("resnet-imagenet-torch-cpu")
    more = [app.model_copy() for _ in names]
    for image, name in zip(more, names, strict=True):
        image._folder = Path("containers/apps") / name
    return [*ALL, *more]


def test_both_are_current() -> None:
    image_overview.check()


def test_a_changed_file_is_named(checkout: Path) -> None:
    containers = checkout / "containers"
    (containers / "frameworks").mkdir()
    (containers / "frameworks/torch-cpu").symlink_to(README.parent / "frameworks/torch-cpu")
    for shared in ("build", "selftests"):
        (containers / shared).symlink_to(README.parent / shared)
    readme = containers / "README.md"
    readme.write_text(f"before\n{image_overview.BEGIN}\nold\n{image_overview.END}\nafter\n")
    with refused("file-outdated", containers / "graph.svg", readme, kind=UsageError):
        image_overview.check()
    image_overview.write()
    image_overview.check()
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    readme.write_text(text.replace("PyTorch 2", "PyTorch 1"))
    with refused("file-outdated", readme, kind=UsageError) as caught:
        image_overview.check()
    assert "graph.svg" not in caught.value.message


def test_every_image_is_in_the_picture_once() -> None:
    written = [element.text for element in drawn().iter(f"{SVG}text")]
    assert [written.count(name) for name in definition.names()] == [1] * len(ALL)


def test_a_line_goes_from_each_image_to_the_one_above() -> None:
    _, edges = image_graph.layout(ALL)
    pairs = {(edge.below.title, edge.above.title) for edge in edges}
    assert {(i.framework, i.name) for i in ALL if i.framework} <= pairs
    assert {above for _, above in pairs} == set(definition.names())


@pytest.mark.parametrize("more", [[], ["a"], ["a", "b", "c", "d"]])
def test_no_box_covers_another(more: list[str]) -> None:
    boxes, _ = image_graph.layout(with_apps(*more))
    for one, other in itertools.combinations(boxes, 2):
        if one.column == other.column:
            upper, lower = sorted((one, other), key=lambda box: box.y)
            assert upper.y + upper.height < lower.y, (upper.title, lower.title)


def test_what_is_written_fits_into_its_box() -> None:
    boxes, _ = image_graph.layout(ALL)
    for box in boxes:
        # Wide fonts take 0.6 of their size for a letter of the mean text, bold ones 0.65.
        assert len(box.title) * 14 * 0.62 < box.column.width, box.title
        for line in box.lines:
            assert len(line) * 12 * 0.58 < box.column.width, line
        assert box.title_at - 12 > box.y
        assert all(at + 3 < box.y + box.height for at, _ in box.lines_at)


def test_the_picture_is_readable_on_a_dark_page() -> None:
    root = drawn()
    first = next(root.iter(f"{SVG}rect"))
    assert first.get("fill") == "#ffffff"
    assert (first.get("width"), first.get("height")) == tuple(root.attrib["viewBox"].split()[2:])


def test_the_table_tells_the_versions_of_the_lock() -> None:
    rows = {row.split("`")[1]: row for row in reversed(image_overview.table(ALL).splitlines()[2:])}
    assert sorted(rows) == definition.names()
    assert "PyTorch 2.13.0, Horovod 0.28.1, DALI 2.4.0, Open MPI 4.1.4" in rows["torch-cpu"]
    assert rows["torch-cpu"].count("| CPU (amd64) |") == 1
    assert "NVIDIA GPU, CUDA 12" in rows["torch-cuda12"]
    assert "`torch-cpu` + shards, trainkit, resnet-imagenet" in rows["resnet-imagenet-torch-cpu"]


def evidence(checkout: Path, image: str, file: str, **changes: Any) -> None:
    """Write evidence about `image`, as `trimaran inspect --evidence` would write it."""
    folder = checkout / "site/results/images" / image
    folder.mkdir(parents=True, exist_ok=True)
    written = json.loads(WRITTEN.read_text())
    found = written | {"image": image, "date": "2026-11-21T12:00:00Z", "size": 1_234_567_890,
                       "start": 0.314, "version": None}
    host = {**written["host"], **changes.pop("host", {})}
    (folder / file).write_text(json.dumps(found | changes | {"host": host}))


def test_the_table_tells_the_newest_evidence_on_the_sif(checkout: Path) -> None:
    evidence(checkout, "torch-cpu", "2026-11-20-host.json", size=1)
    evidence(checkout, "torch-cpu", "2026-11-21-host.json")
    evidence(checkout, "torch-cpu", "2026-11-22-host.json", engine="podman")
    row = image_overview.evidence_cells(ALL_BY_NAME["torch-cpu"])
    assert row == (
        "[1,235 MB](../site/results/images/torch-cpu/2026-11-21-host.json) (2026-11-21)",
        "0.31 s", "passed",
    )


def test_a_sif_with_another_version_of_the_framework_is_not_this_image(checkout: Path) -> None:
    image = ALL_BY_NAME["torch-cuda13"]
    evidence(checkout, image.name, "2026-11-22-host.json", version="1.13.1")
    assert image_overview.evidence_cells(image) == ("no evidence", "", "")
    evidence(checkout, image.name, "2026-11-21-host.json", version=image.version)
    assert image_overview.evidence_cells(image)[0].endswith("2026-11-21-host.json) (2026-11-21)")


def test_each_architecture_has_a_row_with_its_own_evidence(checkout: Path) -> None:
    evidence(checkout, "torch-cpu", "2026-11-21-host.json", date="2026-11-21T12:00:00Z")
    evidence(checkout, "torch-cpu", "2026-11-22-arm64-host.json", date="2026-11-22T12:00:00Z",
             architecture="arm64", start=None, size=2_000_000)
    amd64, arm64 = image_overview.on_each(ALL_BY_NAME["torch-cpu"])
    assert image_overview.evidence_cells(amd64)[1:] == ("0.31 s", "passed")
    size, start, _ = image_overview.evidence_cells(arm64)
    assert (size.partition("]")[0], start) == ("[2 MB", "none")


def test_what_is_generated_does_not_depend_on_the_processor(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    image_overview.check()
    assert {one.architecture for one in sources.read().images} == {"amd64"}


@pytest.mark.parametrize(
    ("gpus", "said"), [([], "passed; its GPU part was not run"), (["NVIDIA A100"], "passed")]
)
def test_a_test_without_the_gpu_is_not_called_more(
    checkout: Path, gpus: list[str], said: str
) -> None:
    evidence(checkout, "torch-cuda12", "2026-11-21-host.json", host={"accelerators": gpus})
    assert image_overview.evidence_cells(ALL_BY_NAME["torch-cuda12"])[2] == said


def test_an_image_without_evidence_was_not_built_here(checkout: Path) -> None:
    assert image_overview.evidence_cells(ALL_BY_NAME["torch-rocm"]) == ("no evidence", "", "")


def test_foreign_evidence_is_named(checkout: Path) -> None:
    evidence(checkout, "torch-cpu", "2026-11-21-host.json", size="large")
    with refused("file-invalid", "2026-11-21-host.json", "size", kind=UsageError):
        image_overview.evidence_cells(ALL_BY_NAME["torch-cpu"])


@pytest.mark.parametrize("image", [one for image in ALL for one in image_overview.on_each(image)],
                         ids=lambda one: f"{one.name}-{one.architecture}")
def test_an_image_that_was_built_may_grow_by_three_percent(image: definition.Image) -> None:
    found = image_overview.newest(image)
    if found is None:
        return  # without a measured size, there is nothing to limit
    size = found[1].size / 1e6
    assert image.size_limit is not None
    assert size <= image.size_limit <= 1.03 * size


def test_links_of_the_table_lead_somewhere() -> None:
    for image in ALL:
        place = image.folder.relative_to(README.parent) / "image.yaml"
        assert f"({place})" in README.read_text()


def test_the_table_of_gpus_has_the_versions_of_the_images() -> None:
    for name in ("torch-cuda12", "torch-cuda13"):
        column = f"| {name.removeprefix('torch-')} (PyTorch {ALL_BY_NAME[name].version}) |"
        assert column in README.read_text()


def test_a_readme_without_its_marks_is_not_touched(checkout: Path) -> None:
    readme = checkout / "containers/README.md"
    readme.write_text("# Containers\n")
    with refused("file-invalid", readme, image_overview.BEGIN, kind=UsageError):
        image_overview.write()
    assert readme.read_text() == "# Containers\n"
    assert not (checkout / "containers/graph.svg").exists()
