"""Train a network of a few weights on images in memory: the real loop, in milliseconds.

The command `train` runs unchanged; only its data, its network and its ranks are replaced.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from thread_ranks import on_ranks
from torch import Tensor, nn
from torch.nn import functional

from resnet_imagenet import inputs, model
from resnet_imagenet import train as training
from resnet_imagenet.inputs import Inputs
from resnet_imagenet.pipelines import Preprocessing
from resnet_imagenet.settings import TrainSettings
from trainkit import checkpoint
from trainkit.data.bad import BadRecords
from trainkit.signals import StopFlag
from trainkit.torch.parts import tensor_of
from trainkit.torch.strategy import TorchStrategy

CLASSES, SIZE = 7, 6
TRAIN, HELD_OUT, BAD = 22, 17, 6
"""Numbers of images, which are no multiples of a batch, and the index of a damaged image."""


class Network(nn.Module):
    """A network with all kinds of weights: convolution, batch normalization and linear layer."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 3, bias=False)
        self.norm = nn.BatchNorm2d(5)
        self.head = nn.Linear(5, CLASSES)
        self.dropout = dropout
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.randn(weight.shape, generator=generator) / 2 + 0.2)

    def forward(self, images: Tensor) -> Tensor:
        features = functional.relu(self.norm(self.conv(images))).mean(dim=(2, 3))
        return self.head(functional.dropout(features, self.dropout, self.training))


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return images (count, 1, SIZE, SIZE) and classes, which determine brightness and contrast."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    noise = torch.randn((count, 1, SIZE, SIZE), generator=generator)
    return noise * (1 + labels[:, None, None, None]) / 2 + labels[:, None, None, None] / 3, labels


class Memory:
    """Batches of images in memory; `order_of`, and not the app, computes their order."""

    def __init__(
        self, of: tuple[Tensor, Tensor], batch: int, strategy: TorchStrategy, shuffled: bool,
        bad: BadRecords | None = None,
    ) -> None:
        self.images, self.labels = of
        self.bad = bad  # is told of the image BAD when its batch is taken
        self.strategy, self.shuffled, self.batch = strategy, shuffled, batch * strategy.size
        self.samples = len(self.labels)
        self.steps = -(-self.samples // self.batch)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        order = order_of(epoch, self.samples) if self.shuffled else torch.arange(self.samples)
        for rows in order.split(self.batch)[first:]:
            own = rows.tensor_split(self.strategy.size)[self.strategy.rank]
            if self.bad is not None and BAD in own:
                self.bad.add(f"record {BAD} cannot be decoded")
            yield self.images[own], self.labels[own]


def order_of(epoch: int, samples: int) -> Tensor:
    return torch.randperm(samples, generator=torch.Generator().manual_seed(100 + epoch))


def settings(out: Path, **more: Any) -> TrainSettings:
    """Return settings of 3 epochs with a large learning rate, so that small errors show."""
    return TrainSettings(**{
        "out": out, "data": Path("memory"), "epochs": 3, "batch_size_per_rank": 4,
        "base_lr": 0.4, "warmup_epochs": 1.0, "momentum": 0.9, "weight_decay": 0.05,
        "label_smoothing": 0.2, "precision": "fp32", "device": "cpu", "log_every": 2, **more,
    })


def train(
    settings: TrainSettings, monkeypatch: pytest.MonkeyPatch, *, ranks: int = 1,
    network: nn.Module | None = None, strategy: TorchStrategy | None = None,
    batches: type[Memory] = Memory,
) -> Path:
    """Run the command `train` on one or several ranks, and return its `--out` folder."""
    first, here = network or Network(), threading.local()
    here.strategy = strategy or TorchStrategy()

    def open_inputs(settings: TrainSettings, strategy: TorchStrategy) -> Inputs:
        batch, bad = settings.batch_size_per_rank, BadRecords(settings.max_bad_records)
        return Inputs(
            "memory", tuple(map(str, range(CLASSES))),
            Preprocessing(1, SIZE, (0.5,), (0.25,), (SIZE, SIZE)),
            batches(
                pictures(TRAIN, 1), batch, strategy, True, bad if bad.limit else None
            ),
            batches(pictures(HELD_OUT, 2), batch, strategy, False),
            bad,
        )

    def work(strategy: TorchStrategy) -> None:
        here.strategy = strategy
        training.main(settings)

    with monkeypatch.context() as patch:
        patch.setattr(inputs, "open_inputs", open_inputs)
        patch.setattr(model, "build", lambda *_, **__: copy.deepcopy(first))
        patch.setattr(training, "start", lambda *_, **__: here.strategy)
        if ranks == 1:
            training.main(settings)
        else:
            patch.setattr(training, "StopFlag", NoSignals)  # threads get none
            on_ranks(ranks, work, monkeypatch)
    assert settings.out is not None
    return settings.out


class NoSignals(StopFlag):
    """A stop flag that ignores all signals."""

    def __enter__(self) -> NoSignals:
        return self

    def __exit__(self, *error: object) -> None: ...


def last_state(out: Path) -> dict[str, Any]:
    """Return the newest checkpoint of a run."""
    return checkpoint.load(max((out / "checkpoints").glob("*.npz")))


def tensors(state: Any) -> Any:
    """Return a copy of a training state in which each NumPy array is replaced by a tensor."""
    if isinstance(state, dict):
        return {key: tensors(item) for key, item in state.items()}
    return tensor_of(state) if isinstance(state, np.ndarray) else state


def part(out: Path, name: str = "network") -> dict[str, Any]:
    """Return the state of the object `name` in the newest checkpoint of a run, as tensors."""
    found: dict[str, Any] = tensors(last_state(out)["parts"][name])
    return found


def values(out: Path, key: str) -> list[float]:
    """Return the values of a metric in the order of the log."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line["value"] for line in lines if line["key"] == key]
