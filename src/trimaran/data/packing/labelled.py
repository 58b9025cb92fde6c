"""Images with any number of classes each, which a CSV file names.

    file,classes
    train/0001.png,Cardiomegaly|Effusion
    train/0002.png,

`file` is a path below the image folder that begins with the name of a split; `classes` are
joined by `|`, and none is a statement, too. With a third column, `patient`, a patient whose images
are in two splits is refused: a network could tell the patient instead of the disease.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trimaran.data.kinds import Kind
from trimaran.data.packing.listing import SHOWN, Listing, Sample, fingerprint, is_image
from trimaran.errors import UsageError, nearest, way_out
from trimaran.reporting import Reporter

COLUMNS = ("file", "classes")
PATIENT = "patient"
SEPARATOR = "|"
_ROWS = 1 << 16  # between two advances of the bar


def classes_of(text: str) -> list[str]:
    """Return what `--classes` says: `Mass|Edema`.

    Raises:
        UsageError: a name is empty, or there twice.
    """
    names = text.split(SEPARATOR)
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f"--classes: {text!r} has an empty name, or one twice",
                         hint="for example: 'Mass|Edema'")
    return names


class Row(NamedTuple):
    """One line of the table; `patient` is empty where it has no such column."""

    line: int
    classes: list[str]
    patient: str


def listing(
    root: Path, table: Path, reporter: Reporter, *, classes: Sequence[str] | None = None,
    skip_missing: bool = False,
) -> Listing:
    """List the images below `root` that the CSV file `table` names, sorted by name.

    `classes` are those that there are, in this order (None: those that the table names, sorted).
    With `skip_missing` images that are not there are left out, and their number is said.

    Raises:
        UsageError: a row is faulty, names a file twice or an unknown class, with its line; images
            are missing; a patient is in two splits.
    """
    rows = _rows(table)
    named = sorted({name for row in rows.values() for name in row.classes})
    number = {name: at for at, name in enumerate(named if classes is None else classes)}
    _refuse_unknown(table, rows, number)
    _refuse_shared_patients(table, rows)
    splits: dict[str, list[Sample]] = {}
    stamps, missing = [], []
    with reporter.bar(f"listing {root}", len(rows), unit="images") as advance:
        for at, (name, row) in enumerate(sorted(rows.items()), 1):
            size, changed = _facts(f"{table}:{row.line}", root / name)
            if size is None:
                missing.append(f"{table}:{row.line}: {name}")
            else:
                labels = tuple(sorted({number[one] for one in row.classes}))
                splits.setdefault(_split(name), []).append(Sample(name, labels, name, 0, size))
                stamps.append(f"{name}:{labels}:{size}:{changed}")
            if at % _ROWS == 0 or at == len(rows):
                advance((at - 1) % _ROWS + 1)
    if missing and not (skip_missing and splits):
        raise _lacking(root, missing, len(rows))
    if missing:
        reporter.warn(f"{len(missing):,} of {len(rows):,} images are not there and are left out")
    _warn_of_others(root, rows, splits, reporter)
    return Listing(root, list(number), splits, fingerprint(stamps), kind=Kind(labels="multi"))


def _split(name: str) -> str:
    return name.partition("/")[0]


def _facts(where: str, path: Path) -> tuple[int | None, int]:
    """Return size and time of a file; None: it is not there."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None, 0
    except OSError as error:
        raise UsageError(f"{where}: {path}: {error.strerror}", hint=way_out(error)) from error
    return facts.st_size, facts.st_mtime_ns


def _lacking(root: Path, missing: list[str], total: int) -> UsageError:
    more = [f"and {len(missing) - SHOWN:,} more"] if len(missing) > SHOWN else []
    return UsageError(
        "\n".join([f"{root} lacks {len(missing):,} of {total:,} images:", *missing[:SHOWN], *more]),
        hint="the paths in the table begin with the split: train/0001.png; --skip-missing goes on"
        " without what is not there",
    )


def _refuse_unknown(table: Path, rows: Mapping[str, Row], known: Collection[str]) -> None:
    for row in sorted(rows.values()):
        for name in row.classes:
            if name not in known:
                raise UsageError(f"{table}:{row.line}: unknown class {name!r}",
                                 hint=nearest(name, known))


def _refuse_shared_patients(table: Path, rows: Mapping[str, Row]) -> None:
    first: dict[str, str] = {}
    for name, row in sorted(rows.items(), key=lambda one: one[1].line):
        before = first.setdefault(row.patient, name)
        if row.patient and _split(before) != _split(name):
            raise UsageError(
                f"{table}:{row.line}: the patient {row.patient!r} is in two splits: {name}, and"
                f" {before} in line {rows[before].line}",
                hint="all images of a patient belong into one split",
            )


def _warn_of_others(
    root: Path, rows: Collection[str], splits: Iterable[str], reporter: Reporter
) -> None:
    others = [
        name for split in splits for path in sorted((root / split).rglob("*"))
        if is_image(path.name) and (name := str(path.relative_to(root))) not in rows
    ]
    if others:
        reporter.warn(
            f"{root}: {len(others):,} images are left out, because the table does not name them;"
            f" the first is {others[0]}"
        )


def _rows(table: Path) -> dict[str, Row]:
    """Return file -> what the table says of it."""
    rows: dict[str, Row] = {}
    try:
        with table.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            if not set(COLUMNS) <= set(reader.fieldnames or ()):
                raise UsageError(
                    f"{table}: its first line has no {' and '.join(COLUMNS)}",
                    hint="for example: file,classes",
                )
            for row in reader:
                name, line = row["file"] or "", reader.line_num
                _check(f"{table}:{line}", name)
                if name in rows:
                    raise UsageError(f"{table}:{line}: {name} is in line {rows[name].line}, too")
                if PATIENT in row and not row[PATIENT]:
                    raise UsageError(f"{table}:{line}: {name} has no patient")
                found = [one for one in (row["classes"] or "").split(SEPARATOR) if one]
                rows[name] = Row(line, found, row.get(PATIENT) or "")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        hint = way_out(error) if isinstance(error, OSError) else None
        raise UsageError(f"cannot read {table}: {error}", hint=hint) from error
    if not rows:
        raise UsageError(f"{table} names no images")
    return rows


def _check(where: str, name: str) -> None:
    split, slash, below = name.partition("/")
    inside = all(part not in ("", ".", "..") for part in below.split("/"))
    if not slash or re.fullmatch(r"[a-z0-9][a-z0-9-]*", split) is None or not inside:
        raise UsageError(f"{where}: {name!r} is no path SPLIT/FILE below the image folder")
    if not is_image(Path(below).name):
        raise UsageError(f"{where}: {name!r} is no JPEG, PNG or DICOM (.dcm) by its name")
