"""The script for Docker: its golden text, shellcheck, and unsupported recipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from goldens import FOLDER, ON_DOCKER, docker_script
from refusals import refused
from trimaran.site_file import Site

TWO_NODES = "resnet-imagenet/cpu-2node-smoke"
GOLDEN = FOLDER / "docker.sh"


def test_the_script_is_the_golden_file() -> None:
    assert docker_script(ON_DOCKER) == GOLDEN.read_text(), "run: make generate"


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
        (ON_DOCKER, {"folders": {"imagenet-2012": Path("/a,b")}}, "mount-unsupported", "/a,b"),
        (ON_DOCKER, {"site": Site()}, "registry-missing", "--form"),
    ],
)
def test_a_recipe_that_docker_cannot_run_is_refused(
    recipe: str, more: dict[str, Any], code: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIMARAN_REGISTRY", raising=False)
    with refused(code, named):
        docker_script(recipe, **more)
