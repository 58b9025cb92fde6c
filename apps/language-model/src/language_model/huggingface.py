"""The weights of GPT-2 and Llama as tensors of Hugging Face `transformers`.

A folder of transformers has the shape of a network in `config.json` (`configuration.py`) and its
weights in safetensors files. transformers stores the matrices of the blocks of GPT-2 as (inputs,
outputs), which is transposed with respect to `nn.Linear`, and joins the matrices of query, key and
value.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch

from language_model.model import Decoder
from language_model.shapes import Shape
from trainkit.pieces import Shape as Size
from trainkit.statefile import Array, Foreign

BLOCKS = {"gpt2": "transformer.h", "llama": "model.layers"}
OUTSIDE = {
    "gpt2": {"embedding": "transformer.wte", "positions": "transformer.wpe",
             "norm": "transformer.ln_f", "head": "lm_head"},
    "llama": {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"},
}
INSIDE = {
    "gpt2": {
        "attention_norm": "ln_1", "attention.query": "attn.c_attn", "attention.key": "attn.c_attn",
        "attention.value": "attn.c_attn", "attention.output": "attn.c_proj",
        "feed_forward_norm": "ln_2", "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    },
    "llama": {
        "attention_norm": "input_layernorm", "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj", "attention.value": "self_attn.v_proj",
        "attention.output": "self_attn.o_proj", "feed_forward_norm": "post_attention_layernorm",
        "feed_forward.gate": "mlp.gate_proj", "feed_forward.up": "mlp.up_proj",
        "feed_forward.down": "mlp.down_proj",
    },
}
"""Family -> name of a layer in this app -> its name in transformers. `OUTSIDE` contains the layers
outside of the blocks, and `INSIDE` the layers of a block."""
BUFFERS = re.compile(r"\.attn\.(masked_)?bias$|\.rotary_emb\.inv_freq$")
"""Names of constants, such as the causal mask, that older versions of transformers stored."""


class Readable(Protocol):
    """An array of which any range can be read, such as `trainkit.pieces.Stored`.

    Attributes:
        shape: its shape.
        dtype: the name of its type.
    """

    @property
    def shape(self) -> Size: ...  # noqa: D102 - documented above

    @property
    def dtype(self) -> str: ...  # noqa: D102 - documented above

    def read(self, offsets: Size | None = None, shape: Size | None = None) -> Array | Foreign:
        """Return the part that begins at `offsets` and has `shape`; by default the whole array."""
        ...


@dataclass(frozen=True)
class Tensor:
    """A tensor of Hugging Face `transformers`, which contains one or several weights of this app.

    Attributes:
        weights: this app's names of the weights. The tensor is their concatenation, in this order,
            along the output dimension.
        shape: shape of the tensor.
        transposed: whether the output dimension is the last one; otherwise it is the first one.
    """

    weights: tuple[str, ...]
    shape: Size
    transposed: bool


@dataclass(frozen=True)
class View:
    """A weight of this app, read as a part of the tensor that contains it; see `Readable`.

    Attributes:
        tensor: a tensor of Hugging Face `transformers`.
        first: index of the weight's first element along the output dimension of the tensor.
        shape: the shape of the weight.
        transposed: see `Tensor`.
    """

    tensor: Readable
    first: int
    shape: Size
    transposed: bool

    @property
    def dtype(self) -> str:
        """The name of the type of the tensor."""
        return self.tensor.dtype

    def read(self, offsets: Size | None = None, shape: Size | None = None) -> Array | Foreign:
        """Return the part that begins at `offsets` and has `shape`; by default the whole weight."""
        offsets = offsets or (0,) * len(self.shape)
        shape = self.shape if shape is None else shape
        offsets = (self.first + offsets[0], *offsets[1:])
        if not self.transposed:
            return self.tensor.read(offsets, shape)
        found = self.tensor.read(offsets[::-1], shape[::-1])
        return Foreign(found.bits.T, found.dtype) if isinstance(found, Foreign) else found.T


def tensors(shape: Shape) -> dict[str, Tensor]:
    """Return the tensors in which transformers stores a decoder, by their names in transformers."""
    with torch.device("meta"):
        decoder = Decoder(shape)
    found: dict[str, Tensor] = {}
    for name, parameter in decoder.named_parameters():
        theirs, size = _theirs(name, shape.family), tuple(parameter.shape)
        matrix = name.startswith("blocks.") and parameter.ndim == 2
        before = found.get(theirs, Tensor((), (0, *size[1:]), transposed=False))
        joined = (before.shape[0] + size[0], *size[1:])
        found[theirs] = Tensor((*before.weights, name), joined, shape.family == "gpt2" and matrix)
    return {
        name: dataclasses.replace(one, shape=one.shape[::-1]) if one.transposed else one
        for name, one in found.items()
    }


def _theirs(name: str, family: Literal["gpt2", "llama"]) -> str:
    """Return the name in transformers of the tensor that contains our weight `name`."""
    layer, _, kind = name.rpartition(".")
    if not name.startswith("blocks."):
        return f"{OUTSIDE[family][layer]}.{kind}"
    _, number, inside = layer.split(".", 2)
    return f"{BLOCKS[family]}.{number}.{INSIDE[family][inside]}.{kind}"


def joined(tensor: Tensor, weights: Mapping[str, Readable]) -> Array | Foreign:
    """Return a tensor as transformers stores it, joined from the `weights` of this app."""
    parts = [np.asarray(weights[name].read()) for name in tensor.weights]
    whole = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return whole.T if tensor.transposed else whole


def views(shape: Shape, found: Mapping[str, Readable]) -> dict[str, Readable]:
    """Return our weights by name, as views of the tensors of a folder.

    Args:
        shape: shape of the decoder.
        found: name -> tensor, of all files of the folder.

    Raises:
        ValueError: a tensor is missing or unknown, or its shape or type does not fit our
            weights; the message names it.
    """
    if shape.layers > len(found):  # checked first, because a decoder of this size is built next
        raise ValueError(f"there are {len(found)} tensors for {shape.layers} layers")
    wanted, named = tensors(shape), _named(shape, found)
    for what, names in (("lacks", wanted.keys() - named.keys()),
                        ("has, which is unknown,", named.keys() - wanted.keys())):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ValueError(f"it {what} the tensor {min(names)}{more}")
    weights: dict[str, Readable] = {}
    for name, one in wanted.items():
        tensor = named[name]
        if tensor.shape != one.shape:
            raise ValueError(f"the tensor {name} has the shape {tensor.shape}, but config.json "
                             f"describes {one.shape}")
        if tensor.dtype not in ("float64", "float32", "float16", "bfloat16"):
            raise ValueError(f"the tensor {name} is of {tensor.dtype}, not of floating-point "
                             "numbers; quantized weights cannot be trained")
        outputs = one.shape[-1 if one.transposed else 0] // len(one.weights)
        size = (outputs, *(one.shape[:1] if one.transposed else one.shape[1:]))
        for number, weight in enumerate(one.weights):
            weights[weight] = View(tensor, number * outputs, size, one.transposed)
    return weights


def _named(shape: Shape, found: Mapping[str, Readable]) -> dict[str, Readable]:
    """Return the tensors by their full names, without buffers.

    In files of a network without its output layer, such as OpenAI's files of GPT-2, the names lack
    the prefix `transformer.` or `model.`. A file may contain the output layer although its weights
    are tied.
    """
    start = BLOCKS[shape.family].partition(".")[0] + "."
    whole = any(name.startswith(start) for name in found)
    named = {
        name if whole or name.startswith("lm_head.") else start + name: tensor
        for name, tensor in found.items() if not BUFFERS.search(name)
    }
    if shape.tied:
        named.pop("lm_head.weight", None)
    return named
