"""Extract the commands from the Markdown documents of the repository."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator

from trimaran import paths

ROOT = paths.repository()
DOCUMENTS = sorted(
    str(path.relative_to(ROOT)) for path in
    [*ROOT.glob("*.md"), *ROOT.glob("apps/**/README.md"), *ROOT.glob("containers/*.md"),
     ROOT / "recipes/README.md", ROOT / "benchmarks/README.md"]
)
IMAGES = ("IMAGE.sif", "$SIF")
"""Possible names of an image in a command; the command inside the container follows the name."""


def scripts(document: str) -> list[str]:
    """Return the blocks of shell commands in a document."""
    text = (ROOT / document).read_text()
    return re.findall(r"^```sh[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(document: str) -> Iterator[list[str]]:
    """Yield the words of each command; of an assignment `NAME=$(COMMAND)`, only COMMAND counts."""
    for script in scripts(document):
        for line in re.split(r"\n|&&", script.replace("\\\n", " ")):
            words = shlex.split(re.sub(r"^\s*\w+=\$\((.*)\)\s*$", r"\1", line), comments=True)
            if words:
                yield words


def inside(words: list[str]) -> list[str] | None:
    """Return the part of the command `words` that runs inside a container.

    Return None if `words` contains no image, that is, none of the names in `IMAGES`.
    """
    at = next((words.index(image) for image in IMAGES if image in words), None)
    return None if at is None else words[at + 1:]


def mentions(document: str) -> list[str]:
    """Return the arguments of each `trimaran COMMAND` in the text outside of code blocks."""
    return re.findall(r"`trimaran ([a-z][^`]*)`", (ROOT / document).read_text())


@functools.cache
def made() -> dict[str, str]:
    """Return the images that documents tell their readers to define.

    The result maps the name of an image to the block of shell commands that creates it.
    """
    return {
        name: script for document in DOCUMENTS for script in scripts(document)
        for name in re.findall(r"^cd containers/\w+ && mkdir (\S+)$", script, re.MULTILINE)
    }
