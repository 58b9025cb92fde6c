"""Sequences of moving items: always the same, within the frame, with the specified motion."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import datasets
from refusals import refused
from trimaran.data import cache, contracts, dataset_json, sources
from trimaran.data.packing import idx
from trimaran.data.packing.moving_reader import Flight, Motion, Moving, Scenes
from trimaran.reporting import Silent

MOTION = Motion(side=9, frames=6, items=2, speed=2, seed=1)


@pytest.fixture
def documents(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the contract of the data set `moved`, made from images of the data set `small`."""
    world = tmp_path / "world"
    datasets.write(checkout / "recipes/data/small.yaml", datasets.document(world))
    for variable in ("DEBIAN", "SNAPSHOT", "PYPI"):
        monkeypatch.setattr(sources, variable, f"{world.as_uri()}/none/")
    return {
        "schema": 1, "name": "moved", "title": "Moved", "citation": "nobody, 2020",
        "licence": {"id": "MIT", "url": "https://example.org/licence", "holder": "nobody"},
        "homepage": "https://example.org/", "reader": "moving", "from": "small",
        "motion": MOTION.model_dump(),
        "splits": {
            "train": {"samples": 7, "images": "train-images"},
            "test": {"samples": 2, "images": "test-images"},
        },
    }


def load(checkout: Path, document: dict[str, Any]) -> Moving:
    datasets.write(checkout / "recipes/data/moved.yaml", document)
    found = contracts.load("moved")
    assert isinstance(found, Moving)
    return found


def scenes(motion: Motion = MOTION) -> Scenes:
    pixels = bytes(1 + value * 37 % 255 for value in range(5 * 3 * 4))
    return Scenes("train", motion, 7, idx.Array((5, 3, 4), pixels))


def test_the_sequences_are_these_for_ever() -> None:
    """The pixels of the sequences never change: they have the committed hash.

    With other pixels, earlier results on moving-fashion would belong to another data set.
    """
    digest = hashlib.sha256()
    for number in range(7):
        for frame in scenes().frames(number):
            digest.update(frame.tobytes())
    assert digest.hexdigest() == GOLDEN


GOLDEN = "e67a21c8b1eb871db00a9d5ab97b2137a1e700dcee57fb520477c30a413cd868"


@given(st.integers(0, 40), st.integers(-9, 9), st.integers(0, 40))
def test_an_item_flies_straight_and_bounces_at_the_walls(
    begin: int, velocity: int, room: int
) -> None:
    begin %= room + 1
    flight, at, step = Flight(begin, velocity, room), begin, velocity
    for frame in range(20):
        assert flight.at(frame) == at
        for _ in range(abs(step)):  # pixel by pixel, as one would throw it
            if not 0 <= at + (step > 0) - (step < 0) <= room:
                step = -step
            at += ((step > 0) - (step < 0)) if room else 0


def test_every_item_moves_and_is_whole_in_every_frame() -> None:
    found = scenes()
    for number in range(7):
        flights = [found.flight(number, item) for item in range(MOTION.items)]
        for at, frame in enumerate(found.frames(number)):
            assert frame.size == (9, 9)
            for image, across, down in flights:
                assert across.velocity or down.velocity
                left, top = across.at(at), down.at(at)
                seen = frame.crop((left, top, left + image.width, top + image.height))
                pairs = zip(seen.tobytes(), image.tobytes(), strict=True)
                assert all(here >= own for here, own in pairs), "or something lighter over it"


def test_splits_and_seeds_have_other_sequences() -> None:
    first = [frame.tobytes() for frame in scenes().frames(0)]
    other = scenes(MOTION.model_copy(update={"seed": 2}))
    assert [frame.tobytes() for frame in other.frames(0)] != first
    assert [frame.tobytes() for frame in scenes().frames(1)] != first
    named = Scenes("test", MOTION, 7, scenes().items)
    assert [frame.tobytes() for frame in named.frames(0)] != first


def test_the_data_set_is_got_like_any_other(checkout: Path, documents: dict[str, Any]) -> None:
    contract = load(checkout, documents)
    assert (contract.kind.word, contract.classes) == ("sequence", [])
    folder = cache.get(contract, offline=False, reporter=Silent())
    assert cache.state(contract) == "packed"
    assert cache.verify(contract, reporter=Silent(), workers=1) == []
    dataset = dataset_json.read(folder)
    assert dataset.kind == contract.kind
    assert (dataset.image.channels, dataset.image.height, dataset.image.width) == (1, 9, 9)
    assert dataset_json.mismatches(contract, dataset, {}) == []
    with tarfile.open(folder / "test-00000.tar") as tar:
        found = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    assert sorted(found) == [f"0000000{at // 6}.{at % 6:06}.png" for at in range(12)]
    made = contract.read(folder.parent / "raw", "test")
    for number in range(2):
        for at, frame in enumerate(made.frames(number)):
            packed = Image.open(io.BytesIO(found[f"{number:08}.{at:06}.png"]))
            assert packed.tobytes() == frame.tobytes()


def test_mean_and_deviation_are_those_of_the_frames() -> None:
    found = scenes()
    values = b"".join(frame.tobytes() for number in range(7) for frame in found.frames(number))
    assert found.histogram() == [values.count(value) for value in range(256)]


@pytest.mark.parametrize(
    ("edit", "code", "fault"),
    [
        (lambda d: d.update({"from": "smal"}), "name-unknown", "smal"),
        (lambda d: d.update({"from": "moved"}), "file-invalid", "reader: Input should be 'idx'"),
        (lambda d: d.pop("from"), "file-invalid", "from: is missing"),
        (lambda d: d.update(files={}), "file-invalid", "files: "),
        (lambda d: d["splits"]["train"].update(images="a"), "file-invalid",
         "names a, which"),
        (lambda d: d["splits"].pop("train"), "file-invalid", "'train' is missing"),
        (lambda d: d["motion"].update(speed=0), "file-invalid", "motion.speed"),
        (lambda d: d.update(reader="moving2"), "file-invalid",
         "reader: Input should be 'idx', 'moving'"),
        (lambda d: d.update(classes=["a"]), "file-invalid", "classes: unknown key"),
    ],
)
def test_a_faulty_contract_is_named(
    checkout: Path, documents: dict[str, Any], edit: Callable[[dict[str, Any]], object], code: str,
    fault: str,
) -> None:
    edit(documents)
    with refused(code, fault):
        load(checkout, documents)


def test_items_larger_than_the_frame_are_refused(
    checkout: Path, documents: dict[str, Any]
) -> None:
    documents["motion"]["side"] = 3
    with refused("data-mismatch", "4x3 pixels", "3x3"):
        cache.get(load(checkout, documents), offline=False, reporter=Silent())


def test_a_packed_set_of_another_kind_is_told(checkout: Path, documents: dict[str, Any]) -> None:
    contract = load(checkout, documents)
    folder = cache.get(contract, offline=False, reporter=Silent())
    other = replace(dataset_json.read(folder), sample="image", labels="class")
    assert dataset_json.mismatches(contract, other, {}) == [
        "its samples are 'class', not 'sequence'"
    ]
