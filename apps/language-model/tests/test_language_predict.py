"""Test `predict`: texts with and without a cache are equal; random choices follow the logits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import packed_text
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from language_model import sampling
from language_model.__main__ import main
from language_model.cache import Cache
from language_model.layout import Layout
from language_model.sampling import Method, choose, continue_prompts, uniform
from language_model.shapes import SHAPES
from language_model.steps import Network
from trainkit.testing.program import LIMIT, VARIABLES, launcher
from trainkit.testing.refusals import assert_reported
from trainkit.torch.strategy import TorchStrategy

FAMILIES = ("gpt2-test", "llama-test")
PROMPTS = ([5, 6, 7], [200], [9, 8, 7, 6, 5, 4, 3, 2, 1], [77, 78])


def network_of(name: str) -> Network:
    """Return a network with large random weights, so that its most likely token is unambiguous."""
    network = Network(SHAPES[name], Layout(), TorchStrategy(), 3)
    with torch.no_grad():
        for parameter in network.parameters.values():
            if parameter.ndim > 1:
                parameter.mul_(5)
    return network


@pytest.mark.parametrize("name", FAMILIES)
def test_passes_with_a_cache_give_the_logits_of_one_pass(name: str) -> None:
    stage = network_of(name).stages[0].eval()
    tokens, positions = torch.randint(0, 257, (3, 20)), torch.arange(20).expand(3, 20)
    with torch.no_grad():
        whole = stage(tokens, positions)
        stage.cache = Cache(24)
        ends = (7, 8, 9, 14, 20)
        parts = [stage(tokens[:, a:b], positions[:, a:b]) for a, b in zip((0, *ends), ends)]  # noqa: B905
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-5)


def plain(network: Network, prompt: list[int], method: Method, number: int) -> list[int]:
    """Continue one prompt without a cache: each token is chosen after a pass over all tokens."""
    tokens, draws = list(prompt), uniform(method, number)
    for place in range(method.tokens):
        with torch.no_grad():
            logits = network.stages[0](torch.tensor([tokens]), torch.arange(len(tokens))[None])
        tokens.append(int(choose(logits[:, -1], method, draws[None, place])))
        if tokens[-1] == method.end:
            break
    return tokens[len(prompt):]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("most", [4, 1024])
def test_prompts_of_different_lengths_are_continued_like_each_alone_without_a_cache(
    name: str, temperature: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of prompts gets the same continuations as each prompt alone without a cache.

    If a pass reads few tokens (`most`), long prompts take several passes. Short prompts have no
    tokens left in the later passes.
    """
    monkeypatch.setattr(sampling, "PASS", most)
    network, method = network_of(name), Method(12, temperature, 30)
    found = continue_prompts(network, PROMPTS, method, first=4)
    expected = [plain(network, prompt, method, 4 + at) for at, prompt in enumerate(PROMPTS)]
    assert found == expected
    assert len({tuple(one) for one in found}) == len(PROMPTS)
    assert network.stages[0].cache is None


def test_a_text_ends_with_the_token_that_ends_it() -> None:
    network = network_of("llama-test")
    whole = continue_prompts(network, PROMPTS, Method(12, seed=2))
    end = whole[0][4]
    found = continue_prompts(network, PROMPTS, Method(12, seed=2, end=end))
    for one, other in zip(found, whole, strict=True):
        assert one == (other[: other.index(end) + 1] if end in other else other)
    assert len(found[0]) <= 5
    assert continue_prompts(network, [PROMPTS[0]], Method(12, seed=2, end=whole[0][0])) == [
        whole[0][:1]
    ]


def test_random_numbers_depend_on_seed_and_number_of_the_prompt() -> None:
    one = uniform(Method(5, seed=1), 3)
    assert torch.equal(one, uniform(Method(9, seed=1), 3)[:5])
    assert not torch.equal(one, uniform(Method(5, seed=2), 3))
    assert not torch.equal(one, uniform(Method(5, seed=1), 4))


