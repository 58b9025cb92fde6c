"""Execute the commands on pages of the site that need an engine, in the order of the page."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

import tinyapp
from generator import images, sources
from registries import running
from showncommands import PAGES, ROOT, Block, blocks, copied, tried

QUICKSTART = "make quickstart"
"""The command that this module leaves out, because `test_readme.py` executes it."""
LONG = {
    "guides/strategies.md", "tutorials/own-recipe.md",
    "tutorials/air-gapped.md",  # as test_bundle.py
    "tutorials/cluster.md",  # as with a small app, below
    "tutorials/own-script.md",  # as test_own_script.py and test_own_script_nodes.py
}
"""Pages that this module leaves out: several whole trainings, or covered by another test."""
IMAGE = "resnet-imagenet-torch-cpu"
SECONDS_TO_CANCEL = 8


def of_kind(page: str, how: str) -> list[Block]:
    return [block for block in blocks(page)
            if block.how == how and block.text.strip() != QUICKSTART]


REAL = {page: found for page in PAGES if (found := of_kind(page, "real"))}
SMALL = {page: found for page in PAGES if (found := of_kind(page, "small"))}


def page_of(name: str, found: list[Block]) -> object:
    engines = sorted({need for block in found for need in block.needs})
    marks = [pytest.mark.engine(engine) for engine in engines]
    return pytest.param(name, marks=[*marks, pytest.mark.long] if name in LONG else marks)


@pytest.mark.trains
@pytest.mark.alone
@pytest.mark.usefixtures("user_cache")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page_of(name, found) for name, found in REAL.items()])
def test_the_commands_of_a_page_run(page: str, own_place: Path) -> None:
    """The commands on a page of the site succeed, in the order of the page.

    The test executes all commands up to the last one that needs an engine. This includes commands
    without an engine, because later commands need their results.
    """
    shown = [block for block in blocks(page) if block.how == "executed" or block in REAL[page]]
    last = max(place for place, block in enumerate(shown) if block in REAL[page])
    try:
        tried(shown[: last + 1], own_place)
    finally:
        if any("make cluster" in block.text for block in shown):
            subprocess.run(["make", "cluster-stop"], cwd=ROOT, check=True, capture_output=True)


@pytest.fixture(scope="module")
def small(place: Path) -> Path:
    """Return a checkout in which a small app replaces ResNet; all commands then take seconds."""
    tinyapp.instead(place, "resnet-imagenet", IMAGE)
    for name, more in (
        ("cpu-quickstart", {
            "purpose": "quickstart", "resources": {"cpus_per_task": 1, "walltime": "00:05:00"},
        }),
        ("cpu-2node-smoke", {
            "target": "cpu-2node", "launcher": "srun",
            "resources": {"nodes": 2, "cpus_per_task": 1, "walltime": "00:05:00"},
        }),
    ):
        tinyapp.write_recipe(place, name=f"resnet-imagenet/{name}", app="resnet-imagenet",
                             args={"sleep": SECONDS_TO_CANCEL}, **more)
    return place


def of_small(checkout: Path, cache: Path) -> dict[str, str]:
    return {"CLONE": str(checkout), "TRIMARAN_ROOT": str(checkout), "TRIMARAN_CACHE": str(cache)}


@pytest.mark.engine("apptainer")
@pytest.mark.engine("slurm")
@pytest.mark.timeout(280)
@pytest.mark.parametrize("page", SMALL)
def test_the_commands_of_a_page_run_with_a_small_app_on_two_nodes(
    page: str, own_place: Path, small: Path, engine_cache: Path, slurm: Path
) -> None:
    tried(SMALL[page], own_place, **of_small(small, engine_cache),
          SLURM_CONF=str(slurm / "slurm.conf"))
    if page == "tutorials/cluster.md":
        written = yaml.safe_load((own_place.parent / "config/trimaran/site.yaml").read_text())
        assert written["clusters"]["ourcluster"]["partition"] == "main"


@pytest.mark.engine("apptainer")
@pytest.mark.engine("registry")
@pytest.mark.timeout(280)
def test_the_commands_of_an_images_page_run(
    own_place: Path, small: Path, engine_cache: Path, tmp_path: Path
) -> None:
    """The commands of one image's page succeed; the image is first pushed, so it can be pulled.

    The pages of all images have the same commands.
    """
    [page] = [page for page in images.pages(sources.read()) if page.place == images.place(IMAGE)]
    pull, *others = sorted(copied(page.text), key=lambda text: not text.startswith("trimaran pull"))
    assert pull == f"trimaran pull {IMAGE} --registry REGISTRY"
    with running(tmp_path / "harbour") as harbour:
        push = pull.replace("pull", "push")
        shown = [text.replace("REGISTRY", harbour.namespace) for text in (*others, push, pull)]
        tried([Block("small", (), (), text) for text in shown], own_place, **of_small(
            small, engine_cache))
    assert (own_place / f"{IMAGE}.cdx.json").is_file()


def test_pages_with_such_commands_were_found() -> None:
    assert LONG | {"tutorials/cluster.md", "tutorials/air-gapped.md"} <= set(REAL)
    assert {"tutorials/cluster.md", "tutorials/own-image.md", "reference/runs.md"} <= set(SMALL)
