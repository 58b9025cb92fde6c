"""Small copies of the official ImageNet tars: listed without unpacking, verified, packed."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest

import photos
from refusals import refused
from shards import formats
from shards.kinds import Kind
from trimaran import paths
from trimaran.data import cache, contracts, dataset_json
from trimaran.data.packing import ilsvrc, image_folders, listing, pictures
from trimaran.data.packing.ilsvrc import ImageNet
from trimaran.errors import Interrupted, RunError
from trimaran.reporting import Silent


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use one process: starting several takes longer than packing these few images."""
    monkeypatch.setattr("trimaran.pool.cores", lambda: 1)


@pytest.fixture
def tars(tmp_path: Path, checkout: Path) -> Path:
    return photos.official_tars(tmp_path / "tars", checkout)


@pytest.fixture
def contract(tars: Path) -> ImageNet:
    """Return the contract of ImageNet with the counts and checksums of the small copies."""
    committed = Path(__file__).parents[3] / "recipes/data/imagenet-2012.yaml"
    target = paths.repository() / "recipes/data/imagenet-2012.yaml"
    text = committed.read_text().replace("1281167", "9").replace("50000", "4")
    for path in tars.iterdir():
        old = text.split(f"{path.name}: {{md5: ")[1][:32]
        text = text.replace(old, hashlib.md5(path.read_bytes()).hexdigest())  # noqa: S324
    target.write_text(text)
    found = contracts.load("imagenet-2012")
    assert isinstance(found, ImageNet)
    return found


def test_labels_are_places_in_the_sorted_list_of_classes(tars: Path) -> None:
    found = ilsvrc.listing(tars, 1, Silent())
    assert found.classes == ["n01 cat", "n02 dog", "n03 eel"]
    train = [(one.name, *one.labels) for one in found.splits["train"]]
    assert train[:4] == [
        ("train/n01/n01_0.JPEG", 0), ("train/n01/n01_1.JPEG", 0), ("train/n01/n01_2.JPEG", 0),
        ("train/n02/n02_0.JPEG", 1),
    ]
    # ILSVRC numbers 2, 1, 3, 3 are n01, n03, n02, n02.
    assert [one.labels for one in found.splits["val"]] == [(0,), (2,), (1,), (1,)]
    assert [listing.read(tars, one)[0] for one in found.splits["val"]] == [
        photos.jpeg(100 + at) for at in (1, 2, 3, 4)
    ]
    assert listing.read(tars, found.splits["train"][4])[0] == photos.jpeg(11)


def test_the_committed_order_is_that_of_the_development_kit() -> None:
    order = list(ilsvrc.synsets())
    assert len(order) == len(set(order)) == 1000
    # The ground truth begins with 490, 361, 171, 822, 297: a sea snake, an alp, a Shetland
    # sheepdog, a soup bowl, a cradle, as everybody knows who has looked at the first images.
    assert ilsvrc.class_names([order[number - 1] for number in (490, 361, 171, 822, 297)]) == [
        "n01751748 sea snake", "n09193705 alp", "n02105855 Shetland sheepdog",
        "n04263257 soup bowl", "n03125729 cradle",
    ]
    assert sorted(order)[0] == "n01440764"
    assert len(set(ilsvrc.class_names(order))) == 1000


def test_get_explains_without_the_files(contract: ImageNet) -> None:
    assert cache.state(contract) == "absent"
    with refused("licence-required", "imagenet") as caught:
        cache.get(contract, offline=False, reporter=Silent())
    for part in ("image-net.org/signup", "ILSVRC2012_devkit_t12.tar.gz", "--from"):
        assert part in (caught.value.hint or "")


def test_get_checks_and_packs(contract: ImageNet, tars: Path) -> None:
    folder = cache.get(contract, offline=True, reporter=Silent(), source=tars)
    assert cache.state(contract) == "packed"
    dataset = dataset_json.read(folder)
    assert dataset.name == "imagenet-2012"
    assert dataset.classes == contract.classes
    assert {name: split.samples for name, split in dataset.splits.items()} == {"train": 9, "val": 4}
    assert cache.verify(contract, reporter=Silent(), workers=1) == []
    shard = dataset.splits["val"].shards[0]
    index = folder / str(shard.index)
    found = list(formats.load("webdataset").scan(folder / shard.file, index, Kind()))
    assert len(found) == 4
    # What verify finds, the next get makes anew.
    (folder / shard.file).write_bytes(b"")
    assert cache.verify(contract, reporter=Silent(), workers=1)
    assert cache.state(contract) == "absent"
    cache.get(contract, offline=True, reporter=Silent(), source=tars)
    assert cache.verify(contract, reporter=Silent(), workers=1) == []


