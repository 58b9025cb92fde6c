"""The command `predict`: continue texts with a trained network."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from language_model import prompts, sampling, tokenizer
from language_model.layout import Layout, without_training
from language_model.sampling import Method
from language_model.settings import PredictSettings
from language_model.state import load_weights, shape_of
from language_model.steps import Network
from language_model.tokenizer import Tokenizer
from trainkit import outputs
from trainkit.checkpoint import State
from trainkit.console import Counter
from trainkit.exits import DataError
from trainkit.streams import say
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy


def main(settings: PredictSettings) -> None:
    """Print the continuations of prompts, and the tokens per second on stderr.

    Raises:
        ArgumentError: a prompt is too long, or the layout does not fit the network.
        DataError: the run has no checkpoint or no tokenizer, or the prompts cannot be read.
    """
    layout = Layout(settings.data_parallel, settings.tensor_parallel)
    strategy = start(settings.strategy, device=settings.device, axes=layout.axes)
    with strategy.explained():
        state = strategy.share(
            outputs.load_trained(settings.out, settings.checkpoint) if strategy.is_main else None
        )
        assert state is not None  # noqa: S101 - rank 0 shares the state
        words = open_tokenizer(settings, state, strategy)
        about = state["about"]
        texts = strategy.share(prompts.read(settings) if strategy.is_main else [])
        shape, masked = shape_of(state), about["document_mask"]
        given = [prompts.tokens_of(text, words, about["end"], masked=masked) for text in texts]
        prompts.check_lengths(given, settings.tokens, shape.positions)
        layout = Layout(
            settings.data_parallel, settings.tensor_parallel,
            precision=without_training(settings.precision, about["precision"]),
        )
        layout.check(shape, strategy.size, layout.tensor, strategy.size)
        network = Network(shape, layout, strategy)
        load_weights(state, network)
        method = Method(
            settings.tokens, settings.temperature, settings.top_k, settings.seed, about["end"]
        )
        if strategy.is_main and max(map(len, given)) + settings.tokens > about["sequence"]:
            say(sys.stderr, f"warning: the network was trained on sequences of {about['sequence']} "
                "tokens; it may write nonsense beyond them\n")
        written, seconds = write(network, given, method, settings.batch_size)
        if strategy.is_main:
            found = [
                described(*each, words, about["end"])
                for each in zip(texts, given, written, strict=True)
            ]
            show(settings, found, sum(map(len, written)), seconds)
        strategy.close()


def open_tokenizer(
    settings: PredictSettings, state: State, strategy: TorchStrategy
) -> Tokenizer:
    """Return the tokenizer of a checkpoint, which rank 0 reads from the data set or from the run.

    Raises:
        DataError: the file is missing, or is not the tokenizer of the training.
    """
    sha256 = state["about"]["tokenizer"]
    if sha256 is None:
        raise DataError(
            "the network was trained on a synthetic text, which has no tokenizer: train one with "
            "--data",
            code="data-unsuitable",
        )
    path, content = Path(tokenizer.FILE), b""
    if strategy.is_main:
        path = tokenizer.of_run(settings.data, settings.out, settings.checkpoint)
        if not path.exists():
            raise DataError(
                f"{path} does not exist: name the folder of the packed text with --data, which has "
                "the tokenizer, too",
                code="data-missing",
            )
        content = tokenizer.verified(path, sha256)
    return Tokenizer(strategy.share(content), strategy.share(path))


def write(
    network: Network, given: list[list[int]], method: Method, batch: int
) -> tuple[list[list[int]], float]:
    """Continue all prompts; return the added tokens of each, and the total time in seconds.

    Args:
        network: the network.
        given: tokens of all prompts.
        method: how tokens are chosen.
        batch: number of prompts that all ranks together continue at a time.
    """
    written, firsts, strategy = [], range(0, len(given), batch), network.strategy
    strategy.synchronize()
    started = time.perf_counter()
    with Counter("predicting", len(firsts) * method.tokens, "tokens of each text",
                 stream=sys.stderr, quiet=not strategy.is_main) as done:
        for first in firsts:
            written += sampling.continue_prompts(
                network, given[first : first + batch], method, first, done.add
            )
    strategy.synchronize()
    return written, time.perf_counter() - started


def show(
    settings: PredictSettings, texts: list[dict[str, Any]], tokens: int, seconds: float
) -> None:
    """Print the prompts with their continuations, as plain text or in JSON.

    The printed rate in tokens per second counts only the added tokens, but its time includes the
    passes that read the prompts.

    Args:
        settings: options of the command.
        texts: the texts; see `described`.
        tokens: number of tokens that were added to all prompts.
        seconds: time of all passes.
    """
    rate = tokens / seconds
    if settings.json:
        print(json.dumps(
            {"texts": texts, "tokens": tokens, "seconds": seconds, "tokens_per_second": rate}
        ))
    else:
        print("\n---\n".join(one["text"] for one in texts))
    say(sys.stderr, f"{tokens} tokens in {seconds:.2f} s: {rate:.1f} tokens/s\n")


def described(
    prompt: str, given: list[int], written: list[int], words: Tokenizer, end: int
) -> dict[str, Any]:
    """Return a dict that describes a continued prompt, for the output of the command.

    It contains the prompt, the whole text, the number of added tokens, and whether the text ended.

    Args:
        prompt: the prompt.
        given: tokens of the prompt.
        written: the tokens that follow the prompt.
        words: the tokenizer.
        end: the token that marks the end of a text; it is left out of the returned text.
    """
    text = words.decode([token for token in (*given, *written) if token != end])
    return {"prompt": prompt, "text": text, "tokens": len(written), "ended": written[-1] == end}
