"""Compare the options for Apptainer and buildah in documents with the help of these programs."""

from __future__ import annotations

import re
import subprocess

import pytest

from documents import DOCUMENTS, IMAGES, commands
from trimaran.engines.apptainer import program

WITH_MORE = ("key", "overlay", "registry")  # the next word is the verb
SHOWN = [words for document in DOCUMENTS for words in commands(document)]


def lacking(engine: str, words: list[str]) -> list[str]:
    """Return the options in `words` that the help of the command does not contain."""
    verb = words[1:3] if words[1] in WITH_MORE else words[1:2]
    done = subprocess.run([engine, *verb, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{verb}: {done.stderr}"
    assert f"{words[0]} {' '.join(verb)} " in done.stdout, "the help of another command"
    end = next((words.index(image) for image in IMAGES if image in words), None)
    own = [word for word in words[:end] if word.startswith("--")]
    return [word for word in own if not re.search(rf"{re.escape(word)}\b", done.stdout)]


@pytest.mark.engine("apptainer")
@pytest.mark.parametrize("words", [one for one in SHOWN if one[0] == "apptainer"], ids=" ".join)
def test_apptainer_takes_it(words: list[str]) -> None:
    assert lacking(str(program()), words) == []


@pytest.mark.engine("podman")
@pytest.mark.parametrize("words", [one for one in SHOWN if one[0] == "buildah"], ids=" ".join)
def test_buildah_takes_it(words: list[str]) -> None:
    assert lacking("buildah", words) == []


@pytest.mark.engine("apptainer")
def test_a_wrong_option_and_a_wrong_command_are_found() -> None:
    words = ["apptainer", "exec", "--overlays", "overlay", "IMAGE.sif", "sh", "--not-apptainers"]
    assert lacking(str(program()), words) == ["--overlays"]
    with pytest.raises(AssertionError):
        lacking(str(program()), ["apptainer", "overlay", "crate", "--size", "1"])