def damaged(contract: ImageNet, tars: Path) -> Path:
    """Pack a data set, damage a shard so that `verify` finds the damage, and return the folder."""
    folder = cache.get(contract, offline=True, reporter=Silent(), source=tars)
    (folder / "val-00000.tar").write_bytes(b"")
    assert cache.verify(contract, reporter=Silent(), workers=1)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_repair_without_the_right_files_loses_nothing(contract: ImageNet, tars: Path) -> None:
    folder = damaged(contract, tars)
    before = files(folder)
    with refused("licence-required", "imagenet"):
        cache.get(contract, offline=True, reporter=Silent())
    with refused("file-missing", "nowhere", ilsvrc.TRAIN):
        cache.get(contract, offline=False, reporter=Silent(), source=Path("nowhere"))
    (tars / ilsvrc.DEVKIT).write_bytes(b"")
    with refused("checksum-mismatch", ilsvrc.DEVKIT):
        cache.get(contract, offline=False, reporter=Silent(), source=tars)
    assert files(folder) == before
    assert cache.state(contract) == "absent"


def test_a_missing_copy_is_refused_although_the_set_is_packed(
    contract: ImageNet, tars: Path
) -> None:
    cache.get(contract, offline=True, reporter=Silent(), source=tars)
    with refused("file-missing", "nowhere"):
        cache.get(contract, offline=True, reporter=Silent(), source=tars / "nowhere")
    with refused("file-unreadable", "x" * 300):
        cache.get(contract, offline=True, reporter=Silent(), source=tars / ("x" * 300))


def test_a_set_that_lacks_a_shard_is_packed_anew(contract: ImageNet, tars: Path) -> None:
    folder = cache.get(contract, offline=True, reporter=Silent(), source=tars)
    before = files(folder)
    (folder / "val-00000.tar").unlink()
    cache.get(contract, offline=True, reporter=Silent(), source=tars)
    assert files(folder) == before
    assert sorted(path.name for path in folder.parent.iterdir()) == ["packed"]


