"""A small copy of NIH's table and archives: patients are divided, faults are reported."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import photos
from refusals import refused
from trimaran import cli
from trimaran.data import cache, contracts, dataset_json
from trimaran.data.packing import chestxray
from trimaran.data.packing.chestxray import TABLE, ChestXray14
from trimaran.reporting import Silent

COMMITTED = Path(__file__).parents[3] / "recipes/data"
HEAD = "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age"
PATIENTS = 20


def rows() -> list[str]:
    """Return the lines of NIH's table for made-up patients, with two images of each patient."""
    findings = ["No Finding", "Effusion|Mass", "Hernia", "Infiltration"]
    return [
        f"{patient:08d}_{follow:03d}.png,{findings[(patient + follow) % 4]},{follow},{patient},50"
        for patient in range(1, PATIENTS + 1) for follow in range(2)
    ]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder with the table and twelve archives; two archives contain no images."""
    folder = tmp_path / "nih"
    folder.mkdir()
    (folder / TABLE).write_text("\n".join([HEAD, *rows()]) + "\n")
    names = [row.partition(",")[0] for row in rows()]
    for archive in range(12):
        with tarfile.open(folder / f"images_{archive + 1:03d}.tar.gz", "w:gz") as tar:
            tar.addfile(tarfile.TarInfo("images/../evil.png"), io.BytesIO())
            for name in names[archive * 4 : archive * 4 + 4]:
                content = photos.png(int(name[:8]), (12, 12))
                info = tarfile.TarInfo(f"images/{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return folder


@pytest.fixture
def contract(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> ChestXray14:
    """Return the contract for the small copy, without the checksums and with smaller counts."""
    monkeypatch.setattr("trimaran.pool.cores", lambda: 1)
    lines = []
    for line in (COMMITTED / "chestxray14.yaml").read_text().splitlines():
        if not line.startswith("assigned:"):
            lines.append(line.partition(": {md5:")[0] + ": {}" if "{md5:" in line else line)
    text = "\n".join(lines).replace("samples: 77676, ", "samples: 28, ").replace(
        "samples: 11563, ", "samples: 4, ").replace("samples: 22881, ", "samples: 8, ")
    (checkout / "recipes/data/chestxray14.yaml").write_text(text)
    found = contracts.load("chestxray14")
    assert isinstance(found, ChestXray14)
    return found


def test_the_committed_contracts_explain(checkout: Path) -> None:
    for name in ("chestxray14", "chestxray14-224", "chestxray14-official"):
        (checkout / f"recipes/data/{name}.yaml").write_text(
            (COMMITTED / f"{name}.yaml").read_text()
        )
        found = contracts.load(name)
        assert isinstance(found, ChestXray14)
        assert sum(file.md5 is not None for file in found.files.values()) == 12
        with refused("licence-required", name) as caught:
            cache.get(found, offline=False, reporter=Silent())
        assert "curl -L -C -" in (caught.value.hint or "")


def test_archives_are_unpacked_and_packed(contract: ChestXray14, source: Path) -> None:
    folder = cache.get(contract, offline=True, reporter=Silent(), source=source)
    dataset = dataset_json.read(folder)
    assert dataset.classes[0] == "Atelectasis"
    assert len(dataset.classes) == 14
    counts = {name: split.samples for name, split in dataset.splits.items()}
    assert counts == {"train": 28, "val": 4, "test": 8}
    assert cache.verify(contract, reporter=Silent(), workers=1) == []
    assert not (folder.parent / "unpacked").exists()
    assert sorted(path.name for path in source.iterdir())[0] == TABLE


def test_unpacking_goes_on_after_the_archives_that_are_done(
    contract: ChestXray14, source: Path, tmp_path: Path
) -> None:
    broken = source / "images_005.tar.gz"
    whole = broken.read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    place = tmp_path / "unpacked"
    with refused("data-damaged", broken):
        chestxray.unpack(contract, source, place, Silent())
    broken.write_bytes(whole)
    (source / "images_001.tar.gz").write_bytes(b"")  # not looked at again
    chestxray.unpack(contract, source, place, Silent())
    assert len(list(place.glob("*.png"))) == 2 * PATIENTS
    assert not (tmp_path / "evil.png").exists()
    assert not list(place.glob(".*.part"))


def test_a_patient_is_in_one_split_and_the_division_is_recorded(
    contract: ChestXray14, source: Path
) -> None:
    table = chestxray.table(source / TABLE, contract.classes)
    where = chestxray.splits(contract, table, source)
    for row in table:
        assert len({where[one.image] for one in table if one.patient == row.patient}) == 1
    digest = chestxray.assigned(where, table, contract.classes)
    recorded = contract.model_copy(update={"assigned": digest})
    assert chestxray.splits(recorded, table, source) == where
    with refused("checksum-mismatch", source, digest):
        chestxray.splits(recorded, table[:-2], source)
    other_finding = table[0]._replace(labels=(5,))
    with refused("checksum-mismatch", source, digest):
        chestxray.splits(recorded, [other_finding, *table[1:]], source)
    other = contract.model_copy(update={"seed": 1})
    assert chestxray.splits(other, table, source) != where


def test_a_list_decides_and_must_not_share_patients(
    contract: ChestXray14, source: Path, checkout: Path
) -> None:
    text = (COMMITTED / "chestxray14-official.yaml").read_text()
    (checkout / "recipes/data/chestxray14-official.yaml").write_text(text)
    official = contracts.load("chestxray14-official")
    assert isinstance(official, ChestXray14)
    table = chestxray.table(source / TABLE, official.classes)
    names = [row.image for row in table if int(row.patient) > 15]
    (source / "test_list.txt").write_text("\n".join(names) + "\n")
    where = chestxray.splits(official, table, source)
    assert {name for name, split in where.items() if split == "test"} == set(names)
    assert set(where.values()) == {"train", "val", "test"}
    (source / "test_list.txt").write_text("\n".join(names[1:]) + "\n")
    with refused("patient-shared", 16):
        chestxray.splits(official, table, source)
    (source / "test_list.txt").write_text("00000099_000.png\n")
    with refused("data-mismatch", "test_list.txt", "00000099_000.png"):
        chestxray.splits(official, table, source)


@pytest.mark.parametrize(("change", "code", "named"), [
    (lambda text: text.replace("Hernia", "Hernai", 1),
     "class-unknown", "csv:3: unknown finding 'Hernai'"),
    (lambda text: text.replace(",Patient ID", ",Patient", 1), "table-invalid", "Patient ID"),
    (lambda text: text + text.splitlines()[1] + "\n",
     "table-invalid", "csv:42: 00000001_000.png"),
    (lambda text: text.replace("00000001_000.png", "../x.png"),
     "table-invalid", "csv:2: '../x.png'"),
    (lambda text: text.replace(",1,50", ",,50", 1), "table-invalid",
     "'' is not the number of a patient"),
    (lambda text: text.replace(",1,50", ",1,50,Mass", 1), "table-invalid", "csv:2: has 6"),
    (lambda text: text.replace(",1,50", ",1", 1), "table-invalid", "csv:2: has 4"),
    (lambda text: text.replace("Patient Age", "Patient ID", 1),
     "table-invalid", "'Patient ID'"),
    (lambda text: text.replace("Effusion|", "No Finding|", 1),
     "table-invalid", "csv:2: 'No Finding'"),
    (lambda text: text.replace("|Mass", "||Mass", 1), "class-unknown", "csv:2: unknown finding ''"),
    (lambda text: text.replace("Effusion|Mass", "Effusion;Mass", 1),
     "class-unknown", "csv:2: unknown finding 'Effusion;Mass'"),
    (lambda text: text.encode("utf-16").decode("latin-1"), "table-invalid", "Image Index"),
])
def test_a_faulty_table_is_named_by_its_line(
    change: Callable[[str], str], code: str, named: str, contract: ChestXray14, source: Path
) -> None:
    path = source / TABLE
    path.write_text(change(path.read_text()), encoding="utf-8")
    with refused(code, named):
        chestxray.table(path, contract.classes)


def test_a_spreadsheet_may_have_written_it(contract: ChestXray14, source: Path) -> None:
    """A table that a spreadsheet has saved is read like the original.

    It has a byte-order mark, spaces around fields, semicolons, and CRLF line ends.
    """
    path = source / TABLE
    before = chestxray.table(path, contract.classes)
    text = path.read_text().replace("|", " | ").replace(",", " ;").replace("\n", "\r\n")
    path.write_text(text, encoding="utf-8-sig", newline="")
    assert chestxray.table(path, contract.classes) == before


def test_an_image_in_two_lists_is_refused(contract: ChestXray14, source: Path) -> None:
    table = chestxray.table(source / TABLE, contract.classes)
    splits = {}
    for name in ("val", "test"):
        (source / f"{name}.txt").write_text(f"{table[0].image}\n", encoding="utf-8-sig")
        splits[name] = contract.splits[name].model_copy(
            update={"list": f"{name}.txt", "percent": None}
        )
    listed = contract.model_copy(update={"splits": contract.splits | splits})
    with refused("data-mismatch", table[0].image, "val", "test"):
        chestxray.splits(listed, table, source)


def test_missing_images_are_counted_and_can_be_left_out(
    contract: ChestXray14, source: Path, tmp_path: Path
) -> None:
    images = chestxray.unpack(contract, source, source / "images", Silent())
    names = sorted(path.name for path in images.glob("*.png"))
    for name in names[:12]:
        (images / name).unlink()
    with refused("images-missing", "12 of 40", "00000001_000.png", "2 more"):
        cache.get(contract, offline=True, reporter=Silent(), source=source)
    out = tmp_path / "packed"
    words = ["data", "pack", str(source), "-o", str(out), "--format", "tfrecord", "--workers", "1"]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code != 0
    done = CliRunner().invoke(cli.app, [*words, "--skip-missing"])
    assert done.exit_code == 0, done.output
    assert "12 of 40 images are missing" in done.output + done.stderr
    assert sum(split.samples for split in dataset_json.read(out).splits.values()) == 28


def test_what_the_table_does_not_name_is_told(contract: ChestXray14, source: Path) -> None:
    images = chestxray.unpack(contract, source, source / "images", Silent())
    for name in ("00000099_000.png", "more.tar", "notes.txt"):
        (images / name).write_bytes(photos.png(1))
    told = Silent()
    found = chestxray.listing(contract, source, images, told)
    assert "1 images are left out, because the table does not list them" in told.warnings[0]
    assert "00000099_000.png" in told.warnings[0]
    assert found.ignored == ["more.tar", "notes.txt"], "and not the marks of unpacking"


def test_a_damaged_archive_is_found_by_its_sum(
    checkout: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimaran.pool.cores", lambda: 1)
    text = (COMMITTED / "chestxray14.yaml").read_text()
    (checkout / "recipes/data/chestxray14.yaml").write_text(text)
    with refused("checksum-mismatch", "images_001.tar.gz"):
        cache.get(contracts.load("chestxray14"), offline=True, reporter=Silent(), source=source)
