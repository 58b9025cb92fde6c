"""Damage every file of a run, a data set and a bundle: the damage is reported or harmless.

No damage causes a traceback, a PASS for changed content, or a change outside of the folder.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import bundles
import datasets
from bundles import Member
from finished import finish
from shards.description import DATASET
from trimaran.bundles import pack, unpack
from trimaran.data import cache, contracts, dataset_json
from trimaran.data.contracts import Contract
from trimaran.errors import ExitCode, RunError, TrimaranError
from trimaran.files import sha256
from trimaran.recipes.library import RecipeFile
from trimaran.report import report
from trimaran.reporting import Silent
from trimaran.verdict.metrics import Verdict

FOREIGN = b"Dear reader,\nthis is something else.\n"
Damage = Callable[[Path, Path], object]


def cut(path: Path, outside: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip(path: Path, outside: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path, outside: Path) -> None:
    path.write_bytes(b"")


def link(path: Path, outside: Path) -> None:
    path.unlink()
    path.symlink_to(outside)


def folder(path: Path, outside: Path) -> None:
    path.unlink()
    path.mkdir()


def remove(path: Path, outside: Path) -> None:
    path.unlink()


def foreign(path: Path, outside: Path) -> None:
    path.write_bytes(FOREIGN)


def refusal(read: Callable[[], object]) -> TrimaranError | None:
    """Return the error that `read` raises, or None."""
    try:
        read()
    except TrimaranError as error:
        return error
    return None


REFUSED = (ExitCode.USAGE, ExitCode.RUN)
DAMAGES: tuple[Damage, ...] = (cut, flip, empty, link, folder, remove, foreign)
over_damages = pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)


@pytest.fixture
def outside(own_place: Path) -> Iterator[Path]:
    """Create a file to which damaged folders link; check that the test leaves it unchanged."""
    file = own_place / "outside"
    file.write_bytes(FOREIGN)
    yield file
    assert file.read_bytes() == FOREIGN
    assert sorted(path.name for path in own_place.iterdir()) == ["outside", "tried"]


# A run.

TRUSTED = ("run.json", "recipe.yaml", "app.yaml", "metrics.jsonl", "result.json")
WRITTEN = ("verdict.json", "report.md", "report.html", "curves.svg")
UNREAD = ("environment.json", "log.txt", ".lock", "checkpoint.pt")


@pytest.fixture
def run(recipe: RecipeFile, own_place: Path) -> tuple[Path, Verdict]:
    """Return the directory of a run that passes, and its verdict."""
    directory = own_place / "tried"
    finish(directory, recipe)
    for name in UNREAD:
        (directory / name).write_text("{}")
    _, verdict = report.write(directory)
    assert verdict.outcome == "PASS"
    return directory, verdict


@over_damages
@pytest.mark.parametrize("name", TRUSTED)
def test_what_a_verdict_rests_on_is_refused_by_name(
    run: tuple[Path, Verdict], outside: Path, name: str, damage: Damage
) -> None:
    directory, before = run
    damage(directory / name, outside)
    error = refusal(lambda: report.write(directory))
    if error is None:  # of run.json one letter may be of no weight: the name of the host
        assert (name, damage) == ("run.json", flip)
        assert report.write(directory)[1].rows == before.rows
        return
    assert error.exit_code in REFUSED
    assert name in error.message


def test_no_letter_of_run_json_turns_the_verdict(
    run: tuple[Path, Verdict], outside: Path
) -> None:
    directory, before = run
    whole = (directory / "run.json").read_bytes()
    for at in range(0, len(whole), 11):
        (directory / "run.json").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            record, verdict = report.write(directory)
        except TrimaranError:
            continue
        assert verdict.outcome != "PASS" or verdict.rows == before.rows
        assert not record.image.publishable


@over_damages
@pytest.mark.parametrize("name", [*WRITTEN, *UNREAD])
def test_what_no_verdict_rests_on_changes_nothing(
    run: tuple[Path, Verdict], outside: Path, name: str, damage: Damage
) -> None:
    directory, before = run
    damage(directory / name, outside)
    if name in WRITTEN and damage is folder:
        with pytest.raises(RunError, match=re.escape(str(directory))):
            report.write(directory)
        return
    _, verdict = report.write(directory)
    assert verdict == before
    for written in WRITTEN:
        assert (directory / written).is_file()
        assert not (directory / written).is_symlink()


# A data set and a bundle, made once.


@dataclass(frozen=True)
class World:
    """A checkout, the packed data set of its contract, and a bundle with recipe and data."""

    checkout: Path
    data: Path
    bundle: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("world")
    checkout = root / "checkout"
    for name in ("recipes/targets", "recipes/data", "containers", "apps/resnet-imagenet"):
        (checkout / name).mkdir(parents=True)
    for name in ("recipes/targets/cpu-2core.yaml", "apps/resnet-imagenet/app.yaml"):
        shutil.copy(Path(__file__).parents[2] / name, checkout / name)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TRIMARAN_ROOT", str(checkout))
        monkeypatch.setenv("TRIMARAN_CACHE", str(root / "cache"))
        request = bundles.request(checkout, root, monkeypatch)
        pack.pack(request, root / "b.tar", with_data=True, reporter=Silent())
        place = cache.folder(contracts.load("small"))
        path = checkout / "recipes/data/small.yaml"
        contract = yaml.safe_load(path.read_text())
        pinned = {"sha256": sha256(place / DATASET)}
        datasets.write(path, contract | {"packed": pinned})
    return World(checkout, place, root / "b.tar")


@pytest.fixture
def world(made: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("TRIMARAN_ROOT", str(made.checkout))
    return made


SHARDS = ("train-00000.tar", "train-00000.idx", "test-00000.tar", "test-00000.idx")


def data_faults(place: Path) -> str:
    """Return the faults that a run finds in the data in `place` before it trains; "": no fault."""
    contract = contracts.load("small")
    assert isinstance(contract, Contract)
    error = refusal(lambda: cache.check(contract, place, datasets.COUNTS, "webdataset", ["class"]))
    if error is not None:
        assert error.exit_code in REFUSED
        return error.message
    return "\n".join(
        dataset_json.verify_folder(contract, place, records=False, reporter=Silent())
    )


@over_damages
@pytest.mark.parametrize("name", [DATASET, *SHARDS])
def test_no_run_reads_damaged_data(
    world: World, own_place: Path, outside: Path, name: str, damage: Damage
) -> None:
    place = own_place / "tried"
    shutil.copytree(world.data, place)
    assert data_faults(place) == ""
    damage(place / name, outside)
    found = data_faults(place)
    assert name in found
    contract = contracts.load("small")
    assert dataset_json.verify_folder(contract, place, records=True, reporter=Silent())


def test_an_index_with_the_classes_shifted_is_named(world: World, own_place: Path) -> None:
    shutil.copytree(world.data, own_place / "tried")
    path = own_place / "tried/train-00000.idx"
    first, *rows = [line.split(" ") for line in path.read_text().splitlines()]
    classes = [row[4:] for row in rows]
    rows = [row[:4] + other for row, other in zip(rows, classes[1:] + classes[:1], strict=True)]
    path.write_text("".join(" ".join(row) + "\n" for row in [first, *rows]))
    assert f"{path} is damaged: SHA-256" in data_faults(own_place / "tried")


@pytest.mark.parametrize("old", ['"mean": [\n      0.', '"sha256": "'])
def test_facts_that_are_changed_in_dataset_json_are_named(
    world: World, own_place: Path, old: str
) -> None:
    shutil.copytree(world.data, own_place / "tried")
    path = own_place / "tried" / DATASET
    text = path.read_text()
    at = text.index(old) + len(old)
    path.write_text(text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1 :])
    assert "the contract pins" in data_faults(own_place / "tried")


def test_data_of_an_earlier_version_are_told_and_packed_anew(
    world: World, own_place: Path
) -> None:
    place = own_place / "tried"
    shutil.copytree(world.data, place)
    path = place / DATASET
    lines = [line for line in path.read_text().splitlines() if "index_sha256" not in line]
    path.write_text("\n".join(lines) + "\n")
    assert "an earlier version of Trimaran" in data_faults(place)
    contract = contracts.load("small")
    home = cache.folder(contract).parent
    shutil.copytree(world.data.parent, home)
    shutil.copy(path, home / "packed" / DATASET)
    assert data_faults(cache.get(contract, offline=True, reporter=Silent())) == ""


DATA = [f"data/{name}" for name in (DATASET, *SHARDS)]
MEMBERS = ("README.txt", "bundle.json", "run.sh", "recipe.yaml", "app.yaml", "target.yaml",
           "contract.yaml", "data.sha256", "image.sif", *DATA)
LISTED = {"recipe.yaml", "app.yaml", "image.sif", *DATA}


def damaged(damage: Damage, member: Member, own_place: Path) -> Member | None:
    """Return a member of a bundle after `damage`; None: the damage has removed the member."""
    info, content = member
    path = own_place / "tried"
    path.write_bytes(content)
    damage(path, own_place / "outside")
    if damage is link:
        info.type, info.linkname = tarfile.SYMTYPE, str(own_place / "outside")
    elif damage is folder:
        info.type = tarfile.DIRTYPE
    changed = (info, path.read_bytes() if damage in (cut, flip, empty, foreign) else b"")
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return None if damage is remove else changed


@over_damages
@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("forge", [False, True], ids=["", "forged"])
def test_a_damaged_member_leaves_nothing(
    world: World, own_place: Path, name: str, damage: Damage, forge: bool
) -> None:
    tried = own_place.parent / "tried.tar"
    bundles.rewrite(
        world.bundle, tried,
        lambda found, member: damaged(damage, member, own_place) if found == name else member,
        forge=forge,
    )
    # With hashes made to fit, only what is listed once more is found: it is not a signature.
    if forge and damage not in (link, folder) and name not in LISTED | {"bundle.json"}:
        unpack.verify(tried, Silent())
        return
    if forge and (name, damage) == ("bundle.json", flip):
        return  # it may be in the date
    for read in (unpack.verify, lambda file, told: unpack.extract(file, None, told)):
        with pytest.raises(RunError) as caught:
            read(tried, Silent())
        assert "tried.tar" in caught.value.message
    assert list(own_place.iterdir()) == []


@over_damages
def test_a_damaged_bundle_is_refused(
    world: World, own_place: Path, outside: Path, damage: Damage
) -> None:
    tried = own_place / "tried"
    shutil.copy(world.bundle, tried)
    damage(tried, outside)
    with pytest.raises(TrimaranError, match="tried") as caught:
        unpack.extract(tried, None, Silent())
    assert caught.value.exit_code in REFUSED
    if damage is remove:
        tried.touch()
