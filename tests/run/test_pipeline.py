"""Test the preparation of a run: the record of its image, and warnings."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from trimaran.architectures import Architecture
from trimaran.engines import Engine, host
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.host import Host
from trimaran.recipes.library import RecipeFile
from trimaran.reporting import Silent
from trimaran.run import inputs, pipeline
from trimaran.run.image import prepare_image
from trimaran.run.request import Request


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.usefixtures("tiny_image")
def test_a_run_on_the_host_says_what_it_costs_to_be_without_tcmalloc(
    recipe: RecipeFile, own_place: Path, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    monkeypatch.setattr(host, "tcmalloc", lambda: Path("/usr/lib/x.so") if here else None)
    monkeypatch.setattr(host, "PYTHON", "3.11")
    planned = pipeline.BuiltImage("x", "host", "/venv", None, "0" * 64, 0)
    monkeypatch.setattr(Host, "build", lambda *_, **__: planned)
    told = Silent()
    prepare_image(Request(recipe, Host(), {}), told)
    said = "\n".join(told.warnings)
    assert ("3.0 img/s, with it 3.6" in said) is not here
    assert ("libtcmalloc-minimal4" in said) is not here


@pytest.mark.parametrize(("machine", "architecture", "engine", "queued", "emulated"), [
    ("x86_64", "arm64", Apptainer("apptainer"), False, True),
    ("x86_64", "amd64", Apptainer("apptainer"), False, False),
    ("ppc64le", "amd64", Apptainer("apptainer"), False, True),
    ("x86_64", "arm64", Apptainer("apptainer"), True, False),  # a node of the job runs it
    ("ppc64le", "amd64", Host(), False, False),  # without an image
])
@pytest.mark.usefixtures("tiny_image")
def test_a_run_by_an_emulator_is_recorded(
    recipe: RecipeFile, monkeypatch: pytest.MonkeyPatch, machine: str, architecture: Architecture,
    engine: Engine, queued: bool, emulated: bool,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(inputs, "prepare", lambda *_, **__: [])
    built = pipeline.BuiltImage("tiny", engine.name, "tiny.sif", "sha256:1", "0" * 64, 1)
    monkeypatch.setattr(pipeline, "prepare_image", lambda *_: built)
    request = Request(recipe, engine, {}, queued=queued, architecture=architecture)
    assert pipeline.prepare(request, 4, Silent()).used.emulated is emulated
