"""Tests of arrays in pieces: any range is read, damage is found, ranks write one checkpoint."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainkit import checkpoint, pieces
from trainkit.checkpoint import Checkpoints
from trainkit.exits import DataError, NoSpaceError
from trainkit.pieces import Piece, Stored
from trainkit.ranks import Ranks
from trainkit.statefile import Foreign, FormError
from trainkit.strategy import Strategy
from trainkit.testing.refusals import refused

TYPES = ("bool", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")


def cut(array: Any, rows: list[int], columns: list[int]) -> list[Piece]:
    """Divide a matrix at the rows `rows` and the columns `columns`, and return the pieces."""
    ends = [[0, *sorted(rows), array.shape[0]], [0, *sorted(columns), array.shape[1]]]
    return [
        Piece(array[top:bottom, left:right], array.shape, (top, left))
        for top, bottom in zip(ends[0], ends[0][1:], strict=False)
        for left, right in zip(ends[1], ends[1][1:], strict=False)
    ]


def write_each(folder: Path, found: list[Piece]) -> list[pieces.File]:
    """Write each piece to a file of its own, and return the files."""
    return [
        pieces.write(folder / f"rank-{number:05d}.safetensors", {"w": piece})
        for number, piece in enumerate(found)
    ]


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)), kind=st.sampled_from(TYPES),
    data=st.data(),
)
def test_any_range_of_an_array_is_read_from_any_pieces(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, int], kind: str, data: Any
) -> None:
    folder = tmp_path_factory.mktemp("pieces")
    array = np.random.default_rng(0).integers(0, 100, shape).astype(kind)
    rows, columns = (
        data.draw(st.lists(st.integers(0, size), max_size=3)) for size in shape
    )
    stored = pieces.stored(folder, write_each(folder, cut(array, rows, columns)))["w"]
    assert (stored.shape, stored.dtype) == (shape, kind)
    first = [data.draw(st.integers(0, size - 1)) for size in shape]
    size = [data.draw(st.integers(0, most - low)) for most, low in zip(shape, first, strict=True)]
    found = stored.read(tuple(first), tuple(size))
    expected = array[first[0] : first[0] + size[0], first[1] : first[1] + size[1]]
    assert isinstance(found, np.ndarray)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, expected)
    whole = stored.read()
    assert isinstance(whole, np.ndarray)
    np.testing.assert_array_equal(whole, array)


def test_numbers_and_types_that_numpy_lacks_are_kept(tmp_path: Path) -> None:
    bits = np.arange(6, dtype=np.uint16)
    file = pieces.write(tmp_path / "a.safetensors", {
        "step": Piece(np.array(7.0, np.float32), (), ()),
        "half": Piece(Foreign(bits, "bfloat16"), (6,), (0,)),
        "none": Piece(np.empty((0, 3), np.float32), (0, 3), (0, 0)),
    })
    found = pieces.stored(tmp_path, [file])
    step, half, none = (found[name].read() for name in ("step", "half", "none"))
    assert isinstance(step, np.ndarray)
    assert step.shape == ()
    assert float(step) == 7.0
    assert isinstance(half, Foreign)
    assert half.dtype == "bfloat16"
    np.testing.assert_array_equal(half.bits, bits)
    assert isinstance(none, np.ndarray)
    assert none.shape == (0, 3)


def test_the_library_reads_the_files(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy", reason="not in the image of each framework")
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    path = tmp_path / "a.safetensors"
    pieces.write(path, {"a": Piece(array, (3, 4), (0, 0)), "b": Piece(array[:1], (3, 4), (0, 0))})
    found = library.load_file(path)
    np.testing.assert_array_equal(found["a"], array)
    np.testing.assert_array_equal(found["b"], array[:1])


def test_missing_and_damaged_pieces_are_named(tmp_path: Path) -> None:
    array = np.arange(16, dtype=np.float32).reshape(4, 4)
    files = write_each(tmp_path, cut(array, [2], []))
    with pytest.raises(FormError, match="not have all pieces of w"):
        pieces.stored(tmp_path, files[:1])
    path = tmp_path / files[1]["name"]
    content = path.read_bytes()
    for wrong in (content[:-1], content + b"x"):
        path.write_bytes(wrong)
        with pytest.raises(FormError, match=rf"{path.name} has {len(wrong)} bytes"):
            pieces.stored(tmp_path, files)
    for place in (0, 9, len(content) // 2, len(content) - 1):
        flipped = bytearray(content)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(FormError, match=rf"{path.name} does not match its checksum"):
            pieces.stored(tmp_path, files)
    path.unlink()
    with pytest.raises(FormError, match=path.name):
        pieces.stored(tmp_path, files)


HEADERS: dict[str, Any] = {
    "no places": {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
    "a type": {"w": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}},
    "beyond the file": {"w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}},
    "before the file": {"w": {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}},
    "another size": {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}},
    "a negative size": {"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, -8]}},
    "outside of the array": {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
    "a list": [1, 2],
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_are_refused(tmp_path: Path, name: str) -> None:
    header = HEADERS[name]
    if name != "no places" and isinstance(header, dict):
        offset = 2 if name == "outside of the array" else 0
        header = {"__metadata__": {"pieces": json.dumps({"w": [[2], [offset]]})}, **header}
    text = json.dumps(header).encode()
    path = tmp_path / "rank-00000.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    checksum = pieces.hashlib.sha256(path.read_bytes()).hexdigest()
    listed: pieces.File = {"name": path.name, "bytes": path.stat().st_size, "sha256": checksum}
    with pytest.raises(FormError):
        pieces.stored(tmp_path, [listed])


class Team:
    """The checkpoint writers of several ranks in one process; their threads exchange values."""

    def __init__(self, folder: Path, size: int, keep: int = 2) -> None:
        self._barrier, self._box = threading.Barrier(size), [None] * size
        self.stores = [
            Checkpoints(folder, keep, _Member(Ranks(rank=rank, size=size), self))
            for rank in range(size)
        ]

    def gather(self, rank: int, value: Any) -> list[Any]:
        self._box[rank] = value
        self._barrier.wait(20)
        found = list(self._box)
        self._barrier.wait(20)
        return found

    def save(self, step: int, value: float) -> None:
        """Write a checkpoint: rank n writes row n of an array, filled with `value` + n."""
        for rank, store in enumerate(self.stores):
            row = np.full((1, 8), value + rank, np.float32)
            piece = Piece(row, (len(self.stores), 8), (rank, 0))
            store.start(step, {"step": step, "parts": {"network": {}}}, {"network/w": piece})
        for store in self.stores:
            store.wait()


class _Member(Strategy):
    def __init__(self, ranks: Ranks, team: Team) -> None:
        super().__init__(ranks)
        self._team = team

    def side_channel(self) -> Callable[[Any], list[Any]]:
        return lambda value: self._team.gather(self.rank, value)


def values(state: checkpoint.State | None) -> list[float]:
    assert state is not None
    array = state["parts"]["network"]["w"]
    assert isinstance(array, Stored)
    found = array.read()
    assert isinstance(found, np.ndarray)
    return [float(value) for value in found[:, 0]]


def quiet(_: str) -> None:
    pass


def test_ranks_write_one_checkpoint_and_anyone_reads_it(tmp_path: Path) -> None:
    team = Team(tmp_path / "checkpoints", 3)
    for step in (1, 2, 3):
        team.save(step, step * 10)
    files = (path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file())
    names = ["", *(f"/rank-0000{rank}.safetensors" for rank in range(3))]
    assert sorted(str(path.relative_to(tmp_path / "checkpoints")) for path in files) == sorted(
        f"step-0000000{step}{name or '.npz'}" for step in (2, 3) for name in names
    )
    state = Checkpoints(tmp_path / "checkpoints").load_newest(quiet)
    assert values(state) == [30, 31, 32]


def test_values_that_change_after_the_start_are_not_written(tmp_path: Path) -> None:
    array = np.zeros((1, 4), np.float32)
    store = Checkpoints(tmp_path)
    state = {"parts": {"network": {}}}
    store.start(1, state, {"network/w": Piece(array, (1, 4), (0, 0))})
    array[:] = 1
    store.wait()
    assert values(store.load_newest(quiet)) == [0]


def damage_shard(folder: Path) -> None:
    path = folder / "step-00000002/rank-00001.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def remove_shard(folder: Path) -> None:
    (folder / "step-00000002/rank-00000.safetensors").unlink()


def remove_folder(folder: Path) -> None:
    for path in (folder / "step-00000002").iterdir():
        path.unlink()
    (folder / "step-00000002").rmdir()


@pytest.mark.parametrize("damage", [damage_shard, remove_shard, remove_folder])
def test_damaged_shards_fall_back_to_the_checkpoint_before(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    team = Team(tmp_path, 2)
    for step in (1, 2):
        team.save(step, step * 10)
    damage(tmp_path)
    with refused(DataError, "checkpoint-damaged", tmp_path / "step-00000002.npz"):
        checkpoint.load(tmp_path / "step-00000002.npz")
    said: list[str] = []
    assert values(team.stores[0].load_newest(said.append)) == [10, 11]
    assert len(said) == 1
    assert (tmp_path / "step-00000002.npz.corrupt").exists()
    assert not (tmp_path / "step-00000002").exists()
    team.save(2, 50)  # the training gets there again
    assert values(team.stores[0].load_newest(quiet)) == [50, 51]


def test_an_abandoned_checkpoint_keeps_its_shards(tmp_path: Path) -> None:
    team = Team(tmp_path, 2)
    for step in (1, 2):
        team.save(step, step * 10)
    team.stores[0].abandon(1, quiet)
    assert values(team.stores[0].load_newest(quiet)) == [10, 11]
    assert len(list((tmp_path / "step-00000002.abandoned").iterdir())) == 2
    assert values(checkpoint.load(tmp_path / "step-00000002.npz.abandoned")) == [20, 21]


def test_what_killed_processes_left_does_not_count_and_is_removed(tmp_path: Path) -> None:
    """Files of incomplete checkpoints are ignored, and removed when a new checkpoint is complete.

    Four ranks were killed while they wrote the checkpoints of the steps 2 and 9.
    """
    team = Team(tmp_path, 2)
    team.save(1, 10)
    for step in (2, 9):
        (tmp_path / f"step-0000000{step}").mkdir()
        for rank in range(4):
            (tmp_path / f"step-0000000{step}/rank-0000{rank}.safetensors").write_bytes(b"half")
    assert values(team.stores[0].load_newest(quiet)) == [10, 11]
    team.save(2, 20)
    assert values(team.stores[0].load_newest(quiet)) == [20, 21]
    assert len(list((tmp_path / "step-00000002").iterdir())) == 2
    assert not (tmp_path / "step-00000009").exists()


def test_a_rank_that_cannot_write_fails_all_and_keeps_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, real = Team(tmp_path, 2), pieces.write
    team.save(1, 10)

    def write(path: Path, own: Any) -> pieces.File:
        if path.name == "rank-00001.safetensors":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, own)

    monkeypatch.setattr(pieces, "write", write)
    with refused(NoSpaceError, "file-unwritable", "step-00000001.npz is intact"):
        team.save(2, 20)
    with refused(NoSpaceError, "file-unwritable", "step-00000001.npz is intact"):
        team.stores[1].wait()
    assert not (tmp_path / "step-00000002.npz").exists()
    monkeypatch.undo()
    team.save(3, 30)
    assert values(team.stores[0].load_newest(quiet)) == [30, 31]


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/step-00000001").symlink_to(tmp_path / "elsewhere")
    with refused(NoSpaceError, "file-unwritable", "link"):
        Team(tmp_path / "checkpoints", 1).save(1, 10)
    assert not list((tmp_path / "elsewhere").iterdir())
