"""The two networks: a generator of the next frames, and what tells them from real ones.

Aigner and Koerner, "FutureGAN", arXiv:1810.01325, section 3 and table 1, with the layers of
Karras et al., "Progressive Growing of GANs", arXiv:1710.10196: equalized learning rate (section
4.1), pixel-wise feature normalization (4.2), and standard deviation over the minibatch (3), which
is in `spread.py`.

Clips are (N, C, T, H, W), values in -1..1. Level 0 has frames of 4x4 pixels (`Shape.base`), each
level twice the side of the one below. Both networks have the layers of all levels from the start;
at a level they use those up to it, and only these have gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from futuregan.spread import Spread

SLOPE = 0.2
TINY = 1e-8


@dataclass(frozen=True)
class Shape:
    """What networks are made for.

    Attributes:
        size: side of the largest frames, a power of 2, in pixels.
        past: frames that are given.
        future: frames that are predicted.
        channels: of a frame.
        width: features of the widest layers: as many up to 32 pixels, then half for twice the side.
        residual: the generator makes what is to be added to the last frame given.
        skip: features in which its decoder gets what its encoder had at each level; 0: it does not.
        base: side of the frames of level 0, to which all are made smaller, in pixels.
    """

    size: int = 128
    past: int = 6
    future: int = 6
    channels: int = 3
    width: int = 512
    residual: bool = False
    base: int = 4
    skip: int = 0

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return self.level(self.size) + 1

    def features(self, level: int) -> int:
        """Return the features of a level."""
        return max(1, min(self.width, 32 * self.width // (self.base << level)))

    def level(self, size: int) -> int:
        """Return the level of frames of `size` pixels."""
        return (size // self.base).bit_length() - 1


class Scaled(nn.Module):
    """A layer with an equalized learning rate: arXiv:1710.10196, section 4.1.

    Weights begin as normal numbers of deviation 1 and are scaled when used, by the constant of He
    et al. (arXiv:1502.01852): so Adam's steps are equally large for all layers.

    Args:
        shape: of the weights; the layer's inputs per output are `shape[1:]` (of a transposed
            convolution without overlap: `shape[0]`).
        gain: sqrt(2) before a rectifier, 1 at the end.
        stride: of a convolution.
        transposed: whether it is a transposed one.
    """

    scale: Tensor

    def __init__(
        self, shape: tuple[int, ...], *, gain: float = math.sqrt(2), transposed: bool = False,
        stride: tuple[int, int, int] = (1, 1, 1), padding: int = 0,
    ) -> None:
        super().__init__()
        inputs = shape[0] if transposed else math.prod(shape[1:])
        self.weight = nn.Parameter(torch.randn(shape))
        self.bias = nn.Parameter(torch.zeros(shape[1] if transposed else shape[0]))
        self.register_buffer("scale", torch.tensor(gain / math.sqrt(inputs)))
        self._transposed, self._stride, self._padding = transposed, stride, padding

    def forward(self, values: Tensor) -> Tensor:
        """Return the layer's outputs."""
        weight: Tensor = self.weight
        if weight.numel() < values.numel():  # whichever is cheaper to scale
            weight = weight * self.scale
        else:
            values = values * self.scale
        if weight.ndim == 2:
            return functional.linear(values, weight, self.bias)
        if self._transposed:
            return functional.conv_transpose3d(values, weight, self.bias, self._stride)
        return _convolved(values, weight, self.bias, self._stride, self._padding)


def _convolved(
    values: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, int, int], padding: int
) -> Tensor:
    """Return a convolution; on a processor in fp32 where three frames are convolved over two.

    There oneDNN's gradient of the weights in bf16 (PyTorch 2.13, AVX-512) has NaN and garbage: it
    reads memory that nobody has written.
    """
    if values.device.type == "cpu" and (weight.shape[2], values.shape[2]) == (3, 2):
        with torch.autocast("cpu", enabled=False):
            return functional.conv3d(values.float(), weight.float(), bias, stride, padding)
    return functional.conv3d(values, weight, bias, stride, padding)


