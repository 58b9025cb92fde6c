"""Test the bits per byte of xz and n-grams, with which those of a network are compared.

They are computed from the exact bytes of the documents. A training records them, and `evaluate`
prints them.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import packed_text
import pytest

from language_model import comparison, inputs, tokenizer, yardsticks
from language_model.__main__ import main
from language_model.comparison import Exact, Yardsticks, measure
from language_model.tokenizer import Tokenizer
from trainkit.exits import DataError
from trainkit.testing import reading
from trainkit.testing.refusals import assert_reported, refused
from trainkit.torch.strategy import TorchStrategy

TRAINING = """
    --model llama-test --sequence 32 --batch-size 16 --learning-rate 1e-2 --steps 6
    --precision fp32 --device cpu --yardsticks
"""
DOCUMENTS = ["Ærø…", "a\nb", "the ship <|endoftext|>", "\u0000x"]


def opened(folder: Path) -> tuple[inputs.Text, Tokenizer]:
    path = tokenizer.of_data(folder)
    return inputs.open_text(folder, 0), Tokenizer(path.read_bytes(), path)


def test_tokens_become_the_bytes_of_the_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "TOGETHER", 3)
    data = packed_text.written(tmp_path / "text", {"train": [DOCUMENTS[:1], DOCUMENTS[1:]]})
    text, words = opened(data)
    found, counted = text.split("train"), []
    exact = Exact(words, found, lambda: counted.append(1))
    expected = [document.encode() for document in DOCUMENTS]
    assert list(exact) == list(exact) == expected
    assert exact.bytes == sum(map(len, expected)) == found.text_bytes
    assert len(counted) == 2 * len(DOCUMENTS)
    first = Exact(words, found, lambda: None, len(expected[0]) + len(expected[1]) + 1)
    assert list(first) == expected[:2]
    assert first.bytes == len(expected[0]) + len(expected[1])


def test_a_tokenizer_that_loses_text_is_refused(tmp_path: Path) -> None:
    text, words = opened(packed_text.written(tmp_path / "text", {"train": [DOCUMENTS]}))
    split = dataclasses.replace(text.split("train"), text_bytes=99)
    with refused(DataError, "data-unsuitable", "'train'", 99, sum(map(len, map(str.encode,
                                                                                 DOCUMENTS)))):
        list(Exact(words, split, lambda: None))


def test_yardsticks_are_those_of_the_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = packed_text.sentences(tmp_path / "text")
    text, words = opened(data)
    train, val = (list(Exact(words, text.split(name), lambda: None)) for name in ("train", "val"))
    found = measure(data, text.split("train"), text.split("val"), TorchStrategy())
    size = sum(map(len, train))
    assert found == Yardsticks(
        yardsticks.xz_bits_per_byte(val), yardsticks.ngram_bits_per_byte(train, val), size, size
    )
    assert "counted" not in str(found)
    monkeypatch.setattr(comparison, "MOST_BYTES", size // 2)
    part = measure(data, text.split("train"), text.split("val"), TorchStrategy())
    assert size // 2 - 100 < part.counted_bytes <= size // 2
    assert part.ngram > found.ngram
    assert "counted on the first" in str(part)


def test_a_margin_is_positive_if_the_network_is_better() -> None:
    found = Yardsticks(2.5, 1.75, 10, 10).scores(2.0)
    assert found == {"bits_per_byte_xz": 2.5, "bits_per_byte_ngram": 1.75, "margin_xz": 0.5,
                     "margin_ngram": -0.25}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed_text.sentences(tmp_path_factory.mktemp("data") / "text")


@pytest.mark.slow
def test_a_training_records_yardsticks_and_computes_them_once(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    words = ["train", "--data", str(text), "--out", str(out), *TRAINING.split()]
    assert main([*words, "--max-steps", "4"]) == 0
    assert "yardsticks, bits per byte: xz -9e" in capsys.readouterr().out
    (out / "result.json").unlink()
    monkeypatch.delattr(comparison, "measure")
    assert main([*words, "--resume", "auto"]) == 0
    own = dict(reading.values(out, "eval_bits_per_byte"))
    assert list(own) == [4, 6]
    for name in ("xz", "ngram"):
        theirs = dict(reading.values(out, f"eval_bits_per_byte_{name}"))
        assert theirs[4] == theirs[6]
        margins = dict(reading.values(out, f"eval_margin_{name}"))
        assert margins == {step: theirs[step] - own[step] for step in own}
        assert reading.result(out)["evaluation"][f"margin_{name}"] == margins[6]


def test_evaluate_prints_yardsticks_beside_the_scores(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    training = [word for word in TRAINING.split() if word != "--yardsticks"]
    assert main(["train", "--data", str(text), "--out", str(out), *training]) == 0
    assert reading.values(out, "eval_margin_xz") == []
    capsys.readouterr()
    words = ["evaluate", "--data", str(text), "--out", str(out), "--device", "cpu", "--yardsticks"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    known = found["yardsticks"]
    assert known["margin_xz"] == known["bits_per_byte_xz"] - found["bits_per_byte"]
    assert known["counted_bytes"] == known["training_bytes"]
    assert main(words) == 0
    assert f"xz -9e {known['bits_per_byte_xz']:.4f}" in capsys.readouterr().out
    assert main([*words, "--split", "train"]) == 2
    assert_reported(capsys.readouterr().err, "arguments-conflict", "--split train")
    assert main(["evaluate", "--synthetic", "--out", str(out), "--yardsticks"]) == 2
    assert_reported(capsys.readouterr().err, "arguments-conflict", "--data")


def test_a_vocabulary_that_the_network_lacks_is_refused(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    training = [word for word in TRAINING.split() if word != "--yardsticks"]
    assert main(["train", "--data", str(text), "--out", str(out), *training]) == 0
    found = inputs.open_text(text, 0)
    monkeypatch.setattr(
        "language_model.evaluate.open_text",
        lambda *_: dataclasses.replace(found, vocabulary=300),
    )
    assert main(["evaluate", "--data", str(text), "--out", str(out)]) == 3
    assert_reported(capsys.readouterr().err, "data-mismatch", 300, 257)
