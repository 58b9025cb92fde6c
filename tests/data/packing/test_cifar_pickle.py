"""The Python form of CIFAR-10 is read without executing it; other pickles are refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cifars
from cifars import PIXELS, array, batch, listed, number, text
from trimaran.data.packing import cifar_pickle
from trimaran.data.packing.cifar_pickle import NotABatchError, records

LABELS, IMAGES = cifars.images("test_batch.bin")
GOOD = cifars.python(LABELS, IMAGES)
TABLE = array(7, PIXELS, IMAGES)
CLASSES = listed([number(label) for label in LABELS])


@given(st.binary(min_size=1, max_size=5), st.integers(0, 255), st.booleans())
def test_a_batch_becomes_its_binary_form(drawn: bytes, shift: int, by_columns: bool) -> None:
    labels = bytes(value % 10 for value in drawn)
    pixels = bytes((place * 31 + shift) % 256 for place in range(PIXELS * len(labels)))
    content = cifars.python(labels, pixels, by_columns=by_columns)
    assert records(content) == cifars.binary(labels, pixels)


def test_more_labels_than_one_operation_appends_are_read() -> None:
    labels = bytes(at % 10 for at in range(2500))
    assert records(cifars.python(labels, bytes(PIXELS * 2500)))[::3073] == labels


def test_a_pickle_that_python_reads_has_the_same_entries() -> None:
    """Python's own reader finds the same labels, so the pickles of these tests are valid."""
    content = batch({b"labels": CLASSES, b"filenames": listed([text(b"a.png")])})
    assert pickle.loads(content, encoding="bytes") == {  # noqa: S301 - made by this test
        b"labels": list(LABELS), b"filenames": [b"a.png"],
    }


def test_nothing_that_a_file_names_is_called(tmp_path: Path) -> None:
    """Python's own reader would run the command in the file; this reader names it in an error."""
    victim = tmp_path / "victim"
    content = pickle.dumps(_Hostile(victim), protocol=2)
    with pytest.raises(NotABatchError, match="refers to 'posix system'"):
        records(content)
    assert not victim.exists()


class _Hostile:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[object, ...]:
        import os

        return os.system, (f"touch {self.victim}",)


