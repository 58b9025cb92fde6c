"""Images with any number of classes each, which a CSV file names.

    file,classes
    train/0001.png,Cardiomegaly|Effusion
    train/0002.png,

`file` is a path below the image folder that begins with the name of a split; `classes` are
joined by `|`, and none is a statement, too.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from trimaran.data.kinds import Kind
from trimaran.data.packing.listing import Listing, Sample, fingerprint, is_image
from trimaran.errors import UsageError, way_out
from trimaran.reporting import Reporter

COLUMNS = ("file", "classes")
SEPARATOR = "|"
_ROWS = 1 << 16  # between two advances of the bar


def listing(root: Path, table: Path, reporter: Reporter, *, skip_missing: bool = False) -> Listing:
    """List the images below `root` that the CSV file `table` names, sorted by name.

    With `skip_missing`, those that are not there are left out, and counted.

    Raises:
        UsageError: a row is faulty, names a file twice or one that is not there; with its line.
    """
    rows = _rows(table)
    classes = sorted({name for _, names in rows.values() for name in names})
    number = {name: at for at, name in enumerate(classes)}
    splits: dict[str, list[Sample]] = {}
    stamps = []
    missing = 0
    with reporter.bar(f"listing {root}", len(rows), unit="images") as advance:
        for at, (name, (line, found)) in enumerate(sorted(rows.items()), 1):
            try:
                facts = (root / name).stat()
            except OSError as error:
                if skip_missing and isinstance(error, FileNotFoundError):
                    missing += 1
                    continue
                raise UsageError(
                    f"{table}:{line}: {root / name}: {error.strerror}",
                    hint="the paths in the table begin with the split: train/0001.png;"
                    " --skip-missing goes on without what is not there",
                ) from error
            labels = tuple(sorted({number[one] for one in found}))
            splits.setdefault(name.partition("/")[0], []).append(
                Sample(name, labels, name, 0, facts.st_size)
            )
            stamps.append(f"{name}:{labels}:{facts.st_size}:{facts.st_mtime_ns}")
            if at % _ROWS == 0 or at == len(rows):
                advance((at - 1) % _ROWS + 1)
    if missing:
        reporter.warn(f"{missing:,} of {len(rows):,} images are not there and are left out")
    _warn_of_others(root, rows, splits, reporter)
    return Listing(root, classes, splits, fingerprint(stamps), kind=Kind(labels="multi"))


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


def _rows(table: Path) -> dict[str, tuple[int, list[str]]]:
    """Return file -> line and names of classes."""
    rows: dict[str, tuple[int, list[str]]] = {}
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
                    raise UsageError(f"{table}:{line}: {name} is in line {rows[name][0]}, too")
                rows[name] = line, [one for one in (row["classes"] or "").split(SEPARATOR) if one]
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
        raise UsageError(f"{where}: {name!r} is no JPEG or PNG by its name")
