"""Reader `chestxray14`: read NIH's table of findings and its archives (or a folder) of images.

The table lists each image with its findings and its patient. All images of a patient are in one
split: otherwise a network could recognize the patient instead of the disease. Images are read from
`images/` next to the table if the user has unpacked the archives; otherwise each archive is
unpacked once into a folder of the cache.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from shards.kinds import Kind
from trimaran import pool
from trimaran.data.contracts import FileName, LicensedFiles, Name, Percent, Size, Split
from trimaran.data.packing import leftovers, tables
from trimaran.data.packing.listing import SHOWN, Listing, Sample, fingerprint, readable
from trimaran.errors import RunError, nearest
from trimaran.files import check_space
from trimaran.reporting import Advance, Reporter
from trimaran.strict import Sha256

IMAGE, FINDINGS, PATIENT = COLUMNS = ("Image Index", "Finding Labels", "Patient ID")
NONE = "No Finding"
TABLE = "Data_Entry_2017_v2020.csv"
FOLDER = "images"
UNCHANGED = "use the unchanged file of the publisher"
UNPACKED_PER_BYTE = 1.01  # size of the images / size of the archives; gzip hardly shrinks PNG files

_MARK = re.compile(r"\..*\.tar\.gz\.done")
_NAME = re.compile(r"\d{8}_\d{3}\.png")


class PatientSplit(Split):
    """A split that is defined either by a published list of images or by a range of patients.

    Exactly one of `list` and `percent` must be given.

    Attributes:
        samples: number of images; None if it is unknown until the user has the list.
        percent: begin and end of the range, as percentages of the patients that are in no list;
            these patients are sorted by a hash (see `splits`).
        list: name of the file with the list.
    """

    samples: Size | None = None
    percent: tuple[Percent, Percent] | None = None
    list: FileName | None = None

    @model_validator(mode="after")
    def _one_way(self) -> PatientSplit:
        if (self.percent is None) == (self.list is None):
            raise ValueError("exactly one of 'percent' and 'list' is required")
        return self


class ChestXray14(LicensedFiles):
    """The data contract of NIH's chest X-rays; an image can have any number of 14 findings."""

    kind: ClassVar[Kind] = Kind(labels="multi")

    reader: Literal["chestxray14"]
    classes: list[str] = Field(min_length=1)
    seed: Annotated[int, Field(ge=0, description="of the order of the patients")]
    assigned: Annotated[
        Sha256 | None, Field(description="SHA-256 of each image with its split and findings")
    ] = None
    splits: dict[Name, PatientSplit] = Field(min_length=1)

    def needed(self, source: Path) -> list[str]:
        """Return the names of the required files; without the archives if `images/` exists."""
        unpacked = (source / FOLDER).is_dir()
        return [name for name in self.files if not (unpacked and name.endswith(".tar.gz"))]

    def listing(self, folder: Path, unpacked: Path, reporter: Reporter) -> Listing:
        """List the images, after unpacking the archives if needed."""
        return listing(self, folder, unpack(self, folder, unpacked, reporter), reporter)


class Row(NamedTuple):
    """One line of NIH's table: the name of an image, its findings and its patient."""

    image: str
    labels: tuple[int, ...]
    patient: str


def is_here(source: Path) -> bool:
    """Return whether `source` is a folder with NIH's table and unpacked images."""
    return (source / TABLE).is_file() and (source / FOLDER).is_dir()


