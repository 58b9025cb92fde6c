"""Test the warning of a run on a host without tcmalloc."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.engines import host
from trimaran.engines.host import Host
from trimaran.recipes.library import RecipeFile
from trimaran.reporting import Silent
from trimaran.run import pipeline
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
