"""Parse every definition with Apptainer, without a base image and without a build."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trimaran.engines import apptainer
from trimaran.images import definition

pytestmark = pytest.mark.engine("apptainer")

TINY = definition.read(Path(__file__).parents[1] / "images/tiny/image.yaml")
IMAGES = [*(definition.load(name) for name in definition.names()), TINY]


def answer(file: Path, folder: Path) -> str:
    """Return the error of Apptainer for a build of `file` on a base that does not exist.

    Apptainer parses the whole definition before it looks for the base.
    """
    done = subprocess.run(
        [
            str(apptainer.program()), "build", "--build-arg", "BOOTSTRAP=localimage",
            "--build-arg", f"BASE={folder}/absent.sif", str(folder / "never.sif"), file.name,
        ],
        cwd=file.parent, capture_output=True, text=True, check=False,
    )
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_apptainer_reads_the_definition(image: definition.Image, tmp_path: Path) -> None:
    said = answer(image.folder / "image.def", tmp_path)
    assert f"failed to retrieve path for {tmp_path}/absent.sif" in said
    assert "parsing" not in said


@pytest.mark.parametrize(
    ("good", "bad", "fault"),
    [
        ("%post\n", "%psot\n", "psot"),
        ("CREATED=unknown\n", "MADE=unknown\n", "CREATED"),
        ("BootStrap: {{ BOOTSTRAP }}", "Boot: {{ BOOTSTRAP }}", "boot\n"),
    ],
)
def test_a_fault_is_found(good: str, bad: str, fault: str, tmp_path: Path) -> None:
    text = (definition.load("torch-cpu").folder / "image.def").read_text()
    assert good in text
    (tmp_path / "image.def").write_text(text.replace(good, bad))
    said = answer(tmp_path / "image.def", tmp_path)
    assert fault in said
    assert "absent.sif" not in said
