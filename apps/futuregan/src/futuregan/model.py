"""The two networks: the generator of future frames, and the discriminator.

Aigner and Koerner, "FutureGAN", arXiv:1810.01325, section 3 and table 1, with the layers of
Karras et al., "Progressive Growing of GANs", arXiv:1710.10196: equalized learning rate (section
4.1), pixel-wise feature normalization (section 4.2) and minibatch standard deviation (section 3,
in `minibatch_stddev.py`).

Clips are tensors (N, C, T, H, W) with values in -1..1. Level 0 has frames of 4x4 pixels
(`Shape.base`), and each level has twice the side of the level below. Both networks have the layers
of all levels from the start. A training at one level uses the layers up to that level, and only
these get gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from futuregan.minibatch_stddev import MinibatchStddev

SLOPE = 0.2
TINY = 1e-8


@dataclass(frozen=True)
class Shape:
    """The sizes that determine the networks.

    Attributes:
        size: side of the largest frames, a power of 2, in pixels.
        past: number of input frames.
        future: number of predicted frames.
        channels: number of channels of a frame.
        width: number of features for frames of up to 32 pixels; each doubling of the side above
            32 pixels halves this number.
        residual: whether the generator predicts the difference from the last input frame.
        base: side of the frames of level 0, in pixels.
        skip: number of features of the skip connection from encoder to decoder at each level; 0 for
            no skip connections.
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
        """The number of levels: frame sides from `base` to `size`, each twice the side before."""
        return self.level(self.size) + 1

    def features(self, level: int) -> int:
        """Return the number of features at `level`."""
        return max(1, min(self.width, 32 * self.width // (self.base << level)))

    def level(self, size: int) -> int:
        """Return the level of the networks at which frames have a side of `size` pixels."""
        return (size // self.base).bit_length() - 1


class EqualizedLayer(nn.Module):
    """A layer with an equalized learning rate: arXiv:1710.10196, section 4.1.

    The weights are initialized with standard deviation 1, and multiplied in each forward pass by
    the constant of He et al. (arXiv:1502.01852), so that Adam makes equal steps in all layers.

    Args:
        shape: shape of the weights. The fan-in is the product of `shape[1:]`; for a transposed
            convolution, whose windows must not overlap, it is `shape[0]`.
        gain: gain of the initialization: sqrt(2) before a rectifier, 1 in an output layer.
        transposed: whether the layer is a transposed convolution.
        stride: stride of a convolution.
        padding: padding of a convolution.

    Attributes:
        transposed: whether it is a transposed convolution.
    """

    scale: Tensor
    weight: nn.Parameter

    def __init__(
        self, shape: tuple[int, ...], *, gain: float = math.sqrt(2), transposed: bool = False,
        stride: tuple[int, int, int] = (1, 1, 1), padding: int = 0,
    ) -> None:
        super().__init__()
        inputs = shape[0] if transposed else math.prod(shape[1:])
        self.weight = nn.Parameter(torch.randn(shape))
        self.bias = nn.Parameter(torch.zeros(shape[1] if transposed else shape[0]))
        self.register_buffer("scale", torch.tensor(gain / math.sqrt(inputs)))
        self.transposed, self._stride, self._padding = transposed, stride, padding

    def forward(self, values: Tensor) -> Tensor:
        """Return the outputs of the layer."""
        weight: Tensor = self.weight
        if weight.numel() < values.numel():  # scale the smaller tensor
            weight = weight * self.scale
        else:
            values = values * self.scale
        if weight.ndim == 2:
            return functional.linear(values, weight, self.bias)
        if self.transposed:
            return functional.conv_transpose3d(values, weight, self.bias, self._stride)
        return _conv3d(values, weight, self.bias, self._stride, self._padding)


def _conv3d(
    values: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, int, int], padding: int
) -> Tensor:
    """Return a convolution; on a CPU, use fp32 for a kernel of 3 frames on a clip of 2 frames.

    In that case oneDNN's bf16 gradient of the weights (PyTorch 2.13, AVX-512) reads uninitialized
    memory and contains NaN and garbage.
    """
    if values.device.type == "cpu" and (weight.shape[2], values.shape[2]) == (3, 2):
        with torch.autocast("cpu", enabled=False):
            return functional.conv3d(values.float(), weight.float(), bias, stride, padding)
    return functional.conv3d(values, weight, bias, stride, padding)


def conv3x3x3(inputs: int, outputs: int) -> EqualizedLayer:
    """Return a 3x3x3 convolution with padding."""
    return EqualizedLayer((outputs, inputs, 3, 3, 3), padding=1)


def downsampling_conv(inputs: int, outputs: int) -> EqualizedLayer:
    """Return a (1,2,2) convolution that halves the side of the frames."""
    return EqualizedLayer((outputs, inputs, 1, 2, 2), stride=(1, 2, 2))


def upsampling_conv(inputs: int, outputs: int) -> EqualizedLayer:
    """Return a transposed (1,2,2) convolution that doubles the side of the frames."""
    return EqualizedLayer((inputs, outputs, 1, 2, 2), stride=(1, 2, 2), transposed=True)


def conv1x1x1(inputs: int, outputs: int, *, gain: float = math.sqrt(2)) -> EqualizedLayer:
    """Return a 1x1x1 convolution."""
    return EqualizedLayer((outputs, inputs, 1, 1, 1), gain=gain)


class LeakyPixelNorm(nn.Module):
    """Leaky ReLU, then a scaling of the features of each pixel to a mean square of 1.

    Source: arXiv:1710.10196, section 4.2.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Return the normalized features, of the shape of `values`."""
        found = functional.leaky_relu(values, SLOPE)
        # A sum of squares in 16 bits would lose most of its precision.
        size = found.float().square().mean(1, keepdim=True).add(TINY).rsqrt()
        return found * size.to(found.dtype)


def block(*layers: EqualizedLayer, normalized: bool) -> nn.Sequential:
    """Return layers in sequence, each followed by leaky ReLU and, if `normalized`, pixel norm."""
    activation = LeakyPixelNorm if normalized else lambda: nn.LeakyReLU(SLOPE)
    return nn.Sequential(*(module for layer in layers for module in (layer, activation())))


def downsample(clip: Tensor, times: int = 2) -> Tensor:
    """Return frames whose height and width are divided by `times`, by average pooling."""
    return clip if times == 1 else functional.avg_pool3d(clip, (1, times, times))


def upsample(clip: Tensor) -> Tensor:
    """Return frames of twice the height and width, by repetition of each pixel."""
    return functional.interpolate(clip, scale_factor=(1, 2, 2), mode="nearest")


def fade_in(old: Tensor, new: Tensor, fade: float) -> Tensor:
    """Return a blend of the outputs of two levels, in which `new` has the weight `fade`."""
    return torch.lerp(old, new, fade)


class Encoder(nn.Module):
    """A network that maps frames of any level to features (N, F, T, base, base).

    Args:
        shape: sizes of the network.
        layout: memory format of the input.
        normalized: whether pixel norm follows each layer.
    """

    def __init__(self, shape: Shape, layout: torch.memory_format, *, normalized: bool) -> None:
        super().__init__()
        self._shape, self._layout = shape, layout
        features = [shape.features(level) for level in range(shape.levels)]
        self.inputs = nn.ModuleList(
            block(conv1x1x1(shape.channels, count), normalized=normalized) for count in features
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList((
                block(conv3x3x3(upper, upper), normalized=normalized),
                block(downsampling_conv(upper, lower), normalized=normalized),
            ))
            for lower, upper in pairwise(features)
        )

    def forward(self, clip: Tensor, fade: float) -> list[Tensor]:
        """Return the features of each level, from level 0 to the level of the frames of `clip`.

        The features of a level are taken before the layer that halves width and height.

        Args:
            clip: (N, C, T, H, W).
            fade: weight of the highest level, 0..1.
        """
        level = self._shape.level(clip.shape[-1])
        # A slice of a clip has a layout for which PyTorch would choose a slow convolution.
        clip = clip.contiguous(memory_format=self._layout)
        found = [self.inputs[level](clip)]
        for number in range(level - 1, -1, -1):
            convolved, downsampled = cast("nn.ModuleList", self.blocks[number])
            found[0] = convolved(found[0])
            values = downsampled(found[0])
            if number == level - 1 and fade < 1:
                values = fade_in(self.inputs[number](downsample(clip)), values, fade)
            found.insert(0, values)
        return found


class Generator(nn.Module):
    """The network that predicts the future frames of a video from its input frames.

    The input frames have the shape (N, C, past, H, W), the future frames (N, C, future, H, W).

    Args:
        shape: sizes of the network.
        layout: memory format of weights and features.
    """

    def __init__(
        self, shape: Shape, layout: torch.memory_format = torch.contiguous_format
    ) -> None:
        super().__init__()
        self.shape = shape
        features = [shape.features(level) for level in range(shape.levels)]
        width = features[0]
        self.encoder = Encoder(shape, layout, normalized=True)
        # The middle layers map all input frames to one time step, and this to all future frames.
        self.middle = block(
            conv3x3x3(width, width),
            EqualizedLayer((width, width, shape.past, 1, 1)),
            EqualizedLayer((width, width, shape.future, 1, 1), transposed=True),
            conv3x3x3(width, width),
            normalized=True,
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList((
                block(upsampling_conv(lower, upper), normalized=True),
                block(conv3x3x3(upper, upper), normalized=True),
            ))
            for lower, upper in pairwise(features)
        )
        # Like the middle layers, skip connections map the past of a pixel to its future.
        self.skips = nn.ModuleList(
            block(
                EqualizedLayer((shape.skip, count, shape.past, 1, 1)),
                EqualizedLayer((shape.skip, count, shape.future, 1, 1), transposed=True),
                normalized=True,
            )
            for count in (features[1:] if shape.skip else [])
        )
        self.outputs = nn.ModuleList(
            conv1x1x1(count, shape.channels, gain=1) for count in features
        )
        if shape.residual:  # the initial prediction repeats the last frame
            for layer in self.outputs:
                nn.init.zeros_(cast("Tensor", layer.weight))
        self.to(memory_format=layout)  # type: ignore[call-overload]

    def forward(self, past: Tensor, fade: float = 1.0) -> Tensor:
        """Return the frames that follow the input frames.

        Args:
            past: input frames (N, C, past, H, W); their side determines the level.
            fade: weight of the highest level, 0..1.
        """
        level = self.shape.level(past.shape[-1])
        first, *skipped = self.encoder(past, fade)
        values = self.middle(first)
        lower = values
        for number in range(level):
            upsampled, convolved = cast("nn.ModuleList", self.blocks[number])
            lower, values = values, upsampled(values)
            if self.shape.skip:
                values = values + self.skips[number](skipped[number])
            values = convolved(values)
        found = self.outputs[level](values)
        if level and fade < 1:
            found = fade_in(upsample(self.outputs[level - 1](lower)), found, fade)
        return cast("Tensor", found + past[:, :, -1:] if self.shape.residual else found)

    def active(self, level: int) -> list[nn.Parameter]:
        """Return the parameters that are used at `level`."""
        modules = [self.encoder.inputs[level], *self.encoder.blocks[:level], self.middle,
                   *self.blocks[:level], *self.skips[:level], self.outputs[level]]
        return [parameter for module in modules for parameter in module.parameters()]


class Discriminator(nn.Module):
    """The network that maps clips (N, C, past + future, H, W) to scores (N, 1).

    It is trained to give real clips higher scores than predicted clips.

    Args:
        shape: sizes of the network.
        minibatch_stddev: layer that appends the minibatch standard deviation.
        layout: memory format of weights and features.
    """

    def __init__(
        self, shape: Shape, minibatch_stddev: MinibatchStddev,
        layout: torch.memory_format = torch.contiguous_format,
    ) -> None:
        super().__init__()
        width = shape.features(0)
        self.encoder = Encoder(shape, layout, normalized=False)
        self.minibatch_stddev = minibatch_stddev
        self.last = block(
            conv3x3x3(width + 1, width),
            EqualizedLayer((width, width, shape.past + shape.future, shape.base, shape.base)),
            normalized=False,
        )
        self.score = EqualizedLayer((1, width), gain=1)
        self.to(memory_format=layout)  # type: ignore[call-overload]

    def forward(self, clip: Tensor, fade: float = 1.0, batches: int = 1) -> Tensor:
        """Return the scores of clips, (N, 1).

        Args:
            clip: clips (N, C, past + future, H, W) of several batches, one after the other.
            fade: weight of the highest level, 0..1.
            batches: number of these batches; a minibatch standard deviation never mixes them.
        """
        features = self.encoder(clip, fade)[0]
        values = self.last(self.minibatch_stddev(features, batches, clip.shape[-1]))
        return cast("Tensor", self.score(values.flatten(1)))

    def active(self, level: int) -> list[nn.Parameter]:
        """Return the parameters that are used at `level`."""
        modules = [self.encoder.inputs[level], *self.encoder.blocks[:level], self.last, self.score]
        return [parameter for module in modules for parameter in module.parameters()]
