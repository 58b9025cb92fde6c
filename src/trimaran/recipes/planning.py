"""The part `planning` of an app card: the options and metrics that `trimaran plan` reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from trimaran import strict
from trimaran.recipes.words import Word

Exchange = Literal["all-reduce", "all-reduce-after", "parameter-server", "sharded"]
"""The way in which the ranks of a training exchange gradients.

`all-reduce` begins during the backward pass, and `all-reduce-after` begins after the backward pass.
With `parameter-server`, servers add the gradients. With `sharded`, the weights are divided over the
ranks, which gather them for each pass.
"""


class Exchanges(strict.Model):
    """The option that decides how the ranks exchange gradients."""

    option: Word = Field(description="option: strategy of the training")
    values: dict[Word, Exchange] = Field(
        min_length=1, description="value of the option -> exchange; no other value can be planned"
    )


class Decoding(strict.Model):
    """The measured rate at which the app decodes samples."""

    per_core: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        description="samples per second of one core"
    )
    data: list[str] = Field(min_length=1, description="data sets with samples of this kind")
    source: str = Field(description="where, when and how it was measured")


class Planning(strict.Model):
    """The options and metrics of an app's recipes from which `trimaran plan` makes predictions."""

    network: Word = Field(description="option: the network, one of those in work.json of the app")
    size: Word | None = Field(
        default=None, description="option: size of a sample, such as the side of an image; the"
        " networks in work.json are then NETWORK@SIZE"
    )
    batch: Word = Field(description="option: samples of a device in one step")
    whole_batch: bool = Field(
        default=False, description="whether `batch` is that of all devices together"
    )
    sequences: bool = Field(
        default=False, description="whether `batch` counts sequences, of `size` samples each"
    )
    precision: Word = Field(description="option: precision of products")
    epochs: Word | None = Field(
        default=None, description="option: epochs of the training; null: their times differ"
    )
    steps: Word | None = Field(
        default=None, description="option: steps of the training, instead of epochs"
    )
    epoch_time: Word | None = Field(
        default=None, description="metric: time of an epoch in s, from which a rate follows"
    )
    exchange: Exchanges | None = Field(
        default=None, description="how the ranks exchange gradients; null: all-reduce"
    )
    fixed: list[Word] = Field(
        default=[], description="options that must have their default for a plan"
    )
    fp32_layers: str | None = Field(
        default=None, description="beginning of the names of layers in work.json that compute in"
        " fp32, or TF32 if the device has it and the precision is lower; null: none does"
    )
    state_bytes: Annotated[int, Field(gt=0)] = Field(
        default=12, description="bytes of weight, gradient and state of the optimizer for each"
        " parameter; 12: SGD with momentum, 16: Adam, in fp32"
    )

    decoding: Decoding | None = Field(
        default=None, description="how fast the app decodes samples; null: not measured"
    )

    def options(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the key path and the value of each key that names an option of the app."""
        for key in ("network", "size", "batch", "precision", "epochs", "steps"):
            if (name := getattr(self, key)) is not None:
                yield (key,), name
        if self.exchange is not None:
            yield ("exchange", "option"), self.exchange.option
        yield from ((("fixed", at), name) for at, name in enumerate(self.fixed))
