"""The networks: ResNet v1.5 for photographs, and the 6n+2-layer ResNets for small images.

Sources: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition",
arXiv:1512.03385: table 1 for ResNet-18/34/50/101/152, section 4.2 for ResNet-20/32.
In v1.5 a bottleneck halves the resolution in its 3x3 convolution instead of its first 1x1
convolution, as in fb.resnet.torch and NVIDIA DeepLearningExamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Stem = Literal["imagenet", "small"]


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Return a `kernel` x `kernel` convolution with "same" padding, without bias."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class BasicBlock(nn.Module):
    """A residual block of two 3x3 convolutions: arXiv:1512.03385, figure 5, left.

    Args:
        inputs: number of input channels.
        width: number of output channels.
        stride: stride of the first convolution.
        shortcut: module whose output is added to the output of the convolutions.
    """

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv1 = conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, H, W) to (N, width, H / stride, W / stride)."""
        out = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return functional.relu(out, inplace=True)


class Bottleneck(nn.Module):
    """A residual block of 1x1, 3x3 and 1x1 convolutions: arXiv:1512.03385, figure 5, right.

    Args:
        inputs: number of input channels.
        width: number of channels between the convolutions, a quarter of the output channels.
        stride: stride of the 3x3 convolution.
        shortcut: module whose output is added to the output of the convolutions.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv1 = conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, width * self.expansion, 1)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, H, W) to (N, 4 * width, H / stride, W / stride)."""
        out = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        out = functional.relu(self.bn2(self.conv2(out)), inplace=True)
        out = self.bn3(self.conv3(out))
        out += self.shortcut(x)
        return functional.relu(out, inplace=True)


class PadShortcut(nn.Module):
    """A shortcut that subsamples and adds channels of zeros.

    Source: arXiv:1512.03385, section 3.3, option A.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before = (outputs - inputs) // 2
        self.after = outputs - inputs - self.before

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        x = x[:, :, :: self.stride, :: self.stride]
        return functional.pad(x, (0, 0, 0, 0, self.before, self.after))


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Return a shortcut of a strided 1x1 convolution and batch normalization.

    Source: arXiv:1512.03385, section 3.3, option B.
    """
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


Block = type[BasicBlock] | type[Bottleneck]
Shortcut = Callable[[int, int, int], nn.Module]


def stem(kind: Stem, channels: int, width: int) -> nn.Sequential:
    """Return the layers before the first block.

    Args:
        kind: "imagenet" (7x7 with stride 2, and max-pooling: a quarter of the resolution) or
            "small" (3x3 with stride 1).
        channels: number of channels of the images.
        width: number of output channels.
    """
    if kind == "small":
        return nn.Sequential(conv(channels, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
    return nn.Sequential(
        conv(channels, width, 7, stride=2),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    )


class ResNet(nn.Module):
    """A residual network: stem, stages of residual blocks, average pooling, and a linear layer.

    Each stage but the first halves the resolution.

    Args:
        block: the residual block.
        depths: number of blocks of each stage.
        widths: number of channels of each stage, before the expansion by the block.
        classes: number of outputs of the last layer.
        channels: number of channels of the images.
        stem_kind: kind of the layers before the first block, see `stem`.
        shortcut: function that makes the shortcut of a block that changes the shape.
    """

    def __init__(
        self,
        block: Block,
        depths: Sequence[int],
        widths: Sequence[int],
        *,
        classes: int,
        channels: int = 3,
        stem_kind: Stem = "imagenet",
        shortcut: Shortcut = projection,
    ) -> None:
        super().__init__()
        self.stem = stem(stem_kind, channels, widths[0])
        stages, inputs = [], widths[0]
        for number, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            blocks: list[nn.Module] = []
            for index in range(depth):
                stride = 2 if number > 0 and index == 0 else 1
                outputs = width * block.expansion
                same = stride == 1 and inputs == outputs
                skip = nn.Identity() if same else shortcut(inputs, outputs, stride)
                blocks.append(block(inputs, width, stride, skip))
                inputs = outputs
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)
        self.apply(initialize)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, classes) of `images` (N, channels, H, W), normalized floats."""
        features = self.stages(self.stem(images))
        logits: Tensor = self.head(features.mean(dim=(2, 3)))
        return logits


@torch.no_grad()
def initialize(module: nn.Module) -> None:
    """Initialize one module in place, as is usual for ResNets with large batches.

    Convolutions: He et al., arXiv:1502.01852 (fan out, ReLU). The last batch normalization of a
    residual branch starts with gamma = 0, so that a block starts as the identity. The weights of
    the linear layer have standard deviation 0.01: Goyal et al., arXiv:1706.02677, section 5.1.
    """
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.01)
        nn.init.zeros_(module.bias)
    elif isinstance(module, BasicBlock):
        nn.init.zeros_(module.bn2.weight)
    elif isinstance(module, Bottleneck):
        nn.init.zeros_(module.bn3.weight)


IMAGENET: dict[str, tuple[Block, tuple[int, ...]]] = {
    "resnet18": (BasicBlock, (2, 2, 2, 2)),
    "resnet34": (BasicBlock, (3, 4, 6, 3)),
    "resnet50": (Bottleneck, (3, 4, 6, 3)),
    "resnet101": (Bottleneck, (3, 4, 23, 3)),
    "resnet152": (Bottleneck, (3, 8, 36, 3)),
}
SMALL: dict[str, int] = {"resnet20": 3, "resnet32": 5}  # layers = 6n + 2 -> n
MODELS = (*SMALL, *IMAGENET)


def build(
    name: str,
    *,
    classes: int,
    channels: int = 3,
    stem: Stem | None = None,
    bn_momentum: float = 0.1,
) -> ResNet:
    """Return the untrained network `name`.

    Args:
        name: one of `MODELS`.
        classes: number of classes.
        channels: number of channels of the images, 1 or 3.
        stem: kind of the first layers; default: "small" for ResNet-20/32, else "imagenet".
        bn_momentum: weight of the new batch in the running mean and variance of batch
            normalization, in PyTorch's convention: 1 - Caffe's `moving_average_fraction`.
    """
    if name in SMALL:
        network = ResNet(
            BasicBlock,
            (SMALL[name],) * 3,
            (16, 32, 64),
            classes=classes,
            channels=channels,
            stem_kind=stem or "small",
            shortcut=PadShortcut,
        )
    else:
        block, depths = IMAGENET[name]
        network = ResNet(
            block,
            depths,
            (64, 128, 256, 512),
            classes=classes,
            channels=channels,
            stem_kind=stem or "imagenet",
        )
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = bn_momentum
    return network
