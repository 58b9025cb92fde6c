"""Documents of the repository as pages of the site: their links are turned to what is there."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from generator import markdown, undated
from trimaran import paths
from trimaran.errors import UsageError

FILES = "files"
"""Folder of the site that has files of the repository as they are."""

_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\]\()([^()\s]+)(\))")


@dataclass
class Library:
    """What of the repository the site has.

    Attributes:
        pages: documents that are pages: place in the repository -> place in the site.
        folders: folders whose content has a page: the same.
        taken: files that pages have linked, which the site has to have.
    """

    pages: Mapping[str, str]
    folders: Mapping[str, str]
    taken: set[str] = field(default_factory=set)

    def page(self, document: str) -> str:
        """Return a document of the repository as the text of its page.

        Raises:
            UsageError: it links to what is not there, or has a measured number without date and
                source; the message has file and line.
        """
        own, out, fenced = self.pages[document], [], False
        text = (paths.repository() / document).read_text(encoding="utf-8")
        undated.refuse(text, document)
        for number, line in enumerate(text.splitlines(), start=1):
            if line.startswith("```"):
                fenced = not fenced
            if fenced or line.startswith(("    ", "\t")):
                out.append(line)
            else:
                turned = functools.partial(self._turned, document, own, number)
                out.append(_LINK.sub(turned, line))
        return "\n".join(out) + "\n"

    def _turned(self, document: str, own: str, line: int, found: re.Match[str]) -> str:
        target = found[2]
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, hash_, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(document), path))
        try:
            to = self.place(place)
        except UsageError as error:
            raise UsageError(f"{paths.repository() / document}:{line}: {error.message}") from None
        return f"{found[1]}{markdown.link(own, to + hash_ + anchor)}{found[3]}"

    def place(self, file: str) -> str:
        """Return where the site has a file or a folder of the repository; it has it from now on.

        Raises:
            UsageError: there is no such file, or a folder that has no page.
        """
        file = file.rstrip("/")
        if file in self.pages:
            return self.pages[file]
        if file in self.folders:
            return self.folders[file]
        if not (paths.repository() / file).is_file():
            raise UsageError(f"a link to {file}, which is no file, and no folder with a page")
        self.taken.add(file)
        return copied(file)


def copied(file: str) -> str:
    """Return where the site has a file of the repository; no folder there is a hidden one."""
    return f"{FILES}/{file.lstrip('.')}"


def contents(files: set[str]) -> dict[str, bytes]:
    """Return the files of the repository that pages have linked, by their places in the site."""
    root = paths.repository()
    return {copied(name): (root / name).read_bytes() for name in sorted(files)}


def title_of(document: Path) -> str:
    """Return the heading of a document."""
    for line in document.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line.removeprefix("# ").strip()
    raise UsageError(f"{document}:1: has no heading")
