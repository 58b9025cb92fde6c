"""Tokenizers: lossless, the same on every machine, and refused if invalid."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

import writtentexts
from refusals import refused
from trimaran.data.packing import tokenizing
from trimaran.data.packing.tokenizing import END, Encoder
from trimaran.errors import TrimaranError

DOCUMENTS = [writtentexts.document(number) for number in range(50)]
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)
PLACE = Path("tokenizer.json")


@functools.cache
def file(made: str) -> bytes:
    return (tokenizing.of_bytes() if made == "bytes"
            else tokenizing.trained(DOCUMENTS, int(made.partition(":")[2])))


def changed(**changes: Any) -> bytes:
    return json.dumps(json.loads(file("bpe:300")) | changes).encode()


@pytest.mark.parametrize("made", ["bytes", "bpe:257", "bpe:300"])
@settings(deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=5))
def test_tokens_become_the_same_text_again(made: str, texts: list[str]) -> None:
    encoder = Encoder(file(made), PLACE)
    reader = Tokenizer.from_buffer(file(made))
    found = list(encoder.encode([one.encode() for one in texts]))
    for text, tokens in zip(texts, found, strict=True):
        assert tokens.dtype == encoder.token == "uint16"
        assert tokens[-1] == encoder.end
        assert encoder.end not in tokens[:-1]
        assert tokens.max() < encoder.vocabulary
        assert reader.decode(tokens[:-1].tolist()) == text


@settings(deadline=None)
@given(TEXT)
def test_bytes_are_the_tokens_that_the_library_gives(text: str) -> None:
    """Byte tokens of the packer are equal to the tokens of the library.

    The packer computes them itself, because the library takes much longer.
    """
    reader = Tokenizer.from_buffer(file("bytes"))
    (tokens,) = Encoder(file("bytes"), PLACE).encode([text.encode()])
    assert tokens[:-1].tolist() == reader.encode(text).ids == list(text.encode())


@pytest.mark.parametrize("made", ["bytes", "bpe:300"])
def test_the_name_of_the_end_in_a_text_is_text(made: str) -> None:
    encoder = Encoder(file(made), PLACE)
    (tokens,) = encoder.encode([f"a{END}b".encode()])
    assert (tokens == encoder.end).sum() == 1
    assert Tokenizer.from_buffer(file(made)).decode(tokens[:-1].tolist()) == f"a{END}b"


@pytest.mark.parametrize(("made", "vocabulary"), [
    ("bytes", 257), ("bpe:257", 257), ("bpe:300", 300),
])
def test_the_vocabulary_has_its_size_and_ends_with_the_end(made: str, vocabulary: int) -> None:
    encoder = Encoder(file(made), PLACE)
    assert (encoder.vocabulary, encoder.end) == (vocabulary, vocabulary - 1)


def test_a_small_text_gives_a_smaller_vocabulary() -> None:
    assert Encoder(tokenizing.trained(["ab"], 10_000), PLACE).vocabulary == 258


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_bpe_is_the_same_for_any_number_of_threads(threads: int) -> None:
    """A BPE tokenizer is the same for any number of threads with which it is trained.

    Each training has its own process, because the library sets threads and hash seeds only once.
    """
    program = (
        "import sys, writtentexts; from trimaran.data.packing import tokenizing\n"
        f"tokenizing.use_threads({threads})\n"
        "found = tokenizing.trained([writtentexts.document(n) for n in range(50)], 300)\n"
        "sys.stdout.buffer.write(found)"
    )
    path = os.pathsep.join([str(Path(writtentexts.__file__).parent), *sys.path])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True,
                          timeout=60, env=os.environ | {"PYTHONPATH": path})
    assert done.stdout == file("bpe:300")


def test_a_large_vocabulary_has_four_bytes_a_token() -> None:
    words = {f"w{number}": number for number in range(65536)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))  # noqa: S106 - no password
    tokenizer.add_special_tokens([END])
    encoder = Encoder(tokenizer.to_str().encode(), PLACE)
    assert (encoder.vocabulary, encoder.token, encoder.unknown) == (65537, "uint32", 0)
    (tokens,) = encoder.encode([b"w65535"])
    assert tokens.tolist() == [65535, 65536]


def test_truncation_and_padding_of_a_file_are_not_used() -> None:
    """Settings for truncation and padding in a tokenizer file are ignored.

    Truncation would lose text, and padding would add tokens that are not in the text.
    """
    tokenizer = Tokenizer.from_buffer(file("bpe:300"))
    plain = tokenizer.encode("the ship sails").ids
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    encoder = Encoder(tokenizer.to_str().encode(), PLACE)
    (tokens,) = encoder.encode([b"the ship sails"])
    assert tokens[:-1].tolist() == plain


@pytest.mark.parametrize("content", [
    b"", b"{}", b"null", b"[]", b"\xff", b"PK\x03\x04", changed(model=None),
    changed(added_tokens=[]), changed(model={"type": "BPE"}), changed(version="9.0"),
])
def test_what_is_no_tokenizer_is_refused(content: bytes) -> None:
    with refused("tokenizer-invalid", PLACE):
        Encoder(content, PLACE)


def test_an_end_that_is_not_special_is_refused() -> None:
    """A tokenizer is refused if its end token is not a special token.

    The library would also find such an end token within a text.
    """
    token = {**json.loads(file("bpe:300"))["added_tokens"][0], "special": False}
    with refused("tokenizer-invalid", END):
        Encoder(changed(added_tokens=[token]), PLACE)


def unigram(*more: tuple[str, float]) -> bytes:
    """Return a tokenizer file with a Unigram model; `more` adds tokens to its vocabulary."""
    pieces = [("<unk>", 0.0), ("a", -1.0), ("<", -5.0), ("/", -5.0), ("s", -3.0), (">", -5.0)]
    tokenizer = Tokenizer(models.Unigram([*pieces, *more], unk_id=0))
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer.to_str().encode()


def test_unknown_text_is_found_in_each_type_of_model() -> None:
    encoder = Encoder(unigram(), PLACE)
    (tokens,) = encoder.encode(["aé".encode()])
    assert encoder.unknown == 0
    assert tokens.tolist() == [1, 0, encoder.end]


def test_an_end_that_a_text_can_contain_is_refused() -> None:
    Encoder(unigram(), PLACE)
    with refused("tokenizer-invalid", PLACE, "the text </s> becomes the token"):
        Encoder(unigram(("</s>", 0.0)), PLACE)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_one_error(content: bytes) -> None:
    with pytest.raises(TrimaranError):
        Encoder(content, PLACE)


@pytest.mark.parametrize(("text", "made"), [("bytes", "bytes"), ("bpe:257", "bpe:257"),
                                            ("bpe:0300", "bpe:300")])
def test_a_choice_is_read(text: str, made: str) -> None:
    assert tokenizing.choice(text).made == made


@pytest.mark.parametrize(("text", "code"), [
    ("bpe:256", "argument-invalid"), ("bpe:0", "argument-invalid"),
    ("bpe:4294967297", "argument-invalid"), ("bpe:", "file-missing"), ("bpe", "file-missing"),
    ("missing.json", "file-missing"), (".", "file-missing"), ("", "file-missing"),
])
def test_a_choice_that_cannot_be_is_refused(text: str, code: str, tmp_path: Path) -> None:
    with refused(code, "--tokenizer"):
        tokenizing.choice(text, tmp_path)