def test_the_smallest_temperature_chooses_the_most_probable_token() -> None:
    logits, draws = torch.tensor([[0.3, -1.0, 2.0]]), torch.tensor([0.9], dtype=torch.float64)
    assert choose(logits, Method(1, 5e-324), draws).tolist() == [2]


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.5, 0), (2.0, 3), (1.0, 99)])
def test_choices_have_the_probabilities_of_the_logits(temperature: float, top_k: int) -> None:
    logits = torch.tensor([0.3, -1.0, 2.0, 1.1, -float("inf"), 0.0])
    count = 60_000
    draws = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    method = Method(1, temperature, top_k)
    chosen = choose(logits.expand(count, -1), method, draws)
    kept = logits.clone()
    if 0 < top_k < len(logits):
        kept[logits < logits.sort(descending=True).values[top_k - 1]] = -float("inf")
    expected = (kept / temperature).softmax(-1)
    found = torch.bincount(chosen, minlength=len(logits)) / count
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert found[4] == 0


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=8), st.integers(1, 8),
       st.floats(0, 1, exclude_max=True))
def test_any_choice_is_one_of_the_candidates(
    values: list[float], top_k: int, draw: float
) -> None:
    logits = torch.tensor([values])
    chosen = int(choose(logits, Method(1, 1.0, top_k), torch.tensor([draw], dtype=torch.float64)))
    larger = sum(value > values[chosen] for value in values)
    assert larger < top_k
    assert int(choose(logits, Method(1, 0.0, top_k), torch.zeros(1))) == int(np.argmax(values))


TRAINING = """
    --model llama-test --sequence 32 --batch-size 16 --learning-rate 1e-2 --steps 30
    --precision fp32 --device cpu --eval-every 0
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed_text.sentences(tmp_path_factory.mktemp("data") / "text")


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a short training. Tests must not change it."""
    out = tmp_path_factory.mktemp("predict") / "run"
    assert main(["train", "--data", str(text), "--out", str(out), *TRAINING.split()]) == 0
    return out


