"""The operations of the networks per token: `python -m language_model.work` prints work.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from language_model.shapes import SHAPES, Shape
from trainkit.workfile import write

NETWORKS = (
    ("gpt2-124m", 1024), ("llama2-7b", 1024), ("llama3-8b", 8192), ("llama-726k", 128),
    ("llama-test", 64),
)
"""The networks of the recipes, each with the number of tokens of its sequences."""

Layer = list[Any]


def describe(name: str, sequence: int) -> dict[str, Any]:
    """Return the length of a sequence, and the layers of the network `name` for one token."""
    return {"size": sequence, "layers": list(layers(SHAPES[name], sequence))}


def layers(shape: Shape, sequence: int) -> Iterator[Layer]:
    """Yield the layers in the order of the forward pass.

    The operations are those of `method.operations_per_token`: two for each parameter outside of
    lookup tables, and 4 x width x sequence for the products of queries, keys and values.

    Args:
        shape: shape of the network.
        sequence: tokens of a sequence.

    Yields:
        Name, sizes of the parameter tensors, operations of the forward pass for one token, and
        number of output values for one token.
    """
    width, table = shape.width, shape.vocabulary * shape.width
    yield ["embedding", [table], 0, width]
    if shape.family == "gpt2":
        yield ["positions", [shape.positions * width], 0, width]
    for number in range(shape.layers):
        for layer in _block(shape, sequence):
            yield [f"blocks.{number}.{layer[0]}", *layer[1:]]
    yield _norm("norm", shape)
    yield ["head", [] if shape.tied else [table], 2 * table, shape.vocabulary]


def _block(shape: Shape, sequence: int) -> Iterator[Layer]:
    width, keys = shape.width, shape.key_heads * shape.head_width
    yield _norm("attention_norm", shape)
    for name, outputs in (("query", width), ("key", keys), ("value", keys)):
        yield _linear(f"attention.{name}", shape, width, outputs)
    yield ["attention.seen", [], 4 * width * sequence, width]
    yield _linear("attention.output", shape, width, width)
    yield _norm("feed_forward_norm", shape)
    yield _linear("feed_forward.up", shape, width, shape.hidden)
    if shape.family == "llama":
        yield _linear("feed_forward.gate", shape, width, shape.hidden)
    yield ["feed_forward.activation", [], 0, shape.hidden]
    yield _linear("feed_forward.down", shape, shape.hidden, width)


def _linear(name: str, shape: Shape, inputs: int, outputs: int) -> Layer:
    sizes = [inputs * outputs, *([outputs] if shape.family == "gpt2" else [])]
    return [name, sizes, 2 * sum(sizes), outputs]


def _norm(name: str, shape: Shape) -> Layer:
    sizes = [shape.width] * (2 if shape.family == "gpt2" else 1)
    return [name, sizes, 2 * sum(sizes), shape.width]


def main() -> None:
    """Print the layers of all networks and their operations as JSON."""
    write({f"{name}@{sequence}": describe(name, sequence) for name, sequence in NETWORKS})


if __name__ == "__main__":
    main()