def test_a_stopped_repair_goes_on_and_the_old_set_is_kept_until_its_end(
    contract: ImageNet, tars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = damaged(contract, tars)
    old, told, scaled = files(folder), Silent(), pictures.scaled

    def stop(content: bytes, *rest: int) -> bytes:
        if content == photos.jpeg(101):  # of the last shard
            raise KeyboardInterrupt
        return scaled(content, *rest)

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(pictures, "scaled", stop)
            with pytest.raises(Interrupted):
                cache.get(contract, offline=True, reporter=told, source=tars)
        assert files(folder.parent / "replaced") == old
    assert len([note for note in told.notes if "is packed again" in note]) == 1
    cache.get(contract, offline=True, reporter=told, source=tars)
    assert told.notes[-1] == "  1 of 2 shards exist already"
    assert cache.verify(contract, reporter=Silent(), workers=1) == []
    assert sorted(path.name for path in folder.parent.iterdir()) == ["packed"]


def test_an_old_set_that_a_killed_repair_left_is_removed(contract: ImageNet, tars: Path) -> None:
    folder = cache.get(contract, offline=True, reporter=Silent(), source=tars)
    (folder.parent / "replaced").mkdir()
    assert cache.get(contract, offline=True, reporter=Silent()) == folder
    assert sorted(path.name for path in folder.parent.iterdir()) == ["packed"]


def test_wrong_md5_is_said_for_each_file(contract: ImageNet, tars: Path) -> None:
    for name in (ilsvrc.VAL, ilsvrc.DEVKIT):
        (tars / name).write_bytes((tars / name).read_bytes() + b"x")
    with refused("checksum-mismatch", tars / ilsvrc.VAL, tars / ilsvrc.DEVKIT) as caught:
        cache.get(contract, offline=True, reporter=Silent(), source=tars)
    assert len(caught.value.message.splitlines()) == 2


@pytest.mark.parametrize("name", [ilsvrc.TRAIN, ilsvrc.VAL, ilsvrc.DEVKIT])
def test_a_missing_or_damaged_tar_is_named(tars: Path, name: str) -> None:
    content = (tars / name).read_bytes()
    (tars / name).write_bytes(content[:700] if name != ilsvrc.DEVKIT else content[:50])
    with refused("data-damaged", name):
        ilsvrc.listing(tars, 1, Silent())
    (tars / name).unlink()
    with refused("file-missing", tars, name):
        ilsvrc.listing(tars, 1, Silent())


def test_other_classes_and_counts_are_refused(tars: Path, checkout: Path) -> None:
    names = checkout / "recipes/data/imagenet-2012-synsets.txt"
    text = names.read_text()
    names.write_text(text + "n04 fox\n")
    with refused("data-mismatch", "n04.tar"):
        ilsvrc.listing(tars, 1, Silent())
    names.write_text(text.replace("n02 dog\n", ""))
    with refused("data-damaged", tars, kind=RunError):
        ilsvrc.listing(tars, 1, Silent())
    names.write_text(text)
    (tars / ilsvrc.VAL).write_bytes(photos.tar({"a.JPEG": b""}))
    with refused("data-mismatch", ilsvrc.VAL, "1 images", "4 labels"):
        ilsvrc.listing(tars, 1, Silent())


def classes(tars: Path) -> dict[str, bytes]:
    """Return name -> content of the tar of each class."""
    with tarfile.open(tars / ilsvrc.TRAIN) as outer:
        return {member.name: outer.extractfile(member).read() for member in outer}  # type: ignore[union-attr]


def rewrite(tars: Path, **changed: bytes) -> None:
    """Replace tars of classes in the tar of the training images."""
    content = photos.tar(classes(tars) | {f"{key}.tar": tar for key, tar in changed.items()})
    (tars / ilsvrc.TRAIN).write_bytes(content)


@pytest.mark.parametrize("name", ["n02_0.JPEG", "n02_2.JPEG", "n02.tar"])
def test_a_damaged_header_is_not_taken_for_the_end_of_a_tar(tars: Path, name: str) -> None:
    path = tars / ilsvrc.TRAIN
    content = path.read_bytes()
    at = content.index(name.encode())
    path.write_bytes(content.replace(name.encode(), b"?" + name.encode()[1:]))
    with refused("data-damaged", path, f"byte {at:,}:"):
        ilsvrc.listing(tars, 1, Silent())
    # What a download that failed leaves.
    path.write_bytes(content[:at] + bytes(512) + content[at + 512 :])
    with refused("data-damaged", path, f"byte {at:,}:"):
        ilsvrc.listing(tars, 1, Silent())


@pytest.mark.parametrize("number", ["n01", "n02", "n03"])
def test_a_tar_without_its_end_is_refused(tars: Path, number: str) -> None:
    """A tar of a class without its end mark is refused, wherever it is in the outer tar.

    The tars of n03, n02 and n01 follow one another.
    """
    content = classes(tars)[f"{number}.tar"].rstrip(b"\0")
    rewrite(tars, **{number: content + bytes(-len(content) % 512)})
    with refused("data-damaged", ilsvrc.TRAIN, "byte"):
        ilsvrc.listing(tars, 1, Silent())


def test_a_class_without_images_is_refused(tars: Path) -> None:
    rewrite(tars, n02=photos.tar({"README.txt": b"x"}))
    with refused("class-empty", "n02.tar"):
        ilsvrc.listing(tars, 1, Silent())


def test_members_that_are_no_images_are_left_out_and_counted(tars: Path) -> None:
    odd = {"README.txt": b"x", ".DS_Store": b"x", "._a.JPEG": b"x"}
    images = {"a.JPEG": photos.jpeg(1), "sub/b.JPEG": photos.jpeg(2)}
    rewrite(tars, n01=photos.tar(images | odd))
    (tars / ilsvrc.TRAIN).write_bytes(photos.tar(classes(tars) | odd))
    listed = ilsvrc.listing(tars, 1, Silent())
    assert [one.name for one in listed.splits["train"][:3]] == [
        "train/n01/a.JPEG", "train/n01/sub/b.JPEG", "train/n02/n02_0.JPEG",
    ]
    assert len(listed.ignored) == 6
    assert f"{ilsvrc.TRAIN}: README.txt" in listed.ignored
    assert listed.encodings == {"jpg"}


def test_what_lies_beside_the_tars_is_told(tars: Path) -> None:
    (tars / "ILSVRC2012_img_test.tar").write_bytes(b"x")
    (tars / "loose.JPEG").write_bytes(photos.jpeg(1))
    (tars / "packed").mkdir()
    (tars / "packed/train-00000.tar").write_bytes(b"x")
    told = Silent()
    found = image_folders.listing_of(tars, tars / "packed", labels=None, in_sequences=False,
                               untrained=False, workers=1, reporter=told)
    assert found.ignored == ["ILSVRC2012_img_test.tar"]
    assert "1 images are left out, because only the tars are read" in told.warnings[0]


def test_a_member_whose_name_is_no_utf8_is_refused(tars: Path) -> None:
    rewrite(tars, n02=photos.tar({"n\udcff.JPEG": b"x"}))
    with refused("name-invalid", r"'n\udcff.JPEG'"):
        ilsvrc.listing(tars, 1, Silent())
