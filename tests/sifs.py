"""Define a fake Apptainer engine, whose SIF files have 3000 bytes."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trimaran import paths
from trimaran.engines import BuiltImage, image_contents
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.build_steps import Job
from trimaran.images import definition, render, wheelhouse
from trimaran.images.bases import Base

TINY = definition.read(Path(__file__).with_name("images") / "tiny" / "image.yaml")
GOOD = b"SIF" * 1000
DIGEST = f"sha256:{hashlib.sha256(GOOD).hexdigest()}"


def engine(monkeypatch: pytest.MonkeyPatch) -> Apptainer:
    """Return the fake engine."""
    @contextmanager
    def made(job: Job, reporter: Any) -> Any:
        folder = paths.cache("images", "part-0")
        folder.mkdir(parents=True)
        sif = folder / "image.sif"
        sif.write_bytes(GOOD)
        yield BuiltImage("tiny", "apptainer", str(sif), DIGEST, job.inputs, len(GOOD))
        folder.rmdir()

    found = Apptainer("/opt/apptainer/bin/apptainer")
    base = Base("localimage", "/base.sif", "debian", "sha256:1")
    monkeypatch.setattr("trimaran.hostfacts.root_lacks_capabilities", lambda: False)
    monkeypatch.setattr(render, "check", lambda image: None)
    monkeypatch.setattr(wheelhouse, "fetch", lambda *words, **more: [])
    monkeypatch.setattr(found, "_base", lambda *words: base)
    monkeypatch.setattr(found, "_made", made)
    monkeypatch.setattr(found, "test", lambda *words: None)
    monkeypatch.setattr(image_contents, "record", lambda *words: None)
    return found
