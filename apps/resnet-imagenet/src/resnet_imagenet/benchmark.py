"""The command `benchmark`: images per second of the ResNets and of other networks."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from resnet_imagenet import model, zoo
from resnet_imagenet.method import HALF
from resnet_imagenet.settings import ZOO, BenchmarkSettings
from trainkit.exits import ArgumentError
from trainkit.torch import precision
from trainkit.torch.start import start
from trainkit.zoo import report
from trainkit.zoo.measure import Network, Step

CLASSES = 1000
SIZE = 224
SMALL_SIZE = 32
SEED = 17


def main(settings: BenchmarkSettings) -> None:
    """Measure the networks, and print one table.

    Raises:
        ArgumentError: a network could not be measured.
    """
    report.main(settings, __name__, settings.models or ZOO)


def open_framework(settings: BenchmarkSettings) -> PyTorch:
    """Return the framework with the device and precision of `settings`."""
    return PyTorch(settings)


class PyTorch:
    """The networks and matrix products of the benchmark, computed by PyTorch on one device.

    Args:
        settings: the options.
    """

    FAILURES: ClassVar[tuple[type[Exception], ...]] = (RuntimeError, ValueError)
    # ValueError: of batch normalization, if a channel has one value.

    def __init__(self, settings: BenchmarkSettings) -> None:
        torch.set_num_threads(settings.threads)
        strategy = start("single", device=settings.device)
        self.precision = precision.settle(settings.precision, strategy)
        self.device = strategy.device
        precision.prepare(self.precision, self.device, seed=SEED, deterministic=False)
        self._settings = settings
        self.kind = "cpu" if self.device.type == "cpu" else "gpu"
        where = (
            f"CPU with {settings.threads} threads" if self.kind == "cpu"
            else torch.cuda.get_device_name(self.device)
        )
        self.title = f"PyTorch {torch.__version__}, {where}, {self.precision}"

    def product(self, order: int) -> Step:
        """Return a function that multiplies two `order` x `order` matrices in this precision."""
        kind = HALF.get(self.precision, torch.float32)
        left, right = (torch.randn(order, order, device=self.device).to(kind) for _ in range(2))
        result = torch.empty_like(left)
        return lambda: self.finished(torch.mm(left, right, out=result))

    def network(self, name: str) -> Network:
        """Build the network `name` with its inference step and its training step in channels_last.

        Raises:
            ArgumentError: the network does not accept images of this size.
        """
        batch = self._settings.batch_size
        size = self._settings.size or (SMALL_SIZE if name in model.SMALL else SIZE)
        network = build(name, size)
        # PyTorch declares neither this form of `to` nor the type of `backward`.
        network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = torch.randn(batch, 3, size, size, device=self.device)
        images = images.to(memory_format=torch.channels_last)
        labels = torch.randint(CLASSES, (batch,), device=self.device)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, fused=True)
        half = HALF.get(self.precision)

        def logits() -> Tensor:
            with torch.autocast(self.device.type, dtype=half, enabled=half is not None):
                found: Tensor = network(images)
                return found

        @torch.inference_mode()
        def forward() -> None:
            network.eval()
            self.finished(logits())

        def train() -> None:
            network.train()
            optimizer.zero_grad()
            functional.cross_entropy(logits().float(), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            self.finished()

        parameters = sum(one.numel() for one in network.parameters())
        return Network(parameters, size, count_flops(network, images[:1]), forward, train)

    def is_out_of_memory(self, error: Exception) -> bool:
        """Return whether `error` was raised because of too little memory."""
        return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)

    def finished(self, _: object = None) -> None:
        """Wait until the device has computed all results."""
        if self.kind == "gpu":
            torch.cuda.synchronize(self.device)


def build(name: str, size: int) -> nn.Module:
    """Return the network `name` with random weights.

    Args:
        name: one of `model.MODELS`, or of `zoo.NETWORKS`.
        size: side of the images, in pixels.

    Raises:
        ArgumentError: the network does not accept images of this size.
    """
    if name in model.MODELS:
        return model.build(name, classes=CLASSES)
    entry = zoo.NETWORKS[name]
    if size < entry.smallest:
        raise ArgumentError(
            f"--size {size}: {name} needs images of at least {entry.smallest} pixels",
            code="argument-invalid",
        )
    return entry.build(CLASSES)


def count_flops(network: nn.Module, image: Tensor) -> int:
    """Return the number of operations in the convolutions and products for one image (1, 3, S, S).

    A multiplication and an addition are two operations.
    """
    network.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(image)
    return int(counter.get_total_flops())
