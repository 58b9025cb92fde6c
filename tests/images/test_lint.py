"""Run linters on every definition (Apptainer's own check is in integration/)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from trimaran import paths
from trimaran.images import definition

ROOT = paths.repository()
BIN = Path(sys.executable).parent
TINY = Path(__file__).parents[1] / "images/tiny"
IMAGES = [
    *(definition.load(name) for name in definition.names()), definition.read(TINY / "image.yaml")
]
SCRIPTS = sorted((ROOT / "containers/build").glob("*.sh"))


def hadolint(*dockerfiles: Path) -> str:
    """Return the findings of hadolint."""
    config = ROOT / ".hadolint.yaml"
    return _findings("hadolint", "--no-color", f"--config={config}", *map(str, dockerfiles))


def shellcheck(*scripts: Path) -> str:
    """Return the findings of shellcheck.

    The scripts source each other by paths that exist only during a build. Therefore each script is
    checked alone (SC1090, SC1091), without variables that other scripts set (SC2154: `set -u` finds
    these errors in the build).
    """
    return _findings("shellcheck", "--color=never", "--shell=sh",
                     "--exclude=SC1090,SC1091,SC2154", *map(str, scripts))


def _findings(program: str, *arguments: str) -> str:
    done = subprocess.run([str(BIN / program), *arguments], capture_output=True, text=True,
                          check=False)
    assert not done.stderr
    assert (done.returncode == 0) == (not done.stdout)
    return done.stdout


def test_dockerfiles_are_clean() -> None:
    assert hadolint(*(image.folder / "Dockerfile" for image in IMAGES)) == ""


def test_build_scripts_are_clean() -> None:
    assert SCRIPTS
    assert shellcheck(*SCRIPTS) == ""


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_licences_are_an_spdx_expression(image: definition.Image) -> None:
    assert canonicalize_license_expression(image.licenses) == image.licenses


def test_faults_in_a_dockerfile_are_found(tmp_path: Path) -> None:
    faults = {
        "FROM debian": "DL3006",  # no tag
        "FROM ghcr.io/owner/debian:12": "DL3026",  # not the registry of the bases
        "RUN apt-get install --yes gcc": "DL3008",  # no version
        "RUN cat $1": "SC2086",  # what the shell makes of a space in it
        'LABEL maintainer="none"': "DL3050",  # a label of its own
    }
    file = tmp_path / "Dockerfile"
    file.write_text("\n".join([(TINY / "Dockerfile").read_text(), *faults, ""]))
    found = hadolint(file)
    assert [rule for rule in faults.values() if rule not in found] == []


def test_a_fault_in_a_script_and_in_a_licence_is_found(tmp_path: Path) -> None:
    (tmp_path / "build.sh").write_text("cp $1 /opt\n")
    assert "SC2086" in shellcheck(tmp_path / "build.sh")
    with pytest.raises(InvalidLicenseExpression):
        canonicalize_license_expression("BSD AND Apache-2.0")