def listing(
    contract: ChestXray14, source: Path, images: Path, reporter: Reporter, *,
    skip_missing: bool = False,
) -> Listing:
    """List the images of `contract`: PNG files in the folder `images`.

    Args:
        contract: the data set.
        source: folder with the table, and with the lists that the contract names.
        images: folder with the images.
        reporter: shows progress and warnings.
        skip_missing: leave out missing images with a warning.

    Raises:
        RunError: the table is faulty (the message names the line), a patient is in two splits, or
            images are missing.
    """
    rows = table(source / TABLE, contract.classes)
    where = splits(contract, rows, source)
    found: dict[str, list[Sample]] = {name: [] for name in contract.splits}
    missing, stamps = [], []
    with reporter.bar(f"listing {images}", len(rows), unit="images") as advance:
        for row in rows:
            path = images / row.image
            if path.is_file():
                facts = path.stat()
                stamps.append(f"{row}:{facts.st_size}:{facts.st_mtime_ns}")
                found[where[row.image]].append(Sample(
                    f"{where[row.image]}/{row.image}", row.labels, row.image, 0, facts.st_size
                ))
            else:
                missing.append(row.image)
        advance(len(rows))
    if missing and not skip_missing:
        raise _lacking(images, missing, len(rows))
    if missing:
        reporter.warn(f"{len(missing):,} of {len(rows):,} images are missing and are left out")
    whole = Listing(images, contract.classes, {k: v for k, v in found.items() if v},
                    fingerprint(stamps), _others(images, rows, reporter), contract.kind)
    whole.warn_of_untaught(reporter)
    return whole


def _others(folder: Path, rows: Iterable[Row], reporter: Reporter) -> list[str]:
    """Warn of images in `folder` that the table does not list; return files that are not images.

    The result has the names of the files, without the hidden files with which `unpack` marks
    unpacked archives.
    """
    images, others = leftovers.beside(folder, {row.image for row in rows})
    leftovers.warn(folder, images, "the table does not list them", reporter)
    return [name for name in others if _MARK.fullmatch(name) is None]


def _lacking(images: Path, missing: list[str], total: int) -> RunError:
    more = f" and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else ""
    return RunError(
        f"{images} lacks {len(missing):,} of {total:,} images: "
        f"{', '.join(missing[:SHOWN])}{more}", code="images-missing",
        hint="download the archives that contain them; `trimaran data pack --skip-missing` leaves"
        " them out",
    )


def table(path: Path, classes: list[str]) -> list[Row]:
    """Return the rows of NIH's table.

    Raises:
        RunError: a column is missing, or a line has an unknown finding, an invalid image name, or
            a wrong number of fields.
    """
    number = {name: at for at, name in enumerate(classes)}
    rows: list[Row] = []
    names: set[str] = set()
    found = tables.read(path, COLUMNS, hint=UNCHANGED, error=RunError)
    for line in found.lines:
        row = _row(line, number)
        if row.image in names:
            raise RunError(f"{line.where}: {row.image} is listed twice", code="table-invalid",
                           hint=UNCHANGED)
        names.add(row.image)
        rows.append(row)
    return rows


def _row(line: tables.Line, number: Mapping[str, int]) -> Row:
    image, patient = line.fields[IMAGE], line.fields[PATIENT].lstrip("0")
    if _NAME.fullmatch(image) is None or not patient.isdigit():
        raise RunError(
            f"{line.where}: {image!r} is not a file name of ChestX-ray14, or {patient!r} is not the"
            " number of a patient", code="table-invalid", hint=UNCHANGED,
        )
    given = [name.strip() for name in line.fields[FINDINGS].split("|")]
    if NONE in given:
        if len(given) > 1:
            raise RunError(f"{line.where}: {NONE!r} is listed together with findings:"
                           f" {line.fields[FINDINGS]!r}", code="table-invalid", hint=UNCHANGED)
        given = []
    for name in given:
        if name not in number:
            raise RunError(f"{line.where}: unknown finding {name!r}", code="class-unknown",
                           hint=nearest(name, list(number)))
    return Row(image, tuple(sorted({number[name] for name in given})), patient)


