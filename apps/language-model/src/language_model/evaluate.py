"""Loss, perplexity and bits per byte, within a training and for the command `evaluate`."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable

from language_model import comparison
from language_model.data import Sequences
from language_model.inputs import Text, open_text
from language_model.layout import Layout, without_training
from language_model.settings import EvaluateSettings
from language_model.shapes import Shape
from language_model.state import load_weights, shape_of
from language_model.steps import Network
from trainkit import outputs
from trainkit.console import Counter
from trainkit.exits import DataError
from trainkit.torch.start import start

LARGEST = 700.0  # exp() of a much larger loss overflows a floating-point number of 64 bits


@dataclasses.dataclass(frozen=True)
class Scores:
    """The scores of a network on a split.

    Attributes:
        loss: mean cross-entropy of a token, in nats.
        perplexity: exp(loss).
        bits_per_byte: cross-entropy of the whole split in bits, divided by the bytes of its text.
            Unlike the loss of a token, it does not depend on the tokenizer. The first token of the
            split is not predicted, and does not count.
    """

    loss: float
    perplexity: float
    bits_per_byte: float

    def __str__(self) -> str:
        return (
            f"loss {self.loss:.4f}  perplexity {self.perplexity:.2f}  "
            f"{self.bits_per_byte:.4f} bits per byte"
        )


def evaluate(
    network: Network, batches: Sequences, stop: Callable[[], bool],
    on_batch: Callable[[], None] = lambda: None,
) -> Scores | None:
    """Return the scores of `network` over all `batches`, or None if `stop` returned true.

    Args:
        network: the network.
        batches: batches of the split.
        stop: function that is called between batches; if it returns true on one rank, the
            evaluation ends on all ranks.
        on_batch: function that is called after each batch.
    """
    total, count, strategy = 0.0, 0, network.strategy
    for step, batch in enumerate(batches.epoch(0, 0, network.part)):
        if strategy.any(stop()):
            return None
        total += network.loss(batch).item()
        count += batches.targets(0, step)
        on_batch()
    (total,) = strategy.sum([total])
    loss = total / count
    return Scores(
        loss, math.exp(min(loss, LARGEST)), total / math.log(2) / batches.split.text_bytes
    )


def main(settings: EvaluateSettings) -> None:
    """Print the scores of a checkpoint on a split.

    Raises:
        DataError: the run has no checkpoint, the data has another tokenizer, or the tokenizer does
            not restore the text from the tokens.
    """
    layout = Layout.of(settings)
    strategy = start(settings.strategy, device=settings.device, axes=layout.axes)
    with strategy.explained():
        state = strategy.share(
            outputs.load_trained(settings.out, settings.checkpoint) if strategy.is_main else None
        )
        assert state is not None  # noqa: S101 - rank 0 shares the state
        shape, about = shape_of(state), state["about"]
        text = checked_text(settings, shape, about["tokenizer"])
        layout = dataclasses.replace(layout, precision=without_training(
            settings.precision, about["precision"]
        ))
        layout.check(shape, strategy.size, about["sequence"], settings.batch_size)
        split, known = text.split(settings.split), None
        if settings.yardsticks and settings.data is not None:
            known = comparison.measure(
                settings.data, text.split("train"), split, strategy, sys.stderr
            )
        network = Network(shape, layout, strategy)
        load_weights(state, network)
        batches = Sequences(
            split, about["sequence"], settings.batch_size, documents=about["document_mask"]
        )
        with Counter("evaluating", batches.steps, "batches", stream=sys.stderr,
                     quiet=not strategy.is_main) as done:
            scores = evaluate(network, batches, lambda: False, done.add)
        assert scores is not None  # noqa: S101 - never stopped
        if strategy.is_main and settings.json:
            found = {"split": split.name, "tokens": split.tokens, "bytes": split.text_bytes,
                     **dataclasses.asdict(scores)}
            if known is not None:
                found["yardsticks"] = known.facts(scores.bits_per_byte)
            print(json.dumps(found))
        elif strategy.is_main:
            print(f"{split.name} ({split.tokens} tokens)  {scores}")
            if known is not None:
                print(f"on the same text, bits per byte: {known}")
        strategy.close()


def checked_text(settings: EvaluateSettings, shape: Shape, tokenizer: str | None) -> Text:
    """Return the text of the evaluation, after a check that its vocabulary fits the network.

    Args:
        settings: the options of the command.
        shape: shape of the network.
        tokenizer: SHA-256 of the tokenizer of the training text; None for a synthetic text.

    Raises:
        DataError: the text was encoded with another tokenizer, or its vocabulary is larger than
            the network's.
    """
    text = open_text(settings.data, shape.vocabulary)
    if text.tokenizer != tokenizer:
        raise DataError(
            f"{text.name} has another tokenizer ({text.tokenizer}) than the text of the "
            f"training ({tokenizer}): pack it again with `trimaran data pack --tokenizer` and the "
            "tokenizer.json in the folder of the run",
            code="data-mismatch",
        )
    if text.vocabulary > shape.vocabulary:
        raise DataError(
            f"{text.name} has {text.vocabulary} different tokens, and the network of the "
            f"checkpoint has {shape.vocabulary}",
            code="data-mismatch",
        )
    return text
