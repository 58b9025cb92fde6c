"""Networks besides ResNets, for comparison in `benchmark`: AlexNet, GoogLeNet, VGG and others.

Each network maps images (N, 3, S, S) to logits (N, classes). AlexNet and VGG have no batch
normalization, as in their publications. The command `train` does not offer these networks. Their
initial weights are those of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


def alexnet(classes: int) -> nn.Module:
    """Return the one-column AlexNet of Krizhevsky, arXiv:1404.5997.

    The numbers of features are those of the usual implementations, with 61,100,840 parameters and
    without local response normalization.
    """
    layers: list[nn.Module] = []
    inputs = 3
    for features, kernel, stride, pool in (
        (64, 11, 4, True), (192, 5, 1, True), (384, 3, 1, False), (256, 3, 1, False),
        (256, 3, 1, True),
    ):
        padding = 2 if kernel == 11 else kernel // 2
        layers += [nn.Conv2d(inputs, features, kernel, stride, padding), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(3, 2)] * pool
        inputs = features
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(6), *dense(256 * 36, classes))


def vgg(depths: Sequence[int], classes: int) -> nn.Module:
    """Return a VGG network of Simonyan and Zisserman, arXiv:1409.1556, table 1 (D or E).

    Args:
        depths: number of 3x3 convolutions before each max-pooling.
        classes: number of classes.
    """
    layers: list[nn.Module] = []
    inputs = 3
    for depth, features in zip(depths, (64, 128, 256, 512, 512), strict=True):
        for _ in range(depth):
            layers += [nn.Conv2d(inputs, features, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = features
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), *dense(512 * 49, classes))


def dense(inputs: int, classes: int) -> list[nn.Module]:
    """Return the three linear layers with dropout of AlexNet and VGG."""
    return [
        nn.Flatten(), nn.Dropout(), nn.Linear(inputs, 4096), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, classes),
    ]


def conv(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1,
    activation: Callable[[bool], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Return a convolution with "same" padding, batch normalization and an activation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs), activation(True),  # in place
    )


class Side(nn.Module):
    """Parallel branches: each processes the same input, and their results are concatenated."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, sum of the features of all branches, H, W)."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)


INCEPTIONS = {
    "3a": (192, 64, 96, 128, 16, 32, 32), "3b": (256, 128, 128, 192, 32, 96, 64),
    "4a": (480, 192, 96, 208, 16, 48, 64), "4b": (512, 160, 112, 224, 24, 64, 64),
    "4c": (512, 128, 128, 256, 24, 64, 64), "4d": (512, 112, 144, 288, 32, 64, 64),
    "4e": (528, 256, 160, 320, 32, 128, 128), "5a": (832, 256, 160, 320, 32, 128, 128),
    "5b": (832, 384, 192, 384, 48, 128, 128),
}
"""Name of an inception module -> numbers of features: of its input, and of its layers 1x1, 3x3
reduce, 3x3, 5x5 reduce, 5x5 and pool projection: arXiv:1409.4842, table 1."""


def inception(name: str) -> Side:
    """Return the inception module `name`: arXiv:1409.4842, figure 2b."""
    inputs, plain, reduce3, wide3, reduce5, wide5, pooled = INCEPTIONS[name]
    return Side(
        conv(inputs, plain, 1),
        nn.Sequential(conv(inputs, reduce3, 1), conv(reduce3, wide3, 3)),
        nn.Sequential(conv(inputs, reduce5, 1), conv(reduce5, wide5, 5)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(inputs, pooled, 1)),
    )


def googlenet(classes: int) -> nn.Module:
    """Return the GoogLeNet of Szegedy et al., arXiv:1409.4842, table 1.

    It lacks the two auxiliary classifiers, and has batch normalization (arXiv:1502.03167) instead
    of biases and local response normalization.
    """
    layers: list[nn.Module] = [
        conv(3, 64, 7, 2), _halving(), conv(64, 64, 1), conv(64, 192, 3), _halving(),
    ]
    for name in INCEPTIONS:
        if name in ("4a", "5a"):
            layers.append(_halving())
        layers.append(inception(name))
    return nn.Sequential(*layers, *_pooled(1024, classes, 0.4))


def _halving() -> nn.Module:
    return nn.MaxPool2d(3, 2, ceil_mode=True)


def _pooled(features: int, classes: int, dropout: float) -> list[nn.Module]:
    """Return average pooling, dropout and a linear layer."""
    return [
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(features, classes)
    ]


def densenet121(classes: int) -> nn.Module:
    """Return DenseNet-121 of Huang et al., arXiv:1608.06993, table 1: growth 32, compression 1/2.

    Batch normalization and ReLU stand before each convolution.
    """
    layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    features = 64
    for depth in (6, 12, 24, 16):
        if len(layers) > 2:  # a transition
            layers += [_before(features, features // 2, 1), nn.AvgPool2d(2)]
            features //= 2
        for _ in range(depth):
            new = nn.Sequential(_before(features, 128, 1), _before(128, 32, 3))
            layers.append(Side(nn.Identity(), new))
            features += 32
    end = [nn.BatchNorm2d(features), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, *end, *_pooled(features, classes, 0.0))


def _before(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm2d(inputs), nn.ReLU(inplace=True),
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
    )


class Residual(nn.Module):
    """Modules whose result is added to their input."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        added: Tensor = x + self.body(x)
        return added


def mobilenetv2(classes: int) -> nn.Module:
    """Return MobileNetV2 of Sandler et al., arXiv:1801.04381, table 2."""
    layers: list[nn.Module] = [conv(3, 32, 3, 2, activation=nn.ReLU6)]
    inputs = 32
    for expansion, features, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for number in range(count):
            block = bottleneck(inputs, expansion * inputs, features, 1 if number else first)
            layers.append(Residual(block) if number else block)
            inputs = features
    return nn.Sequential(
        *layers, conv(320, 1280, 1, activation=nn.ReLU6), *_pooled(1280, classes, 0.2)
    )


def bottleneck(inputs: int, wide: int, outputs: int, stride: int) -> nn.Sequential:
    """Return an inverted bottleneck; it does not expand if `wide` equals `inputs`.

    Source: arXiv:1801.04381, table 1.
    """
    expand = [conv(inputs, wide, 1, activation=nn.ReLU6)] if wide > inputs else []
    depthwise = conv(wide, wide, 3, stride, groups=wide, activation=nn.ReLU6)
    project = [nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*expand, depthwise, *project)


class Entry(NamedTuple):
    """A network: a function that builds it, and the smallest side of its images, in pixels."""

    build: Callable[[int], nn.Module]
    smallest: int


NETWORKS = {
    "alexnet": Entry(alexnet, 63),
    "googlenet": Entry(googlenet, 32),
    "vgg16": Entry(lambda classes: vgg((2, 2, 3, 3, 3), classes), 32),
    "vgg19": Entry(lambda classes: vgg((2, 2, 4, 4, 4), classes), 32),
    "densenet121": Entry(densenet121, 32),
    "mobilenetv2": Entry(mobilenetv2, 32),
}
"""Name -> network; their images have 224 pixels in the publications."""
