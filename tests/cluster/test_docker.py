"""The script for Docker: its golden text, shellcheck, and unsupported recipes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from refusals import refused
from trimaran.cluster import docker
from trimaran.engines.apptainer import Apptainer
from trimaran.recipes import library
from trimaran.run.pipeline import Request
from trimaran.site_file import Cluster, Site

GOLDEN = Path(__file__).parents[1] / "golden/docker.sh"
TWO_NODES, ONE_NODE = "resnet-imagenet/cpu-2node-smoke", "resnet-imagenet/gtx1080ti-x4-scaling@4"


def rendered(recipe: str, **more: Any) -> str:
    """Return the script for a recipe, with an example registry."""
    file = library.load(recipe)
    request = Request(
        recipe=file, engine=Apptainer("apptainer"), changes=more.pop("changes", {}),
        folders={name: Path("/project/data") / name for name in file.recipe.data},
        out=Path("/scratch/runs/20261124-120000"),
        site=Site(registry="registry.example.org/hpc"), queued=True,
    )
    return docker.render(replace(request, **more), Cluster())


def test_the_script_is_the_golden_file() -> None:
    assert rendered(ONE_NODE) == GOLDEN.read_text(), "run: make generate"


def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(
        ["shellcheck", "--shell=sh", str(GOLDEN)], capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("recipe", "more", "code", "named"),
    [
        (TWO_NODES, {}, "recipe-unsupported", TWO_NODES),
        (ONE_NODE, {"folders": {"imagenet-2012": Path("/a,b")}}, "mount-unsupported", "/a,b"),
        (ONE_NODE, {"site": Site()}, "registry-missing", "--form"),
    ],
)
def test_a_recipe_that_docker_cannot_run_is_refused(
    recipe: str, more: dict[str, Any], code: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIMARAN_REGISTRY", raising=False)
    with refused(code, named):
        rendered(recipe, **more)


if __name__ == "__main__":
    GOLDEN.write_text(rendered(ONE_NODE))
