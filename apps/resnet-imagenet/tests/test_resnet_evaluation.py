"""Compare scores with formulas: top-1, top-5 and loss, also on ranks with unequal shares."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import memory_training as memory
import pytest
import torch
from memory_training import CLASSES, HELD_OUT, Memory, Network
from thread_ranks import on_ranks
from torch import Tensor, nn

from resnet_imagenet import evaluate as module
from resnet_imagenet.__main__ import main
from resnet_imagenet.evaluate import Scores, evaluate
from trainkit import checkpoint, outputs, parts
from trainkit.torch.parts import parts as torch_parts
from trainkit.torch.strategy import TorchStrategy

BATCH = 4


def held_out(strategy: TorchStrategy) -> Memory:
    return Memory(memory.pictures(HELD_OUT, 2), BATCH, strategy, shuffled=False)


def forward_by_hand(network: Network, images: Tensor) -> list[list[float]]:
    """Return the logits, computed with the running statistics instead of the batch's statistics."""
    n, logits = network.norm, []
    with torch.no_grad():
        for image in images:
            maps = nn.functional.conv2d(image[None], network.conv.weight)[0]
            spread = (n.running_var + n.eps).sqrt()[:, None, None]
            maps = (maps - n.running_mean[:, None, None]) / spread
            maps = maps * n.weight[:, None, None] + n.bias[:, None, None]
            features = maps.clamp(min=0).mean(dim=(1, 2))
            logits.append((network.head.weight @ features + network.head.bias).tolist())
    return logits


def places_and_losses(network: Network) -> tuple[list[int], list[float]]:
    """Return how many classes have a larger logit than an image's own class, and the cross-entropy.

    Both lists have an entry for each image.
    """
    images, labels = memory.pictures(HELD_OUT, 2)
    places, losses = [], []
    for row, label in zip(forward_by_hand(network, images), labels.tolist(), strict=True):
        places.append(sum(value > row[label] for value in row))
        losses.append(math.log(sum(math.exp(value) for value in row)) - row[label])
    return places, losses


def scores_by_hand(network: Network) -> tuple[float, float, float]:
    places, losses = places_and_losses(network)
    top1, top5 = (sum(place < count for place in places) for count in (1, 5))
    return top1 / HELD_OUT, top5 / HELD_OUT, sum(losses) / HELD_OUT


def trained_a_little() -> Network:
    """Return a network in training mode whose running statistics differ from all batches."""
    network = Network().train()
    network.norm.running_mean.copy_(torch.linspace(-1, 1, 5))
    network.norm.running_var.copy_(torch.linspace(0.5, 2, 5))
    return network


@pytest.mark.parametrize("ranks", [1, 2, 3])  # 17 images: the last batch has 1, 1, and 5
def test_scores_are_those_of_all_images_on_any_number_of_ranks(
    ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(strategy: TorchStrategy) -> tuple[float, ...]:
        network = trained_a_little()
        scores = evaluate(network, held_out(strategy), None, strategy, lambda: False)
        assert scores is not None
        return dataclasses.astuple(scores)

    found = [work(TorchStrategy())] if ranks == 1 else on_ranks(ranks, work, monkeypatch)
    assert found == [pytest.approx(scores_by_hand(trained_a_little()), rel=1e-5)] * ranks


def test_the_images_tell_top_1_and_top_5_from_their_neighbours() -> None:
    """For some images, the correct class has rank 1 among the logits; for others, rank 2, 5 or 6.

    Therefore, top-1 accuracy differs from top-2, and top-5 accuracy from top-4 and top-6.
    """
    assert {0, 1, 4, 5} <= set(places_and_losses(trained_a_little())[0])


def test_an_evaluation_changes_nothing_in_the_network() -> None:
    network = trained_a_little()
    before = copy.deepcopy(network.state_dict())
    evaluate(network, held_out(TorchStrategy()), None, TorchStrategy(), lambda: False)
    assert all(torch.equal(before[name], found) for name, found in network.state_dict().items())
    assert not network.training


class Fixed(nn.Module):
    """A network that returns the pixels of each image as its logits."""

    def forward(self, images: Tensor) -> Tensor:
        return images[:, 0, 0]


def test_less_than_five_classes_are_all_in_the_top_five() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0], [5.0, 1.0, 2.0], [0.0, 3.0, 1.0]])[:, None, None]
    batches = Memory((logits, torch.tensor([0, 0, 1])), 2, TorchStrategy(), shuffled=False)
    scores = evaluate(Fixed(), batches, None, TorchStrategy(), lambda: False)
    assert scores is not None
    assert (scores.top1, scores.top5) == (pytest.approx(2 / 3), 1.0)


