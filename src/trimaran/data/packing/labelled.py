"""List images that have any number of classes, as listed in a CSV file.

    file,classes
    train/0001.png,Cardiomegaly|Effusion
    train/0002.png,

`file` is a path below the image folder that begins with the name of a split. `classes` are
separated by `|`; an image may have no class. With a third column `patient`, all images of a patient
must be in one split: otherwise a network could recognize the patient instead of the disease.

Class names that would probably cause wrong labels are errors: a name that contains another
separator, and names that differ only in case or spaces. Tables often have such faults.
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
"""Characters that many tables use instead of `|` to separate class names.

Class names rarely contain such a character, so it indicates a wrong separator.
"""

_PERHAPS = re.compile(r"[/&+:\s]")
"""Characters that may separate class names, but may also be part of a class name.

For example, `Mass/Edema` is rejected if `Mass` and `Edema` are class names, too.
"""

_QUOTES = "'\"`\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
_HINT = f"separate classes by {SEPARATOR}, and quote a field that contains a comma"
_NAME_THEM = "; if the table is right, list all classes: --classes 'Mass|Edema'"
_ROWS = 1 << 16  # rows between two updates of the progress bar


def classes_of(text: str) -> list[str]:
    """Return the class names in the argument of `--classes`, such as `Mass|Edema`.

    Raises:
        UsageError: a name is empty or occurs twice, or there is no `|`, but another separator,
            such as a comma.
    """
    names = [name.strip() for name in text.split(SEPARATOR)]
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f"--classes: {text!r} has an empty or repeated name",
                         code="argument-invalid", hint="for example: 'Mass|Edema'")
    if len(names) == 1 and (other := set(_OTHERS) & set(text)):
        raise UsageError(f"--classes: {text!r} is one name that contains {min(other)!r}",
                         code="argument-invalid", hint="separate names by |: 'Mass|Edema'")
    return names


class Row(NamedTuple):
    """One row of the table; `patient` is empty if the table has no such column."""

    line: int
    classes: list[str]
    patient: str


def listing(
    root: Path, table: Path, reporter: Reporter, *, classes: Sequence[str] | None = None,
    skip_missing: bool = False,
) -> Listing:
    """List the images below `root` that the CSV file `table` lists, sorted by name.

    Args:
        root: the image folder.
        table: the CSV file.
        reporter: shows progress and warnings.
        classes: the allowed classes in the order of their labels; None to use all classes in the
            table, sorted.
        skip_missing: leave out missing images with a warning.

    Raises:
        UsageError: a row is faulty (the message names the line), repeats a file or has an unknown
            class; images are missing; a patient is in two splits; or, without `classes`, a class
            has no images in train.
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
        reporter.warn(f"{len(missing):,} of {len(rows):,} images are missing and are left out")
    found = Listing(root, list(number), splits, fingerprint(stamps),
                    _others(root, table, rows, reporter), Kind(labels="multi"))
    if classes is None:
        _refuse_untaught(table, rows, found)
    found.warn_of_untaught(reporter)
    return found


def _split(name: str) -> str:
    return name.partition("/")[0]


