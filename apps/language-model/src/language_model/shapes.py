"""The shapes of published decoders, and of small decoders for tests and CPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Family = Literal["gpt2", "llama"]
RotaryScaling = tuple[float, float, float, int]
"""The arguments of `model.stretched`: factor, low, high, length. They stretch rotary positions for
sequences that are longer than the sequences of the original pretraining."""


@dataclass(frozen=True)
class Shape:
    """The shape of a decoder.

    Attributes:
        family: "gpt2" (learned positions, LayerNorm, GELU, biases) or "llama" (rotary positions,
            RMSNorm, SwiGLU, grouped-query attention, no biases).
        layers: number of blocks.
        width: size of the hidden state of a token.
        heads: heads of the queries.
        key_heads: heads of keys and values; each serves `heads // key_heads` query heads.
        hidden: size of the hidden layer of the feed-forward network.
        vocabulary: number of different tokens.
        positions: largest number of tokens of a sequence.
        tied: whether the output layer has the weights of the token embedding.
        theta: base of the wavelengths of rotary positions.
        epsilon: added to the mean square in LayerNorm and RMSNorm.
        rotary_scaling: arguments of `model.stretched` for rotary positions; None if they are not
            stretched.
    """

    family: Family
    layers: int
    width: int
    heads: int
    key_heads: int
    hidden: int
    vocabulary: int
    positions: int
    tied: bool
    theta: float = 10000.0
    epsilon: float = 1e-5
    rotary_scaling: RotaryScaling | None = None

    @property
    def head_width(self) -> int:
        """The size of one attention head."""
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        width, hidden, keys = self.width, self.hidden, self.key_heads * self.head_width
        attention, table = 2 * width * (width + keys), self.vocabulary * width
        if self.family == "gpt2":  # with biases, and norms of two vectors
            biases = 2 * width + 2 * keys + hidden + width
            block = attention + 2 * width * hidden + biases + 4 * width
            outside = self.positions * width + 2 * width
        else:
            block, outside = attention + 3 * width * hidden + 2 * width, width
        return self.layers * block + outside + table * (1 if self.tied else 2)


def gpt2(layers: int, heads: int, width: int, vocabulary: int = 50257,
         positions: int = 1024) -> Shape:
    """Return a shape of the GPT-2 family.

    Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2.
    """
    return Shape("gpt2", layers, width, heads, heads, 4 * width, vocabulary, positions, tied=True)


SHAPES = {
    "gpt2-124m": gpt2(12, 12, 768),
    "gpt2-350m": gpt2(24, 16, 1024),
    "gpt2-774m": gpt2(36, 20, 1280),
    "gpt2-1.5b": gpt2(48, 25, 1600),
    # Touvron et al., "Llama 2", arXiv:2307.09288, and the model card of Llama-2-7b.
    "llama2-7b": Shape("llama", 32, 4096, 32, 32, 11008, 32000, 4096, tied=False),
    # "The Llama 3 Herd of Models", arXiv:2407.21783, table 3. The context is that before the
    # extension to longer sequences.
    "llama3-8b": Shape("llama", 32, 4096, 32, 8, 14336, 128256, 8192, tied=False, theta=5e5),
    "llama3-70b": Shape("llama", 80, 8192, 64, 8, 28672, 128256, 8192, tied=False, theta=5e5),
    # The model card of Llama-3.2-1B, with the context of the others.
    "llama3-1b": Shape("llama", 16, 2048, 32, 8, 8192, 128256, 8192, tied=True, theta=5e5),
    # Small shapes of the same families, for CPUs and for tests.
    "gpt2-5m": gpt2(6, 8, 256, vocabulary=257, positions=512),
    "llama-5m": Shape("llama", 6, 256, 8, 4, 704, 257, 512, tied=True),
    # Trains in minutes on two cores: over half of its parameters are the table of tokens.
    "llama-726k": Shape("llama", 3, 96, 3, 3, 256, 4096, 512, tied=True),
    "gpt2-test": gpt2(4, 4, 32, vocabulary=257, positions=64),
    "llama-test": Shape("llama", 4, 32, 4, 2, 96, 257, 64, tied=False),
}
"""Name of a model -> its shape: layers, width, heads, vocabulary and context.

If the tokens of a training are of another vocabulary, the size of that vocabulary replaces the one
in the shape.
"""