@pytest.mark.parametrize("half", [None, torch.bfloat16, torch.float16])
def test_the_network_computes_in_the_asked_precision_and_the_loss_in_fp32(
    half: torch.dtype | None,
) -> None:
    network, seen = trained_a_little(), []
    network.head.register_forward_hook(lambda *call: seen.append(call[2].dtype))
    scores = evaluate(network, held_out(TorchStrategy()), half, TorchStrategy(), lambda: False)
    assert set(seen) == {half or torch.float32}
    assert scores is not None
    assert scores.loss == pytest.approx(scores_by_hand(trained_a_little())[2], rel=0.02)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_the_loss_of_logits_in_half_precision_is_computed_in_fp32(half: torch.dtype) -> None:
    """The cross-entropy of these logits in half precision would differ by several percent."""
    _, labels = memory.pictures(HELD_OUT, 2)
    logits = (7 * torch.linspace(-1, 1, HELD_OUT * CLASSES)).reshape(HELD_OUT, CLASSES).sin()
    given = logits.to(half)

    class Given(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            first = next(parts)
            return given[first : first + len(images)]

    parts = iter(range(0, HELD_OUT, BATCH))
    scores = evaluate(Given(), held_out(TorchStrategy()), half, TorchStrategy(), lambda: False)
    losses = [
        math.log(sum(math.exp(value) for value in row)) - row[label]
        for row, label in zip(given.tolist(), labels.tolist(), strict=True)
    ]
    assert scores is not None
    assert scores.loss == pytest.approx(sum(losses) / HELD_OUT, rel=1e-6)


def test_a_stop_on_one_rank_ends_the_evaluation_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(strategy: TorchStrategy) -> Scores | None:
        stop = strategy.rank == 1
        return evaluate(trained_a_little(), held_out(strategy), None, strategy, lambda: stop)

    assert on_ranks(2, work, monkeypatch) == [None, None]


@pytest.mark.parametrize("ema_decay", [0.0, 0.7])
def test_the_command_evaluates_the_moving_average_where_there_is_one(
    ema_decay: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = memory.train(memory.settings(tmp_path / "run", ema_decay=ema_decay), monkeypatch)
    kept = memory.part(out, "average" if ema_decay else "network")
    kept = {name.removeprefix("module."): tensor for name, tensor in kept.items()}
    best = Network()
    best.load_state_dict({name: kept[name] for name in best.state_dict()})
    monkeypatch.setattr(module.model, "build", lambda *_, **__: Network())
    network, to, about = module.restore_network(outputs.load_trained(out, None))
    assert all(torch.equal(best.state_dict()[n], t) for n, t in network.state_dict().items())
    assert (to.size, to.mean, about["classes"]) == (6, (0.5,), [str(n) for n in range(CLASSES)])
    keys = ("eval_accuracy", "eval_accuracy_top5", "eval_loss")
    assert [memory.values(out, key)[-1] for key in keys] == pytest.approx(scores_by_hand(best))


@pytest.mark.parametrize(("precision", "kind"), [
    ("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", None), ("tf32", None),
])
def test_the_command_takes_the_precision_of_the_training_unless_told(
    precision: str, kind: torch.dtype | None, tiny: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[Any] = []

    def scores(network: nn.Module, batches: Any, half: Any, *rest: Any) -> Scores:
        asked.append((half, batches.samples, next(iter(batches.epoch(0)))[1].tolist()))
        return Scores(0.5, 0.75, 1.25)

    monkeypatch.setattr(module, "evaluate", scores)
    file = tmp_path / "step-00000001.npz"
    network = module.model.build("resnet20", classes=2, channels=1)
    about = {
        "model": "resnet20", "stem": None, "precision": precision,
        "classes": ["class 0", "class 1"],
        "preprocessing": {
            "channels": 1, "size": 12, "mean": [0.5], "std": [0.25], "native": [12, 12],
        },
    }
    state = {"parts": parts.snapshot(torch_parts(network=network)), "about": about}
    checkpoint.Checkpoints(tmp_path).save(1, state)
    words = ["evaluate", "--data", str(tiny), "--checkpoint", str(file), "--json"]
    told, other = ("fp32", None) if kind else ("bf16", torch.bfloat16)
    assert main(words) == main([*words, "--precision", told, "--split", "train"]) == 0
    assert [(half, samples) for half, samples, _ in asked] == [(kind, 30), (other, 100)]
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said[0] == {"split": "test", "samples": 30, "top1": 0.5, "top5": 0.75, "loss": 1.25}
    assert str(Scores(0.5, 0.75, 1.25)) == "top-1 50.00%  top-5 75.00%  loss 1.2500"
