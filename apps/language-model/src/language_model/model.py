"""A decoder transformer in the two published forms GPT-2 and Llama.

GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019. Llama: Touvron
et al., arXiv:2302.13971 and arXiv:2307.09288; grouped-query attention: Ainslie et al.,
arXiv:2305.13245. The module contains no parallelism: `parallelize.py` changes the finished modules.
A `Decoder` may have some of the blocks only, as a stage of a pipeline.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from language_model.cache import Cache
from language_model.shapes import Shape

STANDARD_DEVIATION = 0.02
"""Standard deviation of the initial weights of both families: `initializer_range` in the
configurations of GPT-2 and Llama that Hugging Face publishes."""
Rotation = tuple[Tensor, Tensor]
"""Cosine and sine of the angles of each token, (batch, 1, tokens, head width / 2)."""


class Around(NamedTuple):
    """The inputs that the attention of every block needs in addition to the hidden states.

    Attributes:
        rotation: rotation of each token; None if the hidden states contain the positions.
        mask: whether each token may see each key, (batch, 1, tokens, keys); None if each token sees
            itself and all earlier tokens.
        gather: joins the keys or values (batch, heads, tokens, width) of all parts of a sequence;
            None if the rank has the whole sequence.
        cache: keys and values of the tokens of earlier passes; None outside of a prediction.
    """

    rotation: Rotation | None
    mask: Tensor | None
    gather: Callable[[Tensor], Tensor] | None
    cache: Cache | None = None


class Attention(nn.Module):
    """Causal self-attention with all heads, or with the heads of this rank."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        width, keys, bias = shape.width, shape.key_heads * shape.head_width, shape.family == "gpt2"
        self.head_width, self.dropout = shape.head_width, dropout
        self.query = nn.Linear(width, width, bias)
        self.key = nn.Linear(width, keys, bias)
        self.value = nn.Linear(width, keys, bias)
        self.output = nn.Linear(width, width, bias)

    def forward(self, x: Tensor, around: Around) -> Tensor:
        """Return the output of the layer, of the shape of `x`, (batch, tokens, width)."""
        query, key, value = (
            part(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        if around.rotation is not None:
            query, key = rotate(query, around.rotation), rotate(key, around.rotation)
        if around.gather is not None:
            key, value = around.gather(key), around.gather(value)
        if around.cache is not None:
            key, value = around.cache.extend(self, key, value)
        seen = functional.scaled_dot_product_attention(
            query, key, value, around.mask, is_causal=around.mask is None,
            enable_gqa=query.shape[1] > key.shape[1],
            dropout_p=self.dropout if self.training else 0.0,
        )
        result: Tensor = self.output(seen.transpose(1, 2).flatten(-2))
        return result


class FeedForward(nn.Module):
    """GELU network of GPT-2, or SwiGLU network of Llama (Shazeer, arXiv:2002.05202)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        bias = shape.family == "gpt2"
        self.up = nn.Linear(shape.width, shape.hidden, bias)
        self.gate = None if bias else nn.Linear(shape.width, shape.hidden, bias)
        self.down = nn.Linear(shape.hidden, shape.width, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the network, of the shape of `x`, (batch, tokens, width)."""
        if self.gate is None:
            hidden = functional.gelu(self.up(x), approximate="tanh")
        else:
            hidden = functional.silu(self.gate(x)) * self.up(x)
        result: Tensor = self.down(hidden)
        return result


class Block(nn.Module):
    """Attention and feed-forward network, each after its norm and with a residual connection."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.attention_norm, self.attention = norm(shape), Attention(shape, dropout)
        self.feed_forward_norm, self.feed_forward = norm(shape), FeedForward(shape)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, around: Around) -> Tensor:
        """Return the hidden states after the block, (batch, tokens, width)."""
        x = x + self.dropout(self.attention(self.attention_norm(x), around))
        result: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return result


class Decoder(nn.Module):
    """A decoder, or the stage of a pipeline with some of its blocks.

    Args:
        shape: shape of the whole decoder.
        blocks: numbers of the blocks of this stage; None for all blocks.
        dropout: probability with which a value is dropped in a training.

    Attributes:
        run: function that calls a block; activation checkpointing replaces it.
        gather: function that joins the keys or values of all parts of a sequence; None without
            context parallelism.
        cache: keys and values of the tokens of earlier passes; None outside of a prediction.
    """

    def __init__(
        self, shape: Shape, blocks: Iterable[int] | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        numbers = list(range(shape.layers) if blocks is None else blocks)
        first, last = numbers[0] == 0, numbers[-1] == shape.layers - 1
        learned = first and shape.family == "gpt2"
        self.shape = shape
        self.run: Callable[..., Any] = lambda block, *inputs: block(*inputs)
        self.gather: Callable[[Tensor], Tensor] | None = None
        self.cache: Cache | None = None
        self.embedding = nn.Embedding(shape.vocabulary, shape.width) if first else None
        self.positions = nn.Embedding(shape.positions, shape.width) if learned else None
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleDict({str(n): Block(shape, dropout) for n in numbers})
        self.norm = norm(shape) if last else None
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False) if last else None
        self.tie()

    def tie(self) -> None:
        """Make the output layer use the weights of the token embedding if the shape ties them."""
        if self.shape.tied and self.embedding is not None and self.head is not None:
            self.head.weight = self.embedding.weight

    def forward(self, x: Tensor, positions: Tensor, documents: Tensor | None = None) -> Tensor:
        """Return the logits of each next token, or the hidden states for the next stage.

        Args:
            x: tokens (batch, tokens) in the first stage, otherwise hidden states.
            positions: position of each token in its sequence, (batch, tokens).
            documents: number of the document of each token, (batch, tokens): tokens see only tokens
                of their own document. If it is None, they see all earlier tokens.
        """
        if self.embedding is not None:
            x = self.embedding(x)
            if self.positions is not None:
                x = x + self.positions(positions)
            x = self.dropout(x)
        around = Around(
            self.rotation(positions), self.mask(positions, documents), self.gather, self.cache
        )
        for block in self.blocks.values():
            x = self.run(block, x, around)
        return x if self.norm is None or self.head is None else self.head(self.norm(x))

    def rotation(self, positions: Tensor) -> Rotation | None:
        """Return the rotations of the tokens at `positions`; None for GPT-2.

        Su et al., "RoFormer", arXiv:2104.09864, section 3.2.2.
        """
        if self.shape.family == "gpt2":
            return None
        exponents = torch.arange(0, self.shape.head_width, 2, device=positions.device)
        frequencies = self.shape.theta ** -(exponents / self.shape.head_width)
        if self.shape.rotary_scaling is not None:
            frequencies = stretched(frequencies, *self.shape.rotary_scaling)
        angles = positions[:, None, :, None] * frequencies
        return angles.cos(), angles.sin()

    def mask(self, positions: Tensor, documents: Tensor | None) -> Tensor | None:
        """Return whether each token may see each key, (batch, 1, tokens, keys).

        The result is None if each token sees itself and all earlier tokens.
        """
        if self.cache is not None:
            return self.cache.mask(positions)
        if self.gather is None and documents is None:
            return None
        mask = positions[:, None, :, None] >= self.keys(positions)
        return mask if documents is None else mask & (
            documents[:, None, :, None] == self.keys(documents)
        )

    def keys(self, values: Tensor) -> Tensor:
        """Return one value for each key, (batch, 1, 1, keys), such as its position.

        `values` (batch, tokens) are the values of this rank's tokens. If context ranks share the
        sequence, the values of their tokens are gathered.
        """
        own = values[:, None, :, None]
        return (own if self.gather is None else self.gather(own)).transpose(2, 3)


def norm(shape: Shape) -> nn.Module:
    """Return LayerNorm for GPT-2, RMSNorm (Zhang and Sennrich, arXiv:1910.07467) for Llama."""
    kind = nn.LayerNorm if shape.family == "gpt2" else nn.RMSNorm
    return kind(shape.width, eps=shape.epsilon)


def stretched(
    frequencies: Tensor, factor: float, low: float, high: float, length: int
) -> Tensor:
    """Return the frequencies of rotary positions for longer sequences, as in Llama 3.1.

    Frequencies with at most `low` turns in `length` tokens are divided by `factor`, frequencies
    with at least `high` turns do not change, and all others are interpolated. The source is the
    function `apply_scaling` in `models/llama3/model.py` of github.com/meta-llama/llama-models.
    """
    turns = length * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / factor)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Return queries or keys rotated by the angles of their positions, in the type of `x`.

    The first half of a head contains the first coordinates of the rotated pairs, the second half
    contains the second coordinates, as in the weights that Hugging Face publishes.
    """
    cosine, sine = rotation
    one, other = x.chunk(2, -1)
    return torch.cat([one * cosine - other * sine, other * cosine + one * sine], -1).type_as(x)


def initial_values(name: str, shape: Shape, size: tuple[int, ...], seed: int) -> Tensor:
    """Return the initial values of the weight `name`, which depend on `seed` and `name` only.

    Therefore each rank computes only the part that it holds, and the initial weights do not depend
    on the layout. The weights of the layers before a residual addition are divided by the square
    root of the number of these additions: Radford et al., 2019, section 2.3.
    """
    if name.endswith(("bias", "lora_b")):
        return torch.zeros(size)
    if "norm" in name:
        return torch.ones(size)
    generator = torch.Generator().manual_seed(seed_of(seed, name))
    scale = STANDARD_DEVIATION
    if name.endswith(("attention.output.weight", "feed_forward.down.weight")):
        scale /= math.sqrt(2 * shape.layers)
    return torch.empty(size).normal_(0.0, scale, generator=generator)


def seed_of(seed: int, name: str) -> int:
    """Return the seed of the random numbers of the weight `name`."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