def cube(inputs: int, outputs: int) -> Scaled:
    """Return a 3x3x3 convolution."""
    return Scaled((outputs, inputs, 3, 3, 3), padding=1)


def halving(inputs: int, outputs: int) -> Scaled:
    """Return a (1,2,2) convolution that halves the sides of the frames."""
    return Scaled((outputs, inputs, 1, 2, 2), stride=(1, 2, 2))


def doubling(inputs: int, outputs: int) -> Scaled:
    """Return a transposed (1,2,2) convolution that doubles the sides of the frames."""
    return Scaled((inputs, outputs, 1, 2, 2), stride=(1, 2, 2), transposed=True)


def pointwise(inputs: int, outputs: int, *, gain: float = math.sqrt(2)) -> Scaled:
    """Return a 1x1x1 convolution."""
    return Scaled((outputs, inputs, 1, 1, 1), gain=gain)


class Normalized(nn.Module):
    """Leaky rectifier, then each pixel's features to a mean square of 1: section 4.2."""

    def forward(self, values: Tensor) -> Tensor:
        """Return the normalized features."""
        found = functional.leaky_relu(values, SLOPE)
        # In 16 bits, the sum of squares would lose most of what is added up.
        size = found.float().square().mean(1, keepdim=True).add(TINY).rsqrt()
        return found * size.to(found.dtype)


def block(*layers: Scaled, normalized: bool) -> nn.Sequential:
    """Return layers, each with a rectifier behind it."""
    after = Normalized if normalized else lambda: nn.LeakyReLU(SLOPE)
    return nn.Sequential(*(module for layer in layers for module in (layer, after())))


def smaller(clip: Tensor, times: int = 2) -> Tensor:
    """Return frames of a side `times` smaller, by the mean of the pixels."""
    return clip if times == 1 else functional.avg_pool3d(clip, (1, times, times))


def larger(clip: Tensor) -> Tensor:
    """Return frames of twice the side, each pixel four times."""
    return functional.interpolate(clip, scale_factor=(1, 2, 2), mode="nearest")


def faded(old: Tensor, new: Tensor, fade: float) -> Tensor:
    """Return the way of a new level, faded in over that of the one below."""
    return torch.lerp(old, new, fade)


class Encoder(nn.Module):
    """From frames of any level to features (N, F, T, base, base)."""

    def __init__(self, shape: Shape, layout: torch.memory_format, *, normalized: bool) -> None:
        super().__init__()
        self._shape, self._layout = shape, layout
        features = [shape.features(level) for level in range(shape.levels)]
        self.inputs = nn.ModuleList(
            block(pointwise(shape.channels, count), normalized=normalized) for count in features
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList((
                block(cube(upper, upper), normalized=normalized),
                block(halving(upper, lower), normalized=normalized),
            ))
            for lower, upper in pairwise(features)
        )

    def forward(self, clip: Tensor, fade: float) -> list[Tensor]:
        """Return the features of `clip`, whose level is that of its frames, and those on the way.

        Those of level 0 come first, then those of each higher one, before its frames are halved.
        """
        level = self._shape.level(clip.shape[-1])
        # Part of a clip is in no order that convolutions know, and they would take the slow one.
        clip = clip.contiguous(memory_format=self._layout)
        found = [self.inputs[level](clip)]
        for number in range(level - 1, -1, -1):
            cubed, halved = cast("nn.ModuleList", self.blocks[number])
            found[0] = cubed(found[0])
            values = halved(found[0])
            if number == level - 1 and fade < 1:
                values = faded(self.inputs[number](smaller(clip)), values, fade)
            found.insert(0, values)
        return found


