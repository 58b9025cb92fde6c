"""`trimaran doctor`: a missing program gets a hint, and no failure ends the checks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trimaran.engines import Condition, host
from trimaran.inventory import doctor


def found(name: str) -> Condition:
    return doctor.examine()[name]


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Put only these programs, given as name and script, on PATH."""
    folder.mkdir(exist_ok=True)
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_missing_tcmalloc_is_told_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PYTHON", "3.11")
    monkeypatch.setattr(host, "TCMALLOC", "no-such-library.so")
    check = found("host engine")
    assert check.status == "warn"
    assert "tcmalloc" in check.detail
    assert "libtcmalloc-minimal4" in check.hint


@pytest.mark.parametrize(
    ("here", "status"),
    [([], "none"), (["docker"], "none"), (["podman"], "warn"), (["buildah"], "warn"),
     (["podman", "buildah"], "ok")],
)
def test_only_engines_that_trimaran_has_are_praised(
    here: list[str], status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path / "bin", monkeypatch, **dict.fromkeys(here, ":"))
    check = found("podman")
    assert check.status == status
    assert not any("docker" in check.detail for check in doctor.examine().values())


def test_an_apptainer_that_does_not_work_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path / "bin", monkeypatch, apptainer="echo no good >&2; exit 3")
    check = found("apptainer")
    assert check.status == "fail"
    assert "no good" in check.detail
    assert str(tmp_path / "bin/apptainer") in check.hint
    (tmp_path / "bin/apptainer").write_bytes(os.urandom(64))
    assert found("apptainer").status == "fail"


def test_nothing_on_path_ends_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path / "empty", monkeypatch)
    assert len(doctor.examine()) == 12
