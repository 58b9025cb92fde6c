"""A plain training loop of GPT-2: eager, fp32, one random batch, no tuning.

The network is written with the usual layers of PyTorch, and the attention is computed as three
separate operations: product, softmax, product. The loop uses `cross_entropy`, clips the gradients
to the norm 1, and uses `torch.optim.AdamW` with its default implementation. The shapes of the
networks are taken from the app (`language_model.shapes`), so that both programs do the same work.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from language_model.method import operations_per_token
from language_model.shapes import SHAPES, Shape
from sidebyside.spread import over_windows
from sidebyside.timing import print_rate


class Block(nn.Module):
    """A block of GPT-2: attention and feed-forward network, each behind a LayerNorm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.joint = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.up = nn.Linear(width, shape.hidden)
        self.down = nn.Linear(shape.hidden, width)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """Return the output of the block; query q ignores key k if `hidden[q, k]` is true."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.joint(self.norms[0](x)).chunk(3, -1)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        x = x + self.output((weights @ value).transpose(1, 2).flatten(-2))
        inner = functional.gelu(self.up(self.norms[1](x)), approximate="tanh")
        result: Tensor = x + self.down(inner)
        return result


class PlainGPT2(nn.Module):
    """GPT-2 with tied embeddings."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.positions, shape.width)
        self.blocks = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the token after each position."""
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.positions(torch.arange(length))
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        for block in self.blocks:
            x = block(x, hidden)
        result: Tensor = self.head(self.norm(x))
        return result


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description="Print the tokens/s of a plain loop of GPT-2.")
    parser.add_argument("--model", default="gpt2-5m", help="name of a GPT-2 shape of the app")
    parser.add_argument("--sequence", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a step")
    parser.add_argument("--window", type=int, default=2, help="steps per window; the first warms")
    parser.add_argument("--windows", type=int, default=2, help="windows that count")
    parser.add_argument("--count", action="store_true",
                        help="print the GFLOP of a step per token, by the formula of the app")
    return parser.parse_args()


def stepping(options: argparse.Namespace) -> Callable[[], None]:
    """Build the network; return a function that makes one training step with a random batch."""
    network = PlainGPT2(SHAPES[options.model])
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1
    )
    tokens = torch.randint(
        SHAPES[options.model].vocabulary, (options.batch, options.sequence + 1)
    )

    def step() -> None:
        logits = network(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    return step


def main() -> None:
    """Train on one batch repeatedly, and print the rate in tokens per second.

    With the option --count, print the GFLOP of a training step per token instead.
    """
    options = arguments()
    if options.count:
        each = operations_per_token(SHAPES[options.model], options.sequence)
        print(json.dumps({"gflop": each / 1e9}))
        return
    step = stepping(options)

    def window() -> float:
        begun = time.perf_counter()
        for _ in range(options.window):
            step()
        tokens: int = options.window * options.batch * options.sequence
        return tokens / (time.perf_counter() - begun)

    window()
    print_rate(over_windows([window() for _ in range(options.windows)]))


if __name__ == "__main__":
    main()
