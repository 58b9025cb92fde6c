"""Test the n-gram model and xz against a plain computation, and on texts of known entropy."""

from __future__ import annotations

import lzma
import math
import shutil
import subprocess
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from language_model import yardsticks

DOCUMENTS = st.lists(st.text("ab c", min_size=1, max_size=12).map(str.encode), min_size=1,
                     max_size=6)


def plain(training: list[bytes], held_out: list[bytes], order: int) -> float:
    """Return the bits per byte of an n-gram model, computed byte by byte from the formula."""
    before = b"\0" * (order - 1)
    counted, text = (before + b"".join(one + b"\0" for one in documents)
                     for documents in (training, held_out))
    counts: dict[bytes, Counter[int]] = defaultdict(Counter)
    for at in range(order - 1, len(counted)):
        for length in range(order):
            counts[counted[at - length : at]][counted[at]] += 1

    def probability(context: bytes, byte: int) -> float:
        lower = probability(context[1:], byte) if context else 1 / 256
        seen = counts.get(context, Counter[int]())
        if not seen:
            return lower
        return (seen[byte] + len(seen) * lower) / (seen.total() + len(seen))

    bits = sum(-math.log2(probability(text[at - order + 1 : at], text[at]))
               for at in range(order - 1, len(text)))
    return bits / sum(map(len, held_out))


@settings(deadline=None)
@given(DOCUMENTS, DOCUMENTS, st.integers(1, 6))
def test_the_n_gram_model_is_that_of_the_formula(
    training: list[bytes], held_out: list[bytes], order: int
) -> None:
    found = yardsticks.ngram_bits_per_byte(training, held_out, order)
    assert found == pytest.approx(plain(training, held_out, order), rel=1e-9)


@settings(deadline=None)
@given(DOCUMENTS, st.binary(min_size=3, max_size=3))
def test_the_probabilities_of_all_bytes_sum_to_one(training: list[bytes], context: bytes) -> None:
    text = yardsticks.joined([*training, b"abc"])
    probability = np.full(256, 1 / 256)
    for length in range(1, 5):
        begin = int.from_bytes(context[4 - length :], "big") << 8
        grams = np.arange(begin, begin + 256, dtype=np.uint64)
        counts = yardsticks.Counts(yardsticks.grams_of(text, length))
        probability = counts.interpolated(grams, probability)
        assert probability.min() > 0
        assert probability.sum() == pytest.approx(1, rel=1e-12)


def test_a_text_without_structure_costs_its_entropy() -> None:
    """Random bytes with four equally probable values must cost two bits each."""
    rng = np.random.default_rng(1)
    training, held_out = (rng.choice(np.frombuffer(b"abcd", np.uint8), size).tobytes()
                          for size in (400_000, 20_000))
    found = yardsticks.ngram_bits_per_byte([training], [held_out], 3)
    assert found == pytest.approx(2, abs=0.01)
    assert 2 < yardsticks.xz_bits_per_byte([held_out]) < 2.5


def test_a_longer_context_is_used() -> None:
    training, held_out = [b"the ship sails west " * 500], [b"the ship sails west " * 20]
    bits = [yardsticks.ngram_bits_per_byte(training, held_out, order) for order in range(1, 6)]
    assert bits == sorted(bits, reverse=True)
    assert bits[4] < 0.1 < 2 < bits[0]


def test_xz_is_that_of_the_command() -> None:
    documents = [f"{number} ship{'s' * (number % 7)}".encode() for number in range(3000)]
    text = yardsticks.joined(documents)
    packed = yardsticks.xz_bits_per_byte(documents) * sum(map(len, documents)) / 8
    assert lzma.decompress(lzma.compress(text.tobytes())) == text.tobytes()
    if (program := shutil.which("xz")) is not None:
        done = subprocess.run([program, "-9e", "-T1", "-c"], input=text.tobytes(),
                              capture_output=True, check=True)
        assert packed == pytest.approx(len(done.stdout), rel=0.01)


@pytest.mark.parametrize("order", [0, 9])
def test_an_order_that_does_not_fit_is_refused(order: int) -> None:
    with pytest.raises(ValueError, match="order"):
        yardsticks.ngram_bits_per_byte([b"a"], [b"a"], order)


def test_blocks_do_not_change_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    training, held_out = [b"the ship sails west"] * 9, [b"the", b" ship", b"sails west"]
    whole = yardsticks.ngram_bits_per_byte(training, held_out)
    monkeypatch.setattr(yardsticks, "BLOCK", 4)
    assert yardsticks.ngram_bits_per_byte(training, held_out) == pytest.approx(whole, rel=1e-12)
