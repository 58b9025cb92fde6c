"""Read the documents of a text corpus from plain files, JSON lines or a dictionary of dictd."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, NamedTuple, cast

from shards.kinds import DocumentRule
from trimaran.data.packing import dictd, shares
from trimaran.data.packing.listing import is_utf8
from trimaran.data.packing.shares import Shares
from trimaran.errors import RunError, UsageError, unreadable
from trimaran.parsing import Malformed, parse_json

Encoding = Literal["utf-8", "windows-1252"]
PLAIN, LINES = (".txt", ".md"), (".jsonl",)
ENDINGS = (*PLAIN, *LINES)
"""File name endings of the files that are read; each may be followed by `.gz`."""


class Document(NamedTuple):
    """A document of a text corpus, or the reason why the document cannot be used.

    Attributes:
        split: the split of the document; "" if it cannot be used.
        place: the file that contains the document, and the position in it, for messages.
        content: the text as UTF-8.
        fault: the reason why the document cannot be used; None if it can be used.
    """

    split: str
    place: str
    content: bytes
    fault: str | None = None


@dataclass(frozen=True)
class Text:
    """The files of a text corpus, and how they are divided into documents and splits.

    Attributes:
        root: folder of the files.
        files: paths of the files below `root`, sorted.
        rule: how the files are divided into documents.
        held_out: for each split, a range of 0..99. A document belongs to the split whose range
            contains the hash of the document modulo 100. If `held_out` is None, the folder of a
            document is its split.
        encoding: encoding of the files.
        contents: name of a file -> SHA-256, if a contract contains it.
        ignored: paths of other files below `root`, which are not read.
    """

    root: Path
    files: list[str]
    rule: DocumentRule
    held_out: Shares | None = None
    encoding: Encoding = "utf-8"
    contents: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    @property
    def held_out_rule(self) -> str:
        """A text that describes how the documents are assigned to the splits."""
        if self.held_out is None:
            return "folders"
        ranges = (f"{name} {first} to {end - 1}" for name, (first, end) in self.held_out.items())
        return f"SHA-256 of the document modulo 100: {', '.join(ranges)}"

    @property
    def stamps(self) -> list[str]:
        """One text for each file that is read: its name, size in bytes and modification time in ns.

        The texts are stored to recognize changed files.
        """
        paths = [self.root / name for name in self.files]
        if self.rule == "dictd":
            paths += [dictd.dictionary(path) for path in paths]
        facts = [(path.relative_to(self.root), path.stat()) for path in paths]
        return [f"{name} {one.st_size} {one.st_mtime_ns}" for name, one in facts]

    @property
    def splits(self) -> list[str]:
        """The names of the splits; each split must have at least one document."""
        if self.held_out is not None:
            return list(self.held_out)
        return list(dict.fromkeys(["train", *(name.partition("/")[0] for name in self.files)]))

    def documents(self) -> Iterator[Document]:
        """Yield the documents in the order of the files and in their order in each file.

        Raises:
            RunError: a file cannot be read, or a compressed file is damaged.
        """
        for name in self.files:
            path = self.root / name
            if self.rule == "dictd":
                path = dictd.dictionary(path)
            with _readable(path):
                for start, found in self._of_file(name):
                    yield self._checked(name, f"{path}: the document at byte {start:,}",
                                        start, found)

    def _of_file(self, name: str) -> Iterator[tuple[int, bytes]]:
        """Yield the position in bytes and the content of each document in the file `name`.

        In a file of JSON lines, the content is the JSON text of a line.
        """
        path = self.root / name
        if self.rule == "dictd":
            yield from dictd.entries(path)
            return
        with _opened(path) as file:
            if is_json_lines(name) or self.rule == "line":
                yield from _lines(file)
            elif self.rule == "blank-lines":
                yield from _blocks(file)
            else:
                yield 0, file.read()

    def _checked(self, name: str, place: str, start: int, found: bytes) -> Document:
        """Return the document; if it is empty or not text, the returned document has a `fault`.

        Args:
            name: name of the file with the document; for a dictionary in the dictd format, name of
                its index file.
            place: the file that contains the document, and the position in it, for messages.
            start: position of the document in that file, in bytes.
            found: the bytes of the document, or of the JSON line that contains it.
        """
        try:
            text = found.decode(self.encoding)
            if is_json_lines(name):
                text = _field(text)
            content = text.encode()
        except UnicodeDecodeError as error:
            return Document("", place, b"", f"is not {self.encoding}: it has the byte"
                            f" 0x{found[error.start]:02x} at byte {start + error.start:,}")
        except Malformed as error:
            return Document("", place, b"", f"is not a JSON object with a text: {error}")
        if not text.strip():
            return Document("", place, b"", "is empty")
        split = (name.partition("/")[0] if self.held_out is None
                 else shares.split_of(content, self.held_out))
        return Document(split, place, content)


def is_json_lines(name: str) -> bool:
    """Return whether a file has a JSON object in each line, judged by its name."""
    return name.removesuffix(".gz").endswith(LINES)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Run the `with` block, which reads the file at `path`; convert its errors into RunError."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise RunError(f"{path} is damaged: {error}", code="data-damaged",
                       hint="compress or download it again") from error
    except OSError as error:
        raise unreadable(error.filename or path, error, RunError) from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix == ".gz":
        with gzip.open(path) as unpacked:
            yield cast(IO[bytes], unpacked)
    else:
        with path.open("rb") as file:
            yield file


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each line that is not blank: its position in the file in bytes, and its content."""
    start = 0
    for line in file:
        if line.strip():
            yield start, line.rstrip(b"\r\n")
        start += len(line)


