"""Images with any number of classes each, which a CSV file names.

    file,classes
    train/0001.png,Cardiomegaly|Effusion
    train/0002.png,

`file` is a path below the image folder that begins with the name of a split; `classes` are
joined by `|`, and none is a statement, too. With a third column, `patient`, a patient whose images
are in two splits is refused: a network could tell the patient instead of the disease.

What is written by hand or by a spreadsheet is doubted where it would make a wrong label without a
word: a name that another separator joins, or that differs from another by case or spaces only.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from shards.kinds import Kind
from trimaran.data.packing import leftovers, tables
from trimaran.data.packing.listing import SHOWN, Listing, Sample, fingerprint, is_image
from trimaran.errors import UsageError, nearest, way_out
from trimaran.reporting import Reporter

COLUMNS = ("file", "classes")
PATIENT = "patient"
SEPARATOR = "|"
_OTHERS = ";,\t\n\u00a6\uff5c\uff1b\uff0c\u3001"
"""Separators that people and spreadsheets write, full-width ones too; hardly any name has them."""

_PERHAPS = re.compile(r"[/&+:\s]")
"""What a name may well have in it, unless it joins names that there are."""

_QUOTES = "'\"`\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
_HINT = f"classes are joined by {SEPARATOR}; a field with a comma in it is put in quotes"
_NAME_THEM = "; where it is right, name all classes: --classes 'Mass|Edema'"
_ROWS = 1 << 16  # between two advances of the bar


def classes_of(text: str) -> list[str]:
    """Return what `--classes` says: `Mass|Edema`.

    Raises:
        UsageError: a name is empty, or there twice, or the only one is joined by something else.
    """
    names = [name.strip() for name in text.split(SEPARATOR)]
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f"--classes: {text!r} has an empty name, or one twice",
                         hint="for example: 'Mass|Edema'")
    if len(names) == 1 and (other := set(_OTHERS) & set(text)):
        raise UsageError(f"--classes: {text!r} is one name with {min(other)!r} in it",
                         hint="names are joined by |: 'Mass|Edema'")
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
            are missing; a patient is in two splits; a class that is not named in `classes` has no
            images in train.
    """
    rows = _rows(table, reporter)
    named = sorted({name for row in rows.values() for name in row.classes})
    number = {name: at for at, name in enumerate(named if classes is None else classes)}
    if classes is None:
        _refuse_doubtful(table, rows, named)
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
    found = Listing(root, list(number), splits, fingerprint(stamps),
                    _others(root, table, rows, reporter), Kind(labels="multi"))
    if classes is None:
        _refuse_untaught(table, rows, found)
    found.warn_of_untaught(reporter)
    return found


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
    if not stat.S_ISREG(facts.st_mode):
        raise UsageError(f"{where}: {path} is no file")
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


def _others(root: Path, table: Path, rows: Collection[str], reporter: Reporter) -> list[str]:
    """Return the files beside the images and the table; warn of images among them."""
    own, home = os.path.realpath(table), os.path.realpath(root)
    images, others = leftovers.beside(root, {*rows, os.path.relpath(own, home)})
    leftovers.warn(root, images, "the table does not name them", reporter)
    return others


def _refuse_untaught(table: Path, rows: Mapping[str, Row], found: Listing) -> None:
    """Refuse a class without images to train on: other splits would be judged by it."""
    untaught = found.untaught()
    for name, row in sorted(rows.items(), key=lambda one: one[1].line):
        for one in row.classes:
            if one in untaught:
                raise UsageError(
                    f"{table}:{row.line}: the class {one!r} of {name} has no images in train",
                    hint=f"put some there{_NAME_THEM}",
                )


def _refuse_doubtful(table: Path, rows: Mapping[str, Row], names: Sequence[str]) -> None:
    """Refuse names that are two ones, or two that are one, by all that one can tell."""
    seen: dict[str, str] = {}
    doubts = {name: doubt for name in names if (doubt := _doubt(name, names, seen))}
    for row in sorted(rows.values()):
        for name in row.classes:
            if name in doubts:
                raise UsageError(f"{table}:{row.line}: the class {name!r} {doubts[name]}",
                                 hint=f"classes are joined by {SEPARATOR}{_NAME_THEM}")


def _doubt(name: str, names: Collection[str], seen: dict[str, str]) -> str | None:
    """Return what is odd about a name; `seen` has those before, by what they are alike in."""
    parts = [part for part in _PERHAPS.split(name) if part]
    if other := [one for one in _OTHERS if one in name]:
        return f"has {other[0]!r} in it"
    if not name.isprintable():
        odd = next(one for one in name if not one.isprintable())
        return f"has the unprintable character U+{ord(odd):04X} in it"
    if name[0] in _QUOTES or name[-1] in _QUOTES:
        return "begins or ends with a quote"
    if len(parts) > 1 and all(part in names for part in parts):
        return f"looks like the classes {' and '.join(parts)}"
    alike = " ".join(re.split(r"[\s_-]+", unicodedata.normalize("NFKC", name).casefold()))
    if (before := seen.setdefault(alike, name)) != name:
        return f"differs from {before!r} in case, spaces or the form of letters only"
    return None


def _rows(table: Path, reporter: Reporter) -> dict[str, Row]:
    """Return file -> what the table says of it."""
    rows: dict[str, Row] = {}
    found = tables.read(table, COLUMNS, hint=_HINT)
    unused = [name for name in found.columns if name not in (*COLUMNS, PATIENT)]
    if unused:
        reporter.warn(f"{table}: these columns are not used: {', '.join(map(repr, unused))}")
    for number, where, fields in found.lines:
        name = fields["file"]
        _check(where, name)
        if name in rows:
            raise UsageError(f"{where}: {name} is in line {rows[name].line}, too")
        if PATIENT in fields and not fields[PATIENT]:
            raise UsageError(f"{where}: {name} has no patient")
        classes = list(_names(where, fields["classes"]))
        rows[name] = Row(number, classes, fields.get(PATIENT, ""))
    if not rows:
        raise UsageError(f"{table} names no images")
    return rows


def _names(where: str, text: str) -> Iterator[str]:
    for name in text.split(SEPARATOR) if text else ():
        if not name.strip():
            raise UsageError(f"{where}: {text!r} has an empty name of a class", hint=_HINT)
        yield name.strip()


def _check(where: str, name: str) -> None:
    split, slash, below = name.partition("/")
    inside = all(part not in ("", ".", "..") for part in below.split("/"))
    if not slash or re.fullmatch(r"[a-z0-9][a-z0-9-]*", split) is None or not inside:
        raise UsageError(f"{where}: {name!r} is no path SPLIT/FILE below the image folder")
    if not is_image(Path(below).name):
        raise UsageError(f"{where}: {name!r} is no JPEG, PNG or DICOM (.dcm) by its name")