def predicted(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    assert main(["predict", "--json", "--device", "cpu", *map(str, words)]) == 0
    said = capsys.readouterr()
    found: dict[str, Any] = json.loads(said.out)
    assert f"{found['tokens']} tokens in " in said.err
    return found


def test_texts_are_continued(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--out", run, "--prompt", "The ship", "", "Ærø", "--tokens", "20")
    found = predicted(capsys, *words)
    assert [one["prompt"] for one in found["texts"]] == ["The ship", "", "Ærø"]
    for one in found["texts"]:
        assert one["text"].startswith(one["prompt"])
        assert one["tokens"] == 20 or one["ended"]
        assert "endoftext" not in one["text"]
    assert found["tokens"] == sum(one["tokens"] for one in found["texts"])
    assert found["tokens_per_second"] == pytest.approx(found["tokens"] / found["seconds"])
    for more in (("--batch-size", "1"), ("--batch-size", "2")):
        assert predicted(capsys, *words, *more)["texts"] == found["texts"]
    assert predicted(capsys, *words, "--seed", "2")["texts"] != found["texts"]


def test_a_repeated_option_adds_prompts_and_text_is_printed(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--out", str(run), "--prompt", "The", "--prompt", "A", "--tokens", "3"]
    assert main(["predict", "--temperature", "0", "--device", "cpu", *words]) == 0
    first, second = capsys.readouterr().out.split("\n---\n")
    assert first.startswith("The")
    assert second.startswith("A")


def test_prompts_come_from_files(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain_file, lines = tmp_path / "prompts.txt", tmp_path / "prompts.jsonl"
    plain_file.write_text("The ship\nÆrø\n")
    lines.write_text('{"text": "The ship"}\n{"text": "\\u00c6r\\u00f8", "number": 2}\n')
    words = ("--out", run, "--tokens", "5")
    found = predicted(capsys, *words, "--prompts", plain_file)["texts"]
    assert [one["prompt"] for one in found] == ["The ship", "Ærø"]
    assert predicted(capsys, *words, "--prompts", lines)["texts"] == found
    for content, named in (
        (b'{"text": "a"}\n{"text": 7}\n', "line 2"), (b"[1]\n", "line 1"), (b"{\n", "line 1"),
        (b'{"text": "\\ud800"}\n', "UTF-8"), (b'"\xff"\n', "UTF-8"), (b"", "no line"),
        (b"[" * 100_000, "line 1"),
    ):
        lines.write_bytes(content)
        assert main(["predict", "--out", str(run), "--prompts", str(lines)]) == 3
        assert_reported(capsys.readouterr().err, "prompt-invalid", str(lines), named)


def test_a_prompt_begins_a_document(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[int]] = []

    def recorded(_: Network, prompts: list[list[int]], *more: object) -> list[list[int]]:
        read.extend(prompts)
        return [[1]] * len(prompts)

    monkeypatch.setattr(sampling, "continue_prompts", recorded)
    predicted(capsys, "--out", run, "--prompt", "ab", "", "<|endoftext|>", "--tokens", "4")
    assert read[:2] == [[256, 97, 98], [256]]
    assert 256 not in read[2][1:]  # the name of the token is text


def test_a_text_that_does_not_fit_the_positions_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "--out", str(run), "--prompt", "a", "x" * 23, "--tokens", "41"]) == 2
    assert_reported(capsys.readouterr().err, "argument-invalid", "prompt 2", "24", "64", "40")
    assert main(["predict", "--out", str(run), "--prompt", "x" * 23, "--tokens", "40"]) == 0
    assert "32 tokens" in capsys.readouterr().err  # longer than the sequences of the training
    assert main(["predict", "--out", str(run), "--prompt", "x" * 64]) == 2
    assert_reported(capsys.readouterr().err, "argument-invalid", "65", "shorter prompt")
    assert main(["predict", "--out", str(run), "--prompt", "a\udcff"]) == 2
    assert_reported(capsys.readouterr().err, "prompt-invalid", "not UTF-8", "character 2")


def test_missing_options_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--prompt", "a"], ["--out", "run"], ["--out", "run", "--checkpoint", "x"],
                  ["--out", "run", "--prompt", "a", "--prompts", "b"]):
        assert main(["predict", *words]) == 2
        assert_reported(capsys.readouterr().err, "argument-missing")
    assert main(["predict", "--out", "run", "--prompt", "a", "--tensor-parallel", "2"]) == 2
    assert_reported(capsys.readouterr().err, "arguments-conflict", "--strategy mesh")


def test_the_tokenizer_is_that_of_the_run_or_of_the_data(
    run: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tokenizer of a checkpoint file is in the folder of the run that wrote the file."""
    assert (run / "tokenizer.json").read_bytes() == (text / "tokenizer.json").read_bytes()
    copy = tmp_path / "copy"
    (copy / "checkpoints").mkdir(parents=True)
    for path in (run / "checkpoints").iterdir():
        (copy / "checkpoints" / path.name).symlink_to(path)
    file = next((copy / "checkpoints").glob("*.npz"))
    more = ("--prompt", "The", "--tokens", "4")
    assert main(["predict", "--out", str(copy), *more]) == 3
    assert_reported(capsys.readouterr().err, "data-missing", str(copy / "tokenizer.json"), "--data")
    found = predicted(capsys, "--out", copy, "--data", text, *more)
    assert found["texts"] == predicted(capsys, "--checkpoint", file, *more)["texts"]
    (copy / "tokenizer.json").write_text("{}")
    assert main(["predict", "--out", str(copy), *more]) == 3
    assert_reported(capsys.readouterr().err, "checksum-mismatch", str(copy / "tokenizer.json"))


def test_a_file_that_is_no_tokenizer_and_a_missing_library_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [[list(range(97, 123))] * 40]
    data = packed_text.pack(tmp_path / "data", {"train": documents, "val": documents})
    out = tmp_path / "run"
    assert main(["train", "--data", str(data), "--out", str(out), *TRAINING.split(),
                 "--max-steps", "1"]) == 0
    capsys.readouterr()
    words = ["predict", "--out", str(out), "--prompt", "a"]
    assert main(words) == 3
    assert_reported(capsys.readouterr().err, "data-invalid", str(out / "tokenizer.json"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert main(words) == 2
    assert_reported(capsys.readouterr().err, "library-missing", "tokenizers")


def test_a_synthetic_text_has_no_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", "--synthetic", "--out", str(out), *TRAINING.split(),
                 "--max-steps", "1"]) == 0
    assert main(["predict", "--out", str(out), "--prompt", "a"]) == 3
    assert_reported(capsys.readouterr().err, "data-unsuitable", "synthetic", "--data")
    assert not (out / "tokenizer.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["--tensor-parallel 2", "--data-parallel fsdp", ""])
def test_two_ranks_write_what_one_process_writes(
    layout: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks write the same texts as one process for three prompts.

    With three prompts, two data ranks have different numbers of prompts.
    """
    words = ["predict", "--json", "--device", "cpu", "--out", str(run), "--prompt", "The ship",
             "", "A crew rests", "--tokens", "20", "--batch-size", "3"]
    done = subprocess.run(
        [*launcher("mesh"), "language_model", *words, "--strategy", "mesh", *layout.split()],
        capture_output=True, text=True, timeout=LIMIT, check=False, env=os.environ | VARIABLES,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["texts"] == predicted(capsys, *words[4:])["texts"]