def _facts(where: str, path: Path) -> tuple[int | None, int]:
    """Return size in bytes and modification time in ns of a file; (None, 0) if it is missing."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None, 0
    except OSError as error:
        raise UsageError(f"{where}: {path}: {error.strerror}", code="file-unreadable",
                         hint=way_out(error)) from error
    if not stat.S_ISREG(facts.st_mode):
        raise UsageError(f"{where}: {path} is not a file", code="file-not-plain")
    return facts.st_size, facts.st_mtime_ns


def _lacking(root: Path, missing: list[str], total: int) -> UsageError:
    more = [f"and {len(missing) - SHOWN:,} more"] if len(missing) > SHOWN else []
    return UsageError(
        "\n".join([f"{root} lacks {len(missing):,} of {total:,} images:", *missing[:SHOWN], *more]),
        code="images-missing",
        hint="the paths in the table begin with the split, such as train/0001.png; --skip-missing"
        " leaves out missing images",
    )


def _refuse_unknown(table: Path, rows: Mapping[str, Row], known: Collection[str]) -> None:
    for row in sorted(rows.values()):
        for name in row.classes:
            if name not in known:
                raise UsageError(f"{table}:{row.line}: unknown class {name!r}",
                                 code="class-unknown", hint=nearest(name, known))


def _refuse_shared_patients(table: Path, rows: Mapping[str, Row]) -> None:
    first: dict[str, str] = {}
    for name, row in sorted(rows.items(), key=lambda one: one[1].line):
        before = first.setdefault(row.patient, name)
        if row.patient and _split(before) != _split(name):
            raise UsageError(
                f"{table}:{row.line}: the patient {row.patient!r} is in two splits: {name}, and"
                f" {before} in line {rows[before].line}",
                code="patient-shared", hint="put all images of a patient into one split",
            )


def _others(root: Path, table: Path, rows: Collection[str], reporter: Reporter) -> list[str]:
    """Warn of images that `table` does not list; return the unlisted files of other types.

    The returned list does not contain the table itself.
    """
    own, home = os.path.realpath(table), os.path.realpath(root)
    images, others = leftovers.beside(root, {*rows, os.path.relpath(own, home)})
    leftovers.warn(root, images, "the table does not list them", reporter)
    return others


def _refuse_untaught(table: Path, rows: Mapping[str, Row], found: Listing) -> None:
    """Check that every class has images in train: a network cannot learn an empty class."""
    untaught = found.untaught()
    for name, row in sorted(rows.items(), key=lambda one: one[1].line):
        for one in row.classes:
            if one in untaught:
                raise UsageError(
                    f"{table}:{row.line}: the class {one!r} of {name} has no images in train",
                    code="class-empty", hint=f"add images to train{_NAME_THEM}",
                )


def _refuse_doubtful(table: Path, rows: Mapping[str, Row], names: Sequence[str]) -> None:
    """Reject class names that are probably wrong.

    Examples are `cat/dog`, if `cat` and `dog` are also classes (a wrong separator), and two
    spellings of one name, such as `Cat` and `cat`.
    """
    seen: dict[str, str] = {}
    doubts = {name: doubt for name in names if (doubt := _doubt(name, names, seen))}
    for row in sorted(rows.values()):
        for name in row.classes:
            if name in doubts:
                raise UsageError(f"{table}:{row.line}: the class {name!r} {doubts[name]}",
                                 code="class-ambiguous",
                                 hint=f"separate classes by {SEPARATOR}{_NAME_THEM}")


def _doubt(name: str, names: Collection[str], seen: dict[str, str]) -> str | None:
    """Return the reason why a class name is probably wrong, or None.

    `seen` maps the normalized form of each name that was checked before to that name. The function
    adds `name` to `seen`.
    """
    parts = [part for part in _PERHAPS.split(name) if part]
    if other := [one for one in _OTHERS if one in name]:
        return f"contains {other[0]!r}"
    if not name.isprintable():
        odd = next(one for one in name if not one.isprintable())
        return f"contains the unprintable character U+{ord(odd):04X}"
    if name[0] in _QUOTES or name[-1] in _QUOTES:
        return "begins or ends with a quote"
    if len(parts) > 1 and all(part in names for part in parts):
        return f"looks like the classes {' and '.join(parts)}"
    alike = " ".join(re.split(r"[\s_-]+", unicodedata.normalize("NFKC", name).casefold()))
    if (before := seen.setdefault(alike, name)) != name:
        return f"differs from {before!r} only in case, spaces or the form of letters"
    return None


def _rows(table: Path, reporter: Reporter) -> dict[str, Row]:
    """Read the table, check each row, and return the rows by file name."""
    rows: dict[str, Row] = {}
    found = tables.read(table, COLUMNS, hint=_HINT)
    unused = [name for name in found.columns if name not in (*COLUMNS, PATIENT)]
    if unused:
        reporter.warn(f"{table}: unused columns: {', '.join(map(repr, unused))}")
    for number, where, fields in found.lines:
        name = fields["file"]
        _check(where, name)
        if name in rows:
            raise UsageError(f"{where}: {name} is listed twice, first in line {rows[name].line}",
                             code="table-invalid", hint="list each file once")
        if PATIENT in fields and not fields[PATIENT]:
            raise UsageError(f"{where}: {name} has no patient", code="table-invalid",
                             hint=f"fill in the column, or remove the column {PATIENT}")
        classes = list(_names(where, fields["classes"]))
        rows[name] = Row(number, classes, fields.get(PATIENT, ""))
    if not rows:
        raise UsageError(f"{table} lists no images", code="table-invalid")
    return rows


def _names(where: str, text: str) -> Iterator[str]:
    for name in text.split(SEPARATOR) if text else ():
        if not name.strip():
            raise UsageError(f"{where}: {text!r} contains an empty class name",
                             code="table-invalid", hint=_HINT)
        yield name.strip()


def _check(where: str, name: str) -> None:
    split, slash, below = name.partition("/")
    inside = all(part not in ("", ".", "..") for part in below.split("/"))
    if not slash or re.fullmatch(r"[a-z0-9][a-z0-9-]*", split) is None or not inside:
        raise UsageError(f"{where}: {name!r} is not a path SPLIT/FILE below the image folder",
                         code="table-invalid", hint="for example: train/0001.png")
    if not is_image(Path(below).name):
        raise UsageError(f"{where}: {name!r} has no file name extension of JPEG, PNG or DICOM",
                         code="table-invalid", hint="use .jpg, .jpeg, .png or .dcm")
