"""Tests of token shards: written documents are read back, and damage is reported."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards import formats
from shards.description import Dataset, PackedSplit, Shard, TextFacts, Tokenizer
from shards.errors import ShardError
from shards.formats import tokens
from shards.formats.tokens import Reader
from shards.kinds import Kind, TokenType

END = 7
TWO: TokenType = "uint16"
LARGEST: dict[TokenType, int] = {"uint16": 0xFFFF, "uint32": 0xFFFF_FFFF}


def facts(token: TokenType = TWO, vocabulary: int | None = None) -> TextFacts:
    return TextFacts(
        token=token, vocabulary=vocabulary or LARGEST[token] + 1, end=END,
        tokenizer=Tokenizer(file="tokenizer.json", sha256="0" * 64, made="bytes"),
        documents="file", held_out="folders",
    )


def write(
    folder: Path, documents: list[list[int]], token: TokenType = TWO, stem: str = "train-00000"
) -> Shard:
    """Write documents as a shard; the end token is appended to each document."""
    arrays = [np.array([*one, END], token) for one in documents]
    return tokens.write(folder, stem, token, arrays, 100)


def described(shard: Shard, token: TokenType = TWO) -> Dataset:
    return Dataset(name="a", format="tokens", classes=[], labels="none", sample="text",
                   text=facts(token), splits={"train": PackedSplit.of([shard])})


@st.composite
def texts(draw: st.DrawFn) -> tuple[TokenType, list[list[int]]]:
    token: TokenType = draw(st.sampled_from(["uint16", "uint32"]))
    one = st.integers(0, LARGEST[token]).filter(lambda value: value != END)
    return token, draw(st.lists(st.lists(one, min_size=1, max_size=20), min_size=1, max_size=20))


@settings(deadline=None)
@given(texts())
def test_what_was_written_is_read(text: tuple[TokenType, list[list[int]]]) -> None:
    token, documents = text
    with tempfile.TemporaryDirectory() as name:
        shard = write(Path(name), documents, token)
        reader = Reader(Path(name, shard.file))
        assert reader.tokens.dtype == token
        assert reader.ends.dtype == np.int64
        assert reader.ends[-1] == len(reader.tokens) == shard.tokens
        assert [reader.document(at).tolist() for at in range(len(reader))] == [
            [*one, END] for one in documents
        ]
        assert (shard.samples, shard.text_bytes) == (len(documents), 100)
        assert list(tokens.scan(reader.path, shard, facts(token))) == []
        (again,) = tokens.open_split(Path(name), described(shard, token), "train")
        assert np.array_equal(again.tokens, reader.tokens)


def test_the_layout_is_that_of_safetensors(tmp_path: Path) -> None:
    """Header and arrays of a shard must be at the positions that safetensors specifies."""
    shard = write(tmp_path, [[1, 2], [3]])
    content = (tmp_path / shard.file).read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, arrays = json.loads(content[8 : 8 + size]), content[8 + size :]
    assert header == {
        "ends": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]},
        "tokens": {"dtype": "U16", "shape": [5], "data_offsets": [16, 26]},
    }
    assert np.frombuffer(arrays[:16], "<i8").tolist() == [3, 5]
    assert np.frombuffer(arrays[16:], "<u2").tolist() == [1, 2, END, 3, END]
    assert size % 8 == 0, "the arrays are aligned"


def test_the_tokens_are_mapped_and_cannot_be_changed(tmp_path: Path) -> None:
    reader = Reader(tmp_path / write(tmp_path, [[1, 2], [3]]).file)
    with pytest.raises(ValueError, match="read-only"):
        reader.tokens[0] = 1


@settings(deadline=None)
@given(st.integers(0, 400))
def test_a_shard_that_is_cut_off_anywhere_is_an_error(size: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        shard = write(Path(name), [list(range(8, 90)), [1]])
        path = Path(name, shard.file)
        content = path.read_bytes()
        path.write_bytes(content[: min(size, len(content) - 1)])
        with pytest.raises(ShardError, match=path.name):
            Reader(path)
        assert len(list(tokens.scan(path, shard, facts()))) == 1
        with pytest.raises(ShardError, match="truncated"):
            tokens.open_split(Path(name), described(shard), "train")


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_is_found_in_header_and_ends(at: int, change: int) -> None:
    """`scan` must report exactly one fault for a changed byte of the header or of the array `ends`.

    The test changes no token, because only the checksum can find a changed token.
    """
    with tempfile.TemporaryDirectory() as name:
        shard = write(Path(name), [[1, 2], [3]])
        path = Path(name, shard.file)
        content = bytearray(path.read_bytes())
        at %= len(content) - 10  # the tokens
        content[at] ^= change
        path.write_bytes(content)
        found = list(tokens.scan(path, shard, facts()))
        assert len(found) == 1, found


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_shard_or_one_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "a.safetensors")
        path.write_bytes(content)
        with pytest.raises(ShardError, match=r"a\.safetensors"):
            Reader(path)


@pytest.mark.parametrize("header", [
    [], {}, None, {"ends": 1, "tokens": 2}, {"ends": {"shape": []}, "tokens": {"shape": [1]}},
    {"ends": {"shape": [-1]}, "tokens": {"shape": [5], "dtype": "U16"}},
    {"ends": {"shape": [2**70]}, "tokens": {"shape": [5], "dtype": "U16"}},
    {"ends": {"shape": ["a"]}, "tokens": {"shape": [None], "dtype": "U16"}},
    {"ends": {"shape": [0]}, "tokens": {"shape": [0], "dtype": "U16"}},
    {"ends": {"shape": [2]}, "tokens": {"shape": [5], "dtype": "F32"}},
    *({"ends": {"dtype": "I64", "shape": [documents], "data_offsets": [0, 8 * documents]},
       "tokens": {"dtype": "U16", "shape": [count],
                  "data_offsets": [8 * documents, 8 * documents + 2 * count]}}
      for documents, count in ((1.0, 46), (1, 46.0), (True, 46), (1, -1), (13, -2), (0, 50))),
])
def test_a_header_of_other_arrays_is_refused(header: Any, tmp_path: Path) -> None:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(100))
    with pytest.raises(ShardError, match="no header of a token shard"):
        Reader(path)


@pytest.mark.parametrize("ends", [
    [0, 4, 6], [4, 4, 6], [5, 4, 6], [-1, 4, 6], [2, 4, 5], [2, 4, 7],
])
def test_ends_that_do_not_increase_up_to_the_tokens_are_refused(
    ends: list[int], tmp_path: Path
) -> None:
    path = tmp_path / write(tmp_path, [[1], [2], [3]]).file
    assert Reader(path).ends.tolist() == [2, 4, 6]
    replace_ends(path, ends)
    with pytest.raises(ShardError, match="do not increase up to its 6 tokens"):
        Reader(path)


def test_ends_whose_differences_overflow_are_refused(tmp_path: Path) -> None:
    path = tmp_path / write(tmp_path, [[1]] * 5).file
    ends = [1, 2**63 - 1, -(2**63), -1, 10]
    assert np.all(np.diff(np.array(ends)) > 0), "as numbers of 64 bits"
    replace_ends(path, ends)
    with pytest.raises(ShardError, match="do not increase"):
        Reader(path)


def replace_ends(path: Path, ends: list[int]) -> None:
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    new = np.array(ends, "<i8").tobytes()
    path.write_bytes(content[:start] + new + content[start + len(new):])


def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="does not exist"):
        Reader(tmp_path / "a")
    with pytest.raises(ShardError, match="cannot be read"):
        Reader(tmp_path)


@pytest.mark.parametrize(("change", "fault"), [
    ({"samples": 3}, "documents"), ({"tokens": 9}, "tokens"),
])
def test_what_the_description_lists_must_be_there(
    change: dict[str, int], fault: str, tmp_path: Path
) -> None:
    shard = dataclasses.replace(write(tmp_path, [[1, 2], [3]]), **change)
    assert fault in next(tokens.scan(tmp_path / shard.file, shard, facts()))
    with pytest.raises(ShardError, match=fault):
        tokens.open_split(tmp_path, described(shard), "train")


def test_another_type_of_token_is_found(tmp_path: Path) -> None:
    shard = write(tmp_path, [[1, 2], [3]], "uint32")
    assert "uint32, uint16 is listed" in next(tokens.scan(tmp_path / shard.file, shard, facts()))
    with pytest.raises(ShardError, match="of the type: uint32"):
        tokens.open_split(tmp_path, described(shard), "train")


def test_a_token_beyond_the_vocabulary_is_found_with_its_place(tmp_path: Path) -> None:
    shard = write(tmp_path, [[1, 2], [300]])
    (fault,) = tokens.scan(tmp_path / shard.file, shard, facts(vocabulary=300))
    assert "token 300 at position 3" in fault


@pytest.mark.parametrize("documents", [[[1, END, 2], [3]], [[1], [2, END]]])
def test_an_end_within_a_document_is_found(documents: list[list[int]], tmp_path: Path) -> None:
    shard = write(tmp_path, documents)
    (fault,) = tokens.scan(tmp_path / shard.file, shard, facts())
    assert "wrong end of document" in fault


def test_a_document_that_does_not_end_is_found(tmp_path: Path) -> None:
    shard = tokens.write(tmp_path, "train-00000", "uint16",
                         [np.array([1, END], "u2"), np.array([2, 3], "u2")], 3)
    (fault,) = tokens.scan(tmp_path / shard.file, shard, facts())
    assert "wrong end of document 1" in fault


def test_a_text_and_images_have_different_formats() -> None:
    text = Kind(labels="none", sample="text")
    assert text.word == "text"
    assert formats.can_hold("tokens", text)
    assert not formats.can_hold("tokens", Kind())
    assert not formats.can_hold("webdataset", text)