def _blocks(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each block of lines between blank lines: its position in bytes, and its content."""
    start = first = 0
    block: list[bytes] = []
    for line in file:
        if line.strip():
            first = first if block else start
            block.append(line)
        elif block:
            yield first, b"".join(block)
            block = []
        start += len(line)
    if block:
        yield first, b"".join(block)


def _field(line: str) -> str:
    """Return the field `text` of the JSON object `line`; raise Malformed if it is not a text."""
    found = parse_json(line)
    text = found.get("text") if isinstance(found, dict) else None
    if not isinstance(text, str):
        raise Malformed("it has no field 'text' with a text")
    return text


def listed(source: Path, rule: DocumentRule, held_out: int | None) -> Text:
    """List the files of a text corpus that the user wants to pack.

    Args:
        source: a file, or a folder. If `source` contains a folder `train`, each folder in `source`
            is a split.
        rule: how the files are divided into documents.
        held_out: percentage of the documents that go into the split `val`; None for 1 percent.

    Raises:
        UsageError: the source does not exist or has no files of text, a name is not UTF-8, a folder
            has a name that a split cannot have, or `held_out` is given although folders are the
            splits.
        OSError: a folder cannot be read.
    """
    if not source.exists():
        raise UsageError(f"{source} does not exist", code="file-missing",
                         hint="name a file of text, or a folder with such files")
    root, names = (
        (source, _relative(source)) if source.is_dir() else (source.parent, [source.name])
    )
    in_folders = (source / "train").is_dir()
    chosen = [name for name in names if is_text(name, rule) and ("/" in name or not in_folders)
              and not _is_special(root / name)]
    if not chosen:
        ends = ".index" if rule == "dictd" else f"{', '.join(ENDINGS)}, each also with .gz"
        raise UsageError(f"{source} contains no file of text", code="layout-invalid",
                         hint=f"the names of such files end with {ends}")
    beside = {f"{name.removesuffix('.index')}{end}" for name in chosen for end in dictd.ENDINGS}
    ignored = sorted(set(names) - set(chosen) - (beside if rule == "dictd" else set()))
    for name in chosen:
        if not is_utf8(name):
            raise UsageError(f"{root} contains the name {name!r}, which is not UTF-8",
                             code="name-invalid", hint="rename the file or the folder")
    if not in_folders:
        percent = 1 if held_out is None else held_out
        held = {"train": (0, 100 - percent), "val": (100 - percent, 100)}
        return Text(root, chosen, rule, held, ignored=ignored)
    if held_out is not None:
        raise UsageError(f"--held-out: the splits of {source} are its folders",
                         code="arguments-conflict", hint="leave it out, or pack one of the folders")
    for name in sorted({name.partition("/")[0] for name in chosen}):
        if re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) is None:
            raise UsageError(f"{source / name}: invalid name of a split", code="name-invalid",
                             hint="use lower-case letters, digits and '-'")
    return Text(root, chosen, rule, ignored=ignored)


def is_text(name: str, rule: DocumentRule) -> bool:
    """Return whether the file `name` contains documents, judged by its ending."""
    if rule == "dictd":
        return name.endswith(".index")
    return name.removesuffix(".gz").endswith(ENDINGS)


def _is_special(path: Path) -> bool:
    """Return whether a path exists and is not a plain file, for example a pipe."""
    return path.exists() and not path.is_file()


def _relative(root: Path) -> list[str]:
    """Return the sorted paths of the files below `root` that are not hidden.

    A link to a folder, which is not followed, counts as a file whose name ends with `/`.
    """
    found = []
    for place, folders, names in os.walk(root, onerror=_raise):
        above = Path(place).relative_to(root)
        links = {name for name in folders if Path(place, name).is_symlink()}
        found += [(above / name).as_posix() for name in names if not name.startswith(".")]
        found += [f"{(above / name).as_posix()}/" for name in links]
        folders[:] = [name for name in folders if not name.startswith(".")]
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error