def splits(contract: ChestXray14, rows: list[Row], source: Path) -> dict[str, str]:
    """Return the split of each image.

    If a published list contains an image, the list determines its split. The patient determines the
    split of every other image: these patients are sorted by a hash of the seed and the patient
    number, and the sorted list is divided at the percentages in the contract.

    Raises:
        RunError: a list names images that are not in the table, a patient is in two splits, or the
            SHA-256 of the result differs from the contract.
    """
    found: dict[str, str] = {}
    patients = {row.image: row.patient for row in rows}
    for name, split in contract.splits.items():
        for image in _listed(source / split.list, patients) if split.list else ():
            if found.setdefault(image, name) != name:
                raise RunError(f"{source}: {image} is in the list of {found[image]} and of {name}",
                               code="data-mismatch")
    rest = {patients[image] for image in patients.keys() - found.keys()}
    order = sorted(rest, key=lambda one: hashlib.sha256(f"{contract.seed}:{one}".encode()).digest())
    of = {
        patient: name for name, split in contract.splits.items() if split.percent is not None
        for patient in order[slice(*(len(order) * part // 100 for part in split.percent))]
    }
    found |= {row.image: of[row.patient] for row in rows if row.image not in found}
    refuse_shared_patients((found[row.image], row.patient) for row in rows)
    digest = assigned(found, rows, contract.classes)
    if contract.assigned is not None and digest != contract.assigned:
        raise RunError(
            f"{source}: splits and findings have the SHA-256 {digest}, the contract"
            f" {contract.name} pins {contract.assigned}: the table or a list differs",
            code="checksum-mismatch", hint="download the table and the lists again",
        )
    return found


def _listed(path: Path, known: Mapping[str, str]) -> list[str]:
    with readable(path):
        names = path.read_text(encoding="utf-8-sig").split()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise RunError(f"{path} lists {len(unknown):,} images that are not in the table, such as"
                       f" {unknown[0][:60]!r}", code="data-mismatch")
    return names


def refuse_shared_patients(pairs: Iterable[tuple[str, str]]) -> None:
    """Raise RunError if a patient is in two splits; the message lists some of these patients.

    `pairs` contains the split and the patient of each image.
    """
    seen: dict[str, str] = {}
    shared = sorted({
        patient for split, patient in pairs if seen.setdefault(patient, split) != split
    })
    if shared:
        more = f" and {len(shared) - SHOWN:,} more" if len(shared) > SHOWN else ""
        raise RunError(f"patients in two splits: {', '.join(shared[:SHOWN])}{more}",
                       code="patient-shared")


def assigned(found: Mapping[str, str], rows: Iterable[Row], classes: list[str]) -> str:
    """Return the SHA-256 of the list of all images with their splits and findings."""
    return fingerprint(
        f"{row.image} {found[row.image]} {'|'.join(classes[one] for one in row.labels)}"
        for row in sorted(rows)
    )


def unpack(contract: ChestXray14, source: Path, folder: Path, reporter: Reporter) -> Path:
    """Return the folder of the images, after unpacking the archives in `source` into `folder`.

    Archives that an earlier call of this function unpacked are skipped. A killed call can be
    repeated.

    Raises:
        RunError: an archive is damaged, or the disk has too little free space.
    """
    if (source / FOLDER).is_dir():
        return source / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [(source / name, folder) for name in contract.files
             if name.endswith(".tar.gz") and not _done(folder, name).exists()]
    size = sum(path.stat().st_size for path, _ in tasks)
    check_space(folder, int(size * UNPACKED_PER_BYTE), f"unpacking {contract.name}", RunError)
    with reporter.bar(f"unpacking {contract.name}", size, unit="B") as advance:
        list(pool.run(unpack_one, tasks, pool.cores(), advance))
    return folder


def _done(folder: Path, archive: str) -> Path:
    return folder / f".{archive}.done"


def unpack_one(task: tuple[Path, Path], advance: Advance) -> None:
    """Unpack the images of one archive: files with names such as 00000001_000.png.

    Args:
        task: the archive, and the folder into which it is unpacked.
        advance: function that is called with the number of bytes that were read.
    """
    path, folder = task
    reported = 0
    with (
        readable(path, "unpacked"), path.open("rb") as stream,
        tarfile.open(fileobj=stream, mode="r|gz") as archive,
    ):
        for member, content in _images(archive):
            part = folder / f".{member}.part"
            with part.open("wb") as file:
                shutil.copyfileobj(content, file)
            part.replace(folder / member)
            advance(stream.tell() - reported)
            reported = stream.tell()
    _done(folder, path.name).touch()


def _images(archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.ExFileObject]]:
    for member in archive:
        base = member.name.rpartition("/")[2]
        if member.isfile() and _NAME.fullmatch(base):
            content = archive.extractfile(member)
            if isinstance(content, tarfile.ExFileObject):
                yield base, content


MODEL = ChestXray14
