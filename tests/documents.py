"""The commands in the documents of the repository that are pages of the site, too."""

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
"""Where the words of Apptainer end, and those for the container begin."""


def scripts(document: str) -> list[str]:
    """Return the blocks of commands, as a shell reads them."""
    text = (ROOT / document).read_text()
    return re.findall(r"^```sh[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(document: str) -> Iterator[list[str]]:
    """Yield the words of each command, that which gives a variable its value, too."""
    for script in scripts(document):
        for line in re.split(r"\n|&&", script.replace("\\\n", " ")):
            words = shlex.split(re.sub(r"^\s*\w+=\$\((.*)\)\s*$", r"\1", line), comments=True)
            if words:
                yield words


def inside(words: list[str]) -> list[str] | None:
    """Return what an image is to run; None where no image is run."""
    at = next((words.index(image) for image in IMAGES if image in words), None)
    return None if at is None else words[at + 1:]


def mentions(document: str) -> list[str]:
    """Return what follows `trimaran` in the prose, where a command and not an option does."""
    return re.findall(r"`trimaran ([a-z][^`]*)`", (ROOT / document).read_text())


@functools.cache
def made() -> dict[str, str]:
    """Return the images that a document has its reader define, each with the block that does."""
    return {
        name: script for document in DOCUMENTS for script in scripts(document)
        for name in re.findall(r"^cd containers/\w+ && mkdir (\S+)$", script, re.MULTILINE)
    }
