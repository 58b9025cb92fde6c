"""Helpers for the tests of bundles: a recipe with a small data set and an image of 5 kB."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import datasets
from samples import GOOD
from trimaran import hostfacts, paths
from trimaran.engines import store
from trimaran.engines.apptainer import Apptainer
from trimaran.images import content_hash, definition
from trimaran.recipes import library
from trimaran.run.request import Request

NAME = "resnet-imagenet/cpu-smoke"
SIF = b"a SIF" * 1000

Member = tuple[tarfile.TarInfo, bytes]


def request(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """Return a request to run a recipe with a small data set and an image that is already built."""
    monkeypatch.setattr(hostfacts, "root_lacks_capabilities", lambda: False)
    shutil.copytree(
        Path(__file__).with_name("images") / "tiny", checkout / "containers/frameworks/tiny"
    )
    (tmp_path / "sources").mkdir()
    datasets.write(checkout / "recipes/data/small.yaml", datasets.document(tmp_path / "sources"))
    recipe = checkout / f"recipes/{NAME}.yaml"
    recipe.parent.mkdir()
    recipe.write_text(yaml.safe_dump({
        **GOOD, "image": {"name": "tiny", "digest": None},
        "data": {"small": {"format": "webdataset", "samples": datasets.COUNTS}},
    }))
    sif = paths.cache("images", "tiny-0.sif")
    sif.parent.mkdir(parents=True)
    sif.write_bytes(SIF)
    store.save(store.Record(
        name="tiny", engine="apptainer", reference=str(sif),
        digest=f"sha256:{hashlib.sha256(SIF).hexdigest()}",
        content=content_hash.content_of(image()),
        inputs="ab" * 32, built="2026-01-01T00:00:00Z", base_name="base", base_digest="sha256:1",
        size=len(SIF),
    ))
    program = tmp_path / "apptainer"
    program.write_text("#!/bin/sh\necho apptainer version 1.4.5\n")
    program.chmod(0o755)
    return Request(library.load(NAME), Apptainer(str(program)), {"epochs": 2})


def image() -> definition.Image:
    return definition.load("tiny")


def rewrite(
    source: Path, target: Path, change: Callable[[str, Member], Member | None], *, forge: bool
) -> None:
    """Copy a bundle; `change` returns the new content of each member, or None to leave it out.

    If `forge` is true, `SHA256SUMS` gets the hashes of the changed members.
    """
    with tarfile.open(source) as tar:
        folder = tar.getnames()[0].partition("/")[0]
        members = []
        for info in tar.getmembers()[1:]:
            content = tar.extractfile(info)
            assert content is not None
            name = info.name.partition("/")[2]
            if (changed := change(name, (info, content.read()))) is not None:
                members.append((name, changed))
        sums = tar.extractfile(f"{folder}/SHA256SUMS")
        assert sums is not None
        listed = sums.read()
    if forge:
        listed = "".join(
            f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, (_, content) in members
        ).encode()
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        first = tarfile.TarInfo(f"{folder}/SHA256SUMS")
        first.size = len(listed)
        tar.addfile(first, io.BytesIO(listed))
        for _, (info, content) in members:
            info.size = len(content) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(content) if info.isreg() else None)