class Generator(nn.Module):
    """Makes the next frames (N, C, future, H, W) of those given (N, C, past, H, W).

    Args:
        shape: what it is made for.
        layout: order in memory of weights and features.
    """

    def __init__(
        self, shape: Shape, layout: torch.memory_format = torch.contiguous_format
    ) -> None:
        super().__init__()
        self.shape = shape
        features = [shape.features(level) for level in range(shape.levels)]
        width = features[0]
        self.encoder = Encoder(shape, layout, normalized=True)
        # In the middle, time is taken in as a whole, and laid out anew.
        self.middle = block(
            cube(width, width),
            Scaled((width, width, shape.past, 1, 1)),
            Scaled((width, width, shape.future, 1, 1), transposed=True),
            cube(width, width),
            normalized=True,
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList((
                block(doubling(lower, upper), normalized=True),
                block(cube(upper, upper), normalized=True),
            ))
            for lower, upper in pairwise(features)
        )
        # Around the middle, as through it: each pixel's past as a whole, and its future anew.
        self.skips = nn.ModuleList(
            block(
                Scaled((shape.skip, count, shape.past, 1, 1)),
                Scaled((shape.skip, count, shape.future, 1, 1), transposed=True),
                normalized=True,
            )
            for count in (features[1:] if shape.skip else [])
        )
        self.outputs = nn.ModuleList(
            pointwise(count, shape.channels, gain=1) for count in features
        )
        if shape.residual:  # nothing changes, at first: that is the simplest prediction
            for layer in self.outputs:
                nn.init.zeros_(cast("Tensor", layer.weight))
        self.to(memory_format=layout)  # type: ignore[call-overload]

    def forward(self, past: Tensor, fade: float = 1.0) -> Tensor:
        """Return the future of `past`, whose level is that of its frames."""
        level = self.shape.level(past.shape[-1])
        first, *seen = self.encoder(past, fade)
        values = self.middle(first)
        below = values
        for number in range(level):
            doubled, cubed = cast("nn.ModuleList", self.blocks[number])
            below, values = values, doubled(values)
            if self.shape.skip:
                values = values + self.skips[number](seen[number])
            values = cubed(values)
        found = self.outputs[level](values)
        if level and fade < 1:
            found = faded(larger(self.outputs[level - 1](below)), found, fade)
        return cast("Tensor", found + past[:, :, -1:] if self.shape.residual else found)

    def active(self, level: int) -> list[nn.Parameter]:
        """Return the parameters that a grown network of this level has."""
        modules = [self.encoder.inputs[level], *self.encoder.blocks[:level], self.middle,
                   *self.blocks[:level], *self.skips[:level], self.outputs[level]]
        return [parameter for module in modules for parameter in module.parameters()]


class Discriminator(nn.Module):
    """Gives clips (N, C, past + future, H, W) a score (N, 1): the higher, the more real.

    Args:
        shape: what it is made for.
        spread: adds how much clips differ.
        layout: order in memory of weights and features.
    """

    def __init__(
        self, shape: Shape, spread: Spread, layout: torch.memory_format = torch.contiguous_format
    ) -> None:
        super().__init__()
        width = shape.features(0)
        self.encoder = Encoder(shape, layout, normalized=False)
        self.spread = spread
        self.last = block(
            cube(width + 1, width),
            Scaled((width, width, shape.past + shape.future, shape.base, shape.base)),
            normalized=False,
        )
        self.score = Scaled((1, width), gain=1)
        self.to(memory_format=layout)  # type: ignore[call-overload]

    def forward(self, clip: Tensor, fade: float = 1.0, batches: int = 1) -> Tensor:
        """Return the scores of `batches` batches of clips, one after the other."""
        values = self.last(self.spread(self.encoder(clip, fade)[0], batches, clip.shape[-1]))
        return cast("Tensor", self.score(values.flatten(1)))

    def active(self, level: int) -> list[nn.Parameter]:
        """Return the parameters that a grown network of this level has."""
        modules = [self.encoder.inputs[level], *self.encoder.blocks[:level], self.last, self.score]
        return [parameter for module in modules for parameter in module.parameters()]
