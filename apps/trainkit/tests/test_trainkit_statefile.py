"""Tests of the checkpoint format: supported values are restored, all others are refused."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays

from trainkit import checkpoint, statefile
from trainkit.exits import DataError
from trainkit.statefile import Foreign, FormError

NUMBERS = (
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text()
)
ARRAYS = arrays.arrays(
    arrays.boolean_dtypes() | arrays.integer_dtypes(endianness="=")
    | arrays.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
TREES = some.recursive(
    NUMBERS | ARRAYS,
    lambda inner: some.lists(inner, max_size=3) | some.tuples(inner, inner)
    | some.dictionaries(some.text() | some.integers(), inner, max_size=3),
    max_leaves=8,
)


def written(state: Any, folder: Path) -> Path:
    path = folder / "state.npz"
    with path.open("wb") as file:
        statefile.write(state, file)
    return path


def same(one: Any, two: Any) -> bool:
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.dictionaries(some.text(), TREES, max_size=4))
def test_what_is_written_is_read(tmp_path: Path, state: dict[str, Any]) -> None:
    found = statefile.read(written(state, tmp_path))
    assert same(found, state)
    assert repr(found).replace("array", "") == repr(state).replace("array", "")  # types, too


def test_numbers_that_json_lacks_come_back(tmp_path: Path) -> None:
    found = statefile.read(written({"a": [float("inf"), float("-inf"), float("nan")]}, tmp_path))
    assert repr(found["a"]) == "[inf, -inf, nan]"


def test_a_type_that_numpy_lacks_comes_back_with_its_name(tmp_path: Path) -> None:
    bits = np.arange(6, dtype=np.uint16).reshape(2, 3)
    found = statefile.read(written({"a": Foreign(bits, "bfloat16")}, tmp_path))["a"]
    assert isinstance(found, Foreign)
    assert found.dtype == "bfloat16"
    assert same(found.bits, bits)


def test_any_order_in_memory_has_the_same_values(tmp_path: Path) -> None:
    whole = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    for view in (whole.transpose(0, 2, 3, 1), whole.T, whole[:, ::2], whole[0, 0, 0]):
        assert np.array_equal(statefile.read(written({"a": view}, tmp_path))["a"], view)


def test_numpy_reads_it_and_equal_states_are_equal_files(tmp_path: Path) -> None:
    state = {"a": np.arange(3), "b": {"c": np.ones(2)}}
    first = written(state, tmp_path).read_bytes()
    path = written(state, tmp_path)
    assert path.read_bytes() == first
    with np.load(path, allow_pickle=False) as found:
        assert found["0"].tolist() == [0, 1, 2]
        assert json.loads(found["state.json"])["b"] == {"c": {"$array": 1}}


def test_what_is_read_can_be_changed(tmp_path: Path) -> None:
    statefile.read(written({"a": np.ones(2)}, tmp_path))["a"][0] = 7


@pytest.mark.parametrize(("value", "said"), [
    (object(), "/a/1 is a object"), (np.array([None]), "/a/1 is a array of object"),
    (np.float32(1), "/a/1 is a float32"), ({1, 2}, "/a/1 is a set"),
])
def test_what_it_cannot_hold_is_refused_with_its_place(
    value: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(FormError, match=said):
        written({"a": [0, value]}, tmp_path)


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def lying() -> bytes:
    """Return a damaged .npy file: it has 8 bytes of data, but its header states 8 terabytes."""
    return npy(np.zeros(1)).replace(b"(1,), }            ", b"(999999999999,), } ")


ONE = {"a": {"$array": 0}}


@pytest.mark.parametrize(("tree", "entries", "said"), [
    (ONE, {"0.npy": npy(np.array([None]))}, "array of object"),
    (ONE, {"0.npy": npy(np.zeros(1, "i4,f4"))}, "it has an array of"),
    (ONE, {"0.npy": npy(np.zeros(2, ">f4"))}, "array of >f4"),
    (ONE, {"0.npy": lying()}, "an array of 8 bytes with the shape"),
    (ONE, {"0.npy": npy(np.zeros(2))[:-1]}, "an array of 15 bytes with the shape"),
    (ONE, {"0.npy": b"\x93NUMPY\x03\x00" + b"\0" * 80}, "version"),
    (ONE, {"0.npy": b"nothing"}, "damaged"),
    (ONE, {}, r"unknown form \(\$array\)"),
    ({}, {"0.npy": npy(np.zeros(1))}, "belong to nothing"),
    (ONE, {"1.npy": npy(np.zeros(1))}, "other entries"),
    (ONE, {"0.npy": npy(np.zeros(1)), "x.npy": b""}, "other entries"),
    ({"a": {"$eval": "1"}}, {}, r"unknown form \(\$eval\)"),
    ({"a": {"$dict": [[[1], 2]]}}, {}, r"unknown form \(\$dict\)"),
    ([], {}, "no names"),
    ("[" * 100_000, {}, "damaged"),
    ("x", {}, "damaged"),
])
def test_what_nobody_wrote_is_refused(
    tree: Any, entries: dict[str, bytes], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "step-00000001.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("state.json", tree if isinstance(tree, str) else json.dumps(tree))
        for name, content in entries.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match=said):
        checkpoint.load(path)


def compressed(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("state.json", "{}" + " " * 100_000)


def overlapping(path: Path) -> None:
    """Write a zip file with two entries for the same bytes: the content exceeds the file size."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("state.json", json.dumps({"a": [{"$array": 0}, {"$array": 1}]}))
        archive.writestr("0.npy", npy(np.zeros(1000)))
        again = zipfile.ZipInfo("1.npy")
        first = archive.getinfo("0.npy")
        for name in ("header_offset", "file_size", "compress_size", "CRC"):
            setattr(again, name, getattr(first, name))
        archive.filelist.append(again)
        archive.NameToInfo["1.npy"] = again


@pytest.mark.parametrize(("make", "said"), [
    (compressed, "compressed"), (overlapping, "larger than they can be"),
])
def test_a_file_that_is_larger_inside_than_outside_is_refused(
    make: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    make(tmp_path / "step-00000001.npz")
    with pytest.raises(DataError, match=said):
        checkpoint.load(tmp_path / "step-00000001.npz")
