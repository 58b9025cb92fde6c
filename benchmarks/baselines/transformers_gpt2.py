"""The training loop of Hugging Face `transformers` (class `Trainer`), with a GPT-2 of the app.

The network is `GPT2LMHeadModel` with its default attention (`scaled_dot_product_attention`), with
random initial weights and without dropout, as in the app. The data set is one random batch in
memory. `Trainer` has its default optimizer (AdamW) and clips the gradients to the norm 1, its
default.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from typing import Any

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from language_model.shapes import SHAPES, Shape
from sidebyside.spread import over_windows
from sidebyside.timing import print_rate


class Clock(TrainerCallback):  # type: ignore[misc]
    """A callback that records the end time of each step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Record the time."""
        self.ends.append(time.perf_counter())


def network(shape: Shape) -> GPT2LMHeadModel:
    """Return a GPT-2 of the shape `shape` with random weights."""
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=shape.vocabulary, n_positions=shape.positions, n_embd=shape.width,
        n_layer=shape.layers, n_head=shape.heads, n_inner=shape.hidden,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        bos_token_id=0, eos_token_id=0,
    ))


def main() -> None:
    """Train on one batch repeatedly, and print tokens per second."""
    parser = argparse.ArgumentParser(description="Print the tokens/s of transformers' Trainer.")
    parser.add_argument("--model", default="gpt2-5m", help="name of a GPT-2 shape of the app")
    parser.add_argument("--sequence", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a step")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--window", type=int, default=2, help="steps per window; the first warms")
    parser.add_argument("--windows", type=int, default=2, help="windows that count")
    options = parser.parse_args()
    shape, steps = SHAPES[options.model], options.window * (1 + options.windows)
    rows = torch.randint(shape.vocabulary, (options.batch, options.sequence))
    texts = [{"input_ids": row, "labels": row} for row in rows] * steps
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            network(shape),
            TrainingArguments(
                folder, max_steps=steps, per_device_train_batch_size=options.batch, use_cpu=True,
                bf16=options.precision == "bf16", learning_rate=6e-4, adam_beta2=0.95,
                weight_decay=0.1, save_strategy="no", report_to=[], disable_tqdm=True,
                logging_strategy="no", dataloader_pin_memory=False,
            ),
            train_dataset=texts,
            callbacks=[clock],
        ).train()
    marks = clock.ends[options.window - 1 :: options.window]
    tokens = options.window * options.batch * options.sequence
    print_rate(over_windows([
        tokens / (end - begun) for begun, end in itertools.pairwise(marks)
    ]))


if __name__ == "__main__":
    main()
