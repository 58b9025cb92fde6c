"""Convert documents of the repository to pages of the site, and adapt their links."""

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
"""Folder of the site for unchanged copies of files of the repository."""

_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\]\()([^()\s]+)(\))")


@dataclass
class Library:
    """The files and folders of the repository that are part of the site.

    Attributes:
        pages: path of a document in the repository -> path of its page in the site.
        folders: path of a folder in the repository -> path of its page in the site.
        taken: files to which pages link; they are copied into the site.
    """

    pages: Mapping[str, str]
    folders: Mapping[str, str]
    taken: set[str] = field(default_factory=set)

    def page(self, document: str) -> str:
        """Return a document of the repository as the text of its page.

        Raises:
            UsageError: A link has no target, or a measured number has no date and source; the
                message has file and line.
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
        """Return the path in the site of a file or folder of the repository.

        A file without a page is added to `taken`, so that it is copied into the site.

        Raises:
            UsageError: The file does not exist, or the folder has no page.
        """
        file = file.rstrip("/")
        if file in self.pages:
            return self.pages[file]
        if file in self.folders:
            return self.folders[file]
        if not (paths.repository() / file).is_file():
            raise UsageError(f"{file}, the target of the link, is neither a file nor a folder with"
                             " a page")
        self.taken.add(file)
        return copied(file)


def copied(file: str) -> str:
    """Return the path of the copy of `file` in the site; a leading dot of the name is removed."""
    return f"{FILES}/{file.lstrip('.')}"


def contents(files: set[str]) -> dict[str, bytes]:
    """Return path in the site -> content, for files of the repository to copy into the site.

    `files` has the paths of the files in the repository.
    """
    root = paths.repository()
    return {copied(name): (root / name).read_bytes() for name in sorted(files)}


def title_of(document: Path) -> str:
    """Return the heading of a document."""
    for line in document.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line.removeprefix("# ").strip()
    raise UsageError(f"{document}:1: the document has no heading")
