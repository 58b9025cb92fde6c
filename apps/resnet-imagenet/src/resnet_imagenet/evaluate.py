"""Top-1 and top-5 accuracy, for the evaluation within a training and for the command `evaluate`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from resnet_imagenet import model
from resnet_imagenet.data import Batches, Loader
from resnet_imagenet.inputs import decoding
from resnet_imagenet.method import HALF
from resnet_imagenet.pipelines import PipelineOptions, Preprocessing
from resnet_imagenet.settings import EvaluateSettings
from resnet_imagenet.state import trained_weights
from trainkit import outputs
from trainkit.checkpoint import State
from trainkit.console import Counter
from trainkit.data.dataset import open_dataset
from trainkit.exits import DataError
from trainkit.torch.parts import load_network
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy


@dataclasses.dataclass(frozen=True)
class Scores:
    """Accuracies as fractions 0..1, and the mean cross-entropy without label smoothing."""

    top1: float
    top5: float
    loss: float

    def __str__(self) -> str:
        return f"top-1 {self.top1:.2%}  top-5 {self.top5:.2%}  loss {self.loss:.4f}"


@torch.inference_mode()
def evaluate(
    network: nn.Module,
    batches: Batches,
    half: torch.dtype | None,
    strategy: TorchStrategy,
    stop: Callable[[], bool],
    on_batch: Callable[[], None] = lambda: None,
) -> Scores | None:
    """Return the scores of `network` over all `batches`, or None if `stop` returned true.

    Each rank evaluates its share of every batch, and all ranks return the same scores.

    Args:
        network: the network; this function sets it to evaluation mode.
        batches: batches of this rank; over all ranks they contain each sample once.
        half: dtype of autocast; None if autocast is disabled.
        strategy: the strategy that connects the ranks.
        stop: function that is called between batches; if it returns true on one rank, the
            evaluation ends on all ranks.
        on_batch: function that is called after each batch.
    """
    network.eval()
    sums = torch.zeros(4, dtype=torch.float64, device=strategy.device)
    for images, labels in batches.epoch(0):
        if strategy.any(stop()):
            return None
        if not len(labels):  # the last batch may have fewer samples than there are ranks
            continue
        expected = labels.to(strategy.device, non_blocking=True)
        with torch.autocast(strategy.device.type, half, enabled=half is not None):
            logits = network(images.to(strategy.device, non_blocking=True)).float()
        hits = logits.topk(min(5, logits.shape[1])).indices == expected[:, None]
        loss = functional.cross_entropy(logits, expected, reduction="sum")
        sums += torch.stack([hits[:, 0].sum(), hits.sum(), loss, loss.new_full((), len(labels))])
        on_batch()
    top1, top5, total, count = strategy.sum(sums.tolist())
    return Scores(top1 / count, top5 / count, total / count)


def restore_network(state: State) -> tuple[nn.Module, Preprocessing, dict[str, Any]]:
    """Return the trained network of a checkpoint, its preprocessing and its description.

    The description is the result of `Inputs.describe` in the training.
    """
    description: dict[str, Any] = state["about"]
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in description["preprocessing"].items()
    }
    to = Preprocessing(**fields)
    network = model.build(
        description["model"], classes=len(description["classes"]), channels=to.channels,
        stem=description["stem"],
    )
    load_network(network, trained_weights(state))
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network, to, description


def main(settings: EvaluateSettings) -> None:
    """Print the scores of a checkpoint on a split.

    Raises:
        DataError: the run has no checkpoint, or the data has other classes.
    """
    assert settings.data is not None  # noqa: S101 - `settings.check` refuses None
    dataset = open_dataset(settings.data)
    strategy = start("single", device=settings.device)
    network, to, description = restore_network(
        outputs.load_trained(settings.out, settings.checkpoint)
    )
    if list(dataset.classes) != description["classes"]:
        raise DataError(
            f"{settings.data} has other classes than the checkpoint was trained on",
            code="data-mismatch",
        )
    split = settings.split or dataset.evaluation_split()
    batches = Loader(
        dataset.records(split),
        to,
        PipelineOptions(
            training=False, device=decoding(strategy), device_id=strategy.device.index or 0,
            threads=settings.threads,
        ),
        batch_per_rank=settings.batch_size,
        seed=0,
        strategy=strategy,
    )
    half = HALF.get(settings.precision or description["precision"])
    with Counter("evaluating", batches.steps, "batches", stream=sys.stderr) as done:
        network = network.to(strategy.device)
        scores = evaluate(network, batches, half, strategy, lambda: False, done.add)
    assert scores is not None  # noqa: S101 - never stopped
    if settings.json:
        about_data = {"split": split, "samples": batches.samples}
        print(json.dumps(about_data | dataclasses.asdict(scores)))
    else:
        print(f"{split} ({batches.samples} images)  {scores}")