CALLS_DTYPE_OF = batch({b"data": b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R"})


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "incomplete"),
        (GOOD[:-1], "incomplete"),
        (GOOD[:5000], "expected 21504 bytes in a string4"),
        (GOOD + b"x", "does not end with one dictionary"),
        (b"\x80\x02K\x01K\x02.", "does not end with one dictionary"),
        (b"\x80\x02(K\x01.", "does not end with one dictionary"),
        (b"\x80\x02K\x01.", "no dictionary"),
        (b"\x80\x04.", "protocol 4, not 2"),
        (b"\xff", "operation 0xff"),
        (b"\x80\x02c__builtin__\neval\n.", "'__builtin__ eval'"),
        (b"\x80\x02cnumpy.core.multiarray\nfromfile\n.", "multiarray fromfile"),
        (b"\x80\x02ios\nsystem\n.", "operation INST"),
        (b"\x80\x02X\x01\x00\x00\x00a.", "operation BINUNICODE"),
        (b"\x80\x02\x82\x01.", "operation EXT1"),
        (b"\x80\x02Pa\n.", "operation PERSID"),
        (b"\x80\x02L" + b"9" * 10_000 + b"L\n.", "operation LONG"),
        (b"\x80\x02h\x05.", "BINGET lacks its operand"),
        (b"\x80\x02R.", "REDUCE lacks its operand"),
        (b"\x80\x02e.", "APPENDS lacks its operand"),
        (b"\x80\x02}K\x01a.", "no list"),
        (b"\x80\x02](K\x01K\x02u.", "no dictionary"),
        (b"\x80\x02}(U\x01au.", "no dictionary"),
        (b"\x80\x02}(]K\x01u.", "a key is not a string"),
        (b"\x80\x02}U\x01bb.", "something else than an array"),
        (CALLS_DTYPE_OF, "constructs something else"),
        (batch({b"labels": CLASSES}), "'data' is missing"),
        (batch({b"data": TABLE}), "'labels' or the array"),
        (batch({b"labels": TABLE, b"data": CLASSES}), "'labels' or the array"),
        (batch({b"labels": listed([]), b"data": TABLE}), "0 labels and 7 images"),
        (batch({b"labels": listed([number(1)]), b"data": TABLE}), "1 labels and 7 images"),
        (batch({b"labels": listed([number(10)] * 7), b"data": TABLE}), "image 0 is not a class"),
        (batch({b"labels": listed([number(-1)] * 7), b"data": TABLE}), "image 0 is not a class"),
        (batch({b"labels": listed([b"\x88"] * 7), b"data": TABLE}), "image 0 is not a class"),
        (batch({b"labels": listed([text(b"1")] * 7), b"data": TABLE}), "image 0 is not a class"),
        (batch({b"labels": CLASSES, b"data": array(7, 5, bytes(35))}), "5 values, not 3,072"),
        (batch({b"data": array(7, PIXELS, IMAGES[:-1])}), "is incomplete"),
        (batch({b"data": array(7, PIXELS, IMAGES + b"x")}), "is incomplete"),
        (batch({b"data": array(1 << 30, PIXELS, b"x")}), "is incomplete"),
        (batch({b"data": array(-7, -PIXELS, IMAGES)}), "is incomplete"),
        (batch({b"data": array(0, PIXELS, b"")}), "is incomplete"),
        (batch({b"data": array(7, PIXELS, IMAGES, kind=b"f4")}), "constructs something else"),
    ],
)
def test_anything_else_is_refused_with_its_fault(content: bytes, fault: str) -> None:
    with pytest.raises(NotABatchError) as caught:
        records(content)
    assert fault in str(caught.value)


def test_an_array_without_its_state_has_no_images() -> None:
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    with pytest.raises(NotABatchError, match="0 values"):
        records(batch({b"labels": CLASSES, b"data": empty}))


def test_a_bomb_ends_soon() -> None:
    """A pickle that would expand without limit is refused at once.

    Nested lists of references double in size with each operation, but are never expanded.
    """
    doubling = b"\x80\x02]q\x00" + b"".join(b"](h%ch%ceq%c" % (at, at, at + 1) for at in range(99))
    with pytest.raises(NotABatchError, match="does not end with one dictionary"):
        records(doubling + b".")
    with pytest.raises(NotABatchError, match="more than 100,000 operations"):
        records(b"\x80\x02" + b"]" * 100_001 + b".")
    with pytest.raises(NotABatchError, match="larger than"):
        records(bytes(cifar_pickle.LARGEST + 1))


def test_a_list_that_contains_itself_is_refused() -> None:
    with pytest.raises(NotABatchError, match="image 0 is not a class"):
        records(batch({b"labels": b"]q\x05(" + b"h\x05" * 7 + b"e", b"data": TABLE}))


def test_a_tuple_that_is_nested_deeply_is_refused() -> None:
    deep = b"K\x01" + b"\x85" * 90_000
    with pytest.raises(NotABatchError, match="constructs something else"):
        records(b"\x80\x02cnumpy\ndtype\n" + deep + b"R.")


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_or_read(content: bytes) -> None:
    for beginning in (b"", b"\x80\x02", b"\x80\x02}(U\x04data"):
        with pytest.raises(NotABatchError):
            records(beginning + content)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_changed_byte_gives_a_batch_or_an_error(at: int, value: int) -> None:
    changed = GOOD[:at] + bytes([value]) + GOOD[at + 1 :]
    try:
        found = records(changed)
    except NotABatchError:
        return
    assert len(found) == 7 * 3073
