"""Read CSV files strictly, because a lost field would cause a wrong label."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trimaran.errors import TrimaranError, UsageError, unreadable

DELIMITERS = (",", ";", "\t")
"""The delimiters that spreadsheets write; the first line of a table determines its delimiter."""

_SHOWN = 200  # maximum number of characters of a line that a message quotes


class Line(NamedTuple):
    """One row of a table.

    Attributes:
        number: number of the line in the file, counted from 1.
        where: file and line, for messages.
        fields: name of the column -> field without blanks at its ends.
    """

    number: int
    where: str
    fields: dict[str, str]


class Table(NamedTuple):
    """A table; `columns` contains the names of all columns that have a name."""

    columns: list[str]
    lines: list[Line]


def read(
    path: Path, needed: Sequence[str], *, hint: str, error: type[TrimaranError] = UsageError
) -> Table:
    """Return the table at `path`, in UTF-8 with or without byte-order mark, without blank lines.

    Args:
        path: the file; its first line contains the names of the columns.
        needed: the required columns.
        hint: the hint for a faulty row.
        error: the class of the errors that are raised.

    Raises:
        TrimaranError: the file cannot be read, lacks a column or repeats one, or a row has more or
            fewer fields than the first line (the message names the line). The error has the class
            `error`.
    """
    text = _text(path, error)
    columns, delimiter = _header(path, text, needed, error)
    twice = [name for name in columns if name and columns.count(name) > 1]
    if twice:
        raise error(f"{path}: the column {twice[0]!r} occurs twice", code="table-invalid",
                    hint="remove or rename one of them")
    found, rows = [], _rows(path, text, delimiter, error)
    next(rows)
    for number, row in rows:
        where = f"{path}:{number}"
        if len(row) != len(columns):
            raise error(f"{where}: has {len(row)} fields, the first line {len(columns)}:"
                        f" {delimiter.join(row)[:_SHOWN]!r}", code="table-invalid", hint=hint)
        pairs = list(zip(columns, row, strict=True))
        unnamed = [value for name, value in pairs if value and not name]
        if unnamed:
            raise error(f"{where}: {unnamed[0][:_SHOWN]!r} is in a column without a name",
                        code="table-invalid", hint=hint)
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
            f"cannot read {path}:{line}: {content[fault.start : fault.start + 1]!r} is not UTF-8",
            code="table-invalid", hint="save it as UTF-8 (in spreadsheets: CSV UTF-8)",
        ) from fault


def _header(
    path: Path, text: str, needed: Sequence[str], error: type[TrimaranError]
) -> tuple[list[str], str]:
    """Return the column names in the first line of `text`, and the delimiter of the table.

    The delimiter is the first one of `DELIMITERS` with which the line contains all `needed`
    columns.
    """
    for delimiter in DELIMITERS:
        _, names = next(_rows(path, text, delimiter, error), (0, []))
        if set(needed) <= set(names):
            return names, delimiter
    _, names = next(_rows(path, text, DELIMITERS[0], error), (0, []))
    lacking = [one for one in needed if one not in names]
    raise error(
        f"{path}: its first line lacks {'the column ' if len(lacking) == 1 else ''}"
        f"{' and '.join(lacking)}; its columns are:"
        f" {', '.join(map(repr, names))[:_SHOWN] or 'none'}",
        code="table-invalid", hint=f"for example: {DELIMITERS[0].join(needed)}",
    )


def _rows(
    path: Path, text: str, delimiter: str, error: type[TrimaranError]
) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank: the number of its first line, and its stripped fields."""
    reader, begin = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True
    ), 1
    try:
        for row in reader:
            if len(row) > 1 or "".join(row).strip():
                yield begin, [field.strip() for field in row]
            begin = reader.line_num + 1
    except csv.Error as fault:
        raise error(f"cannot read {path}:{begin}: {fault}", code="table-invalid",
                    hint="close each quote, and double a quote inside a field") from fault
