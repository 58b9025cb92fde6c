"""CSV files that people write: read strictly, because a field that gets lost is a wrong label."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trimaran.errors import TrimaranError, UsageError, unreadable

DELIMITERS = (",", ";", "\t")
"""What spreadsheets put between fields; the first line tells which one it is."""

_SHOWN = 200  # characters of a line that is quoted


class Line(NamedTuple):
    """One row: `where` is file and line, `fields` are those of the named columns, stripped."""

    number: int
    where: str
    fields: dict[str, str]


class Table(NamedTuple):
    """A whole table; `columns` has the names, without those of columns that have none."""

    columns: list[str]
    lines: list[Line]


def read(
    path: Path, needed: Sequence[str], *, hint: str, error: type[TrimaranError] = UsageError
) -> Table:
    """Return the table at `path`, UTF-8 with or without a byte-order mark; blank lines are nothing.

    Args:
        path: its first line has the names of the columns, and tells what is between fields.
        needed: the columns that it must have.
        hint: what to do about a faulty line.
        error: what is raised.

    Raises:
        TrimaranError: of the kind `error`: the file cannot be read, lacks a column or has one
            twice, or a row has more or fewer fields than the first line; with its line.
    """
    text = _text(path, error)
    columns, delimiter = _header(path, text, needed, error)
    twice = [name for name in columns if name and columns.count(name) > 1]
    if twice:
        raise error(f"{path}: the column {twice[0]!r} is there twice", hint="name each one once")
    found, rows = [], _rows(path, text, delimiter, error)
    next(rows)
    for number, row in rows:
        where = f"{path}:{number}"
        if len(row) != len(columns):
            raise error(f"{where}: has {len(row)} fields, the first line {len(columns)}:"
                        f" {delimiter.join(row)[:_SHOWN]!r}", hint=hint)
        pairs = list(zip(columns, row, strict=True))
        unnamed = [value for name, value in pairs if value and not name]
        if unnamed:
            raise error(f"{where}: {unnamed[0][:_SHOWN]!r} is in a column without a name",
                        hint=hint)
        found.append(Line(number, where, {name: value for name, value in pairs if name}))
    return Table([name for name in columns if name], found)


def _text(path: Path, error: type[TrimaranError]) -> str:
    try:
        content = path.read_bytes()
    except OSError as fault:
        raise unreadable(path, fault, error) from fault
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = content.count(b"\n", 0, fault.start) + 1
        raise error(
            f"cannot read {path}:{line}: {content[fault.start : fault.start + 1]!r} is no UTF-8",
            hint="save it as UTF-8; spreadsheets call that CSV UTF-8",
        ) from fault


def _header(
    path: Path, text: str, needed: Sequence[str], error: type[TrimaranError]
) -> tuple[list[str], str]:
    """Return the names in the first line, and the delimiter by which it has those needed."""
    for delimiter in DELIMITERS:
        _, names = next(_rows(path, text, delimiter, error), (0, []))
        if set(needed) <= set(names):
            return names, delimiter
    _, names = next(_rows(path, text, DELIMITERS[0], error), (0, []))
    lacking = [one for one in needed if one not in names]
    raise error(
        f"{path}: its first line has no {'column ' if len(lacking) == 1 else ''}"
        f"{' and '.join(lacking)}; the columns there are:"
        f" {', '.join(map(repr, names))[:_SHOWN] or 'none'}",
        hint=f"for example: {DELIMITERS[0].join(needed)}",
    )


def _rows(
    path: Path, text: str, delimiter: str, error: type[TrimaranError]
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, stripped, with the line in which each begins."""
    reader, begin = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True
    ), 1
    try:
        for row in reader:
            if len(row) > 1 or "".join(row).strip():
                yield begin, [field.strip() for field in row]
            begin = reader.line_num + 1
    except csv.Error as fault:
        raise error(f"cannot read {path}:{begin}: {fault}",
                    hint="close each quote, and write one inside of a field twice") from fault
