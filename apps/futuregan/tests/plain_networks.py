"""Reference implementation of both networks in float64 NumPy, with plain loops and sums.

It uses neither PyTorch nor the code of the app. The weights have the names of the app's networks.
They are not scaled; this module computes the scales of the equalized learning rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Weights = Mapping[str, Values]


def convolved(
    values: Values, weights: Weights, name: str, *, gain: float = 2.0,
    stride: tuple[int, int, int] = (1, 1, 1), padding: int = 0,
) -> Values:
    """Return the convolution of a layer, (N, F, T, H, W): a sum over the positions of its kernel.

    The weights are multiplied by sqrt(`gain` / number of inputs per output value).
    """
    kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    padded = np.pad(values, [(0, 0), (0, 0), *[(padding, padding)] * 3])
    sides = [
        (whole - part) // step + 1
        for whole, part, step in zip(padded.shape[2:], kernel.shape[2:], stride, strict=True)
    ]
    found = np.zeros((len(values), len(kernel), *sides))
    for place in itertools.product(*map(range, kernel.shape[2:])):
        window = padded[(slice(None), slice(None), *(
            slice(first, first + (side - 1) * step + 1, step)
            for first, side, step in zip(place, sides, stride, strict=True)
        ))]
        found += np.einsum("nithw,oi->nothw", window, kernel[(slice(None), slice(None), *place)])
    inputs = kernel[0].size
    return found * math.sqrt(gain / inputs) + bias[:, None, None, None]


def laid_out(values: Values, weights: Weights, name: str) -> Values:
    """Return a transposed convolution, (N, F, T, H, W): each input value fills one block."""
    kernel, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    blocks = np.einsum("nithw,ioabc->notahbwc", values, kernel) * math.sqrt(2 / len(kernel))
    count, features, *sides = blocks.shape
    whole = [one * more for one, more in zip(sides[::2], sides[1::2], strict=True)]
    return blocks.reshape(count, features, *whole) + bias[:, None, None, None]


def rectified(values: Values) -> Values:
    return np.where(values > 0, values, 0.2 * values)


def normalized(values: Values) -> Values:
    """Return `values` after a leaky ReLU; the features of each pixel have a mean square of 1."""
    found = rectified(values)
    return found / np.sqrt((found**2).sum(1, keepdims=True) / found.shape[1] + 1e-8)


def pooled(clip: Values) -> Values:
    """Return frames of half the height and width; each new pixel is the mean of four pixels."""
    return (clip[..., ::2, ::2] + clip[..., 1::2, ::2] + clip[..., ::2, 1::2]
            + clip[..., 1::2, 1::2]) / 4


def doubled(clip: Values) -> Values:
    return clip.repeat(2, 3).repeat(2, 4)


def encoded(
    clip: Values, weights: Weights, fade: float, base: int, *, discriminator: bool
) -> list[Values]:
    """Return the final features of an encoder, followed by the features of each level.

    The features of a level are taken before its frames are halved; the lowest level comes first.
    """
    after = rectified if discriminator else normalized
    level = round(math.log2(clip.shape[-1] / base))

    def entered(frames: Values, at: int) -> Values:
        return after(convolved(frames, weights, f"encoder.inputs.{at}.0"))

    values, seen = entered(clip, level), []
    for at in reversed(range(level)):
        values = after(convolved(values, weights, f"encoder.blocks.{at}.0.0", padding=1))
        seen.insert(0, values)
        values = after(convolved(values, weights, f"encoder.blocks.{at}.1.0", stride=(1, 2, 2)))
        if at == level - 1:
            values = fade * values + (1 - fade) * entered(pooled(clip), at)
    return [values, *seen]


def generated(
    past: Values, weights: Weights, fade: float, *, base: int = 4, residual: bool = False
) -> Values:
    """Return the future frames, (N, C, T, H, W), that a generator predicts from past frames."""
    values, *seen = encoded(past, weights, fade, base, discriminator=False)
    values = normalized(convolved(values, weights, "middle.0", padding=1))
    values = normalized(convolved(values, weights, "middle.2"))
    values = normalized(laid_out(values, weights, "middle.4"))
    values = normalized(convolved(values, weights, "middle.6", padding=1))
    ways = [values]
    for at, had in enumerate(seen):
        values = normalized(laid_out(values, weights, f"blocks.{at}.0.0"))
        if f"skips.{at}.0.weight" in weights:
            joined = normalized(convolved(had, weights, f"skips.{at}.0"))
            values = values + normalized(laid_out(joined, weights, f"skips.{at}.2"))
        values = normalized(convolved(values, weights, f"blocks.{at}.1.0", padding=1))
        ways.append(values)
    level = len(seen)
    found = convolved(ways[level], weights, f"outputs.{level}", gain=1)
    if level:
        old = convolved(ways[level - 1], weights, f"outputs.{level - 1}", gain=1)
        found = fade * found + (1 - fade) * doubled(old)
    return found + past[:, :, -1:] if residual else found


def deviations(values: Values, group: int) -> Values:
    """Return for each clip the mean standard deviation of its group, (clips,).

    For each element of the features, the standard deviation is computed over the clips of a
    group. The mean over all elements is the value of each clip in the group. A group has at
    most `group` clips; the sizes of two groups differ by at most 1.
    """
    groups = np.array_split(values, max(1, math.ceil(len(values) / group)))
    return np.concatenate([
        np.full(len(one), np.sqrt(((one - one.mean(0)) ** 2).mean(0) + 1e-8).mean())
        for one in groups
    ])


def judged(
    batches: Sequence[Values], weights: Weights, fade: float, *, group: int, base: int = 4
) -> Values:
    """Return the scores of the discriminator for the clips of all batches, (clips,).

    The groups of the minibatch standard deviation never contain clips of different batches.
    """
    found = []
    for clips in batches:
        values = encoded(clips, weights, fade, base, discriminator=True)[0]
        differ = deviations(values, group)[:, None, None, None, None]
        values = np.concatenate([values, np.broadcast_to(
            differ, (len(values), 1, *values.shape[2:]))], 1)
        values = rectified(convolved(values, weights, "last.0", padding=1))
        values = rectified(convolved(values, weights, "last.2"))[:, :, 0, 0, 0]
        kernel, bias = weights["score.weight"], weights["score.bias"]
        found.append(values @ kernel[0] / math.sqrt(kernel.shape[1]) + bias)
    return np.concatenate(found)
