"""Run the script that `--form docker` prints, with Podman, which accepts Docker's command line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import tinyapp

pytestmark = [pytest.mark.engine("apptainer"), pytest.mark.engine("podman"),
              pytest.mark.timeout(280)]

REGISTRY = "registry.example.org/hpc"


def test_the_script_trains_in_the_image_of_the_registry(
    place: Path, engine_cache: Path, tmp_path: Path
) -> None:
    env = tinyapp.environment(place, engine_cache, TRIMARAN_REGISTRY=REGISTRY)
    built = tinyapp.call(["build", tinyapp.APP_IMAGE, "--engine", "podman"], env)
    assert built.returncode == 0, built.stderr
    [record] = [
        content for file in (engine_cache / "images").glob("*.json")
        if (content := json.loads(file.read_text()))["engine"] == "podman"
        and content["name"] == tinyapp.APP_IMAGE
    ]
    out = tmp_path / "run"
    printed = tinyapp.call(
        ["submit", tinyapp.RECIPE, "--dry-run", "--form", "docker", "--out", str(out)], env
    )
    assert printed.returncode == 0, printed.stderr
    [address] = [word for word in printed.stdout.split() if word.startswith(f"{REGISTRY}/")]
    subprocess.run(["podman", "tag", record["reference"], address], check=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").write_text('#!/bin/sh\nexec podman "$@"\n')
    (programs / "docker").chmod(0o755)
    try:
        done = subprocess.run(
            ["sh", "-c", printed.stdout], capture_output=True, text=True, check=False,
            # Without root, Podman maps the user's number to another one unless it is told not to.
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}",
                 "PODMAN_USERNS": "keep-id"},
        )
    finally:
        subprocess.run(["podman", "untag", address], check=True)
    assert done.returncode == 0, done.stderr
    assert (out / "result.json").is_file()
    assert not (out / "run.json").exists()
