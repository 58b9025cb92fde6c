"""Compare the training loop with a second implementation in plain PyTorch.

Weights, velocities, moving averages, statistics, losses and scores must be equal up to rounding
for any number of ranks and of micro-batches.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import memory_training as memory
import pytest
import torch
from torch import Tensor, nn

from resnet_imagenet.settings import TrainSettings

Named = dict[str, Tensor]


def smoothed(logits: Tensor, labels: Tensor, share: float) -> Tensor:
    """Return each sample's cross-entropy, (N,); `share` of the target is spread over classes."""
    logs = logits - logits.logsumexp(1, keepdim=True)
    target = torch.full_like(logs, share / logs.shape[1])
    target[torch.arange(len(labels)), labels] += 1 - share
    return -(target * logs).sum(1)


def rate_of(s: TrainSettings, number: int, steps: int, batch: int) -> float:
    """Return the learning rate of a step: one epoch of warm-up to the peak, then half a cosine."""
    peak = s.base_lr * batch / (s.base_batch or batch)
    if number < steps:
        return peak * (number + 1) / steps
    return peak * (1 + math.cos(math.pi * (number - steps) / (s.epochs * steps - steps))) / 2


def change(s: TrainSettings, name: str, weight: Tensor, g: Tensor, velocity: Named) -> Tensor:
    """Return the decrease of a weight in one step, divided by the learning rate."""
    decays = name in ("conv.weight", "head.weight")
    decayed = g + (s.weight_decay if decays else 0.0) * weight
    if s.optimizer == "lars" and decays:
        decayed = decayed * (
            s.trust * weight.norm() / (g.norm() + s.weight_decay * weight.norm())
        )
    velocity[name] = s.momentum * velocity.get(name, torch.zeros_like(g)) + decayed
    return decayed + s.momentum * velocity[name] if s.nesterov else velocity[name]


def gradients_of(
    s: TrainSettings, networks: list[nn.Module], rows: Tensor
) -> tuple[list[Tensor], float]:
    """Return the gradients of the mean loss over the samples `rows`, and the sum of the losses."""
    images, labels = memory.pictures(memory.TRAIN, 1)
    total, loss_sum = [torch.zeros_like(p) for p in networks[0].parameters()], 0.0
    for network, own in zip(networks, rows.tensor_split(len(networks)), strict=True):
        network.train()
        for part in own.tensor_split(s.accumulation):
            if not len(part):
                continue
            loss = smoothed(network(images[part]), labels[part], s.label_smoothing).sum()
            found = torch.autograd.grad(loss / len(rows), list(network.parameters()))
            total = [a + b for a, b in zip(total, found, strict=True)]
            loss_sum += loss.item()
    return total, loss_sum


def floats(network: nn.Module) -> list[Tensor]:
    """Return the weights and statistics of a network, without its counters."""
    return [t for t in network.state_dict().values() if t.is_floating_point()]


def scores_of(network: nn.Module) -> tuple[float, float, float]:
    """Return top-1, top-5 and loss, from the rank of each image's class among the logits."""
    images, labels = memory.pictures(memory.HELD_OUT, 2)
    with torch.no_grad():
        logits = copy.deepcopy(network).eval()(images)
    own = logits[torch.arange(len(labels)), labels]
    places = (logits > own[:, None]).sum(1)
    loss = smoothed(logits, labels, 0.0).mean().item()
    return (places < 1).float().mean().item(), (places < 5).float().mean().item(), loss


@torch.no_grad()
def mean_statistics(networks: list[Any]) -> None:
    """Average the statistics of the batch normalization over the networks, one per rank.

    The mean replaces the running mean and the running variance of every network in place.
    """
    for name in ("norm.running_mean", "norm.running_var"):
        found = [network.state_dict()[name] for network in networks]
        mean = torch.stack(found).mean(0)
        for tensor in found:
            tensor.copy_(mean)


def by_hand(s: TrainSettings, ranks: int) -> SimpleNamespace:
    """Return the expected losses, rates, scores, velocities and networks for the settings `s`."""
    networks = [memory.Network() for _ in range(ranks)]
    averages: list[nn.Module] = []
    velocity: Named = {}
    found = SimpleNamespace(losses=[], rates=[], scores=[])
    batch = s.batch_size_per_rank * ranks
    steps = -(-memory.TRAIN // batch)
    for epoch in range(s.epochs):
        window = [0, 0.0]
        for step, rows in enumerate(memory.order_of(epoch, memory.TRAIN).split(batch)):
            gradients, loss = gradients_of(s, networks, rows)
            number = epoch * steps + step
            rate = rate_of(s, number, steps, batch)
            with torch.no_grad():
                named = list(networks[0].named_parameters())
                for (name, weight), g in zip(named, gradients, strict=True):
                    new = weight - rate * change(s, name, weight, g, velocity)
                    for network in networks:
                        network.get_parameter(name).copy_(new)
                follow(s, networks, averages)
            window = [window[0] + len(rows), window[1] + loss]
            if (number + 1) % s.log_every == 0 or step + 1 == steps:
                found.losses.append(window[1] / window[0])
                found.rates.append(rate)
                window = [0, 0.0]
        mean_statistics(networks)
        if averages:
            mean_statistics(averages)
        found.scores.append(scores_of((averages or networks)[0]))
    found.network, found.velocity = networks[0], velocity
    found.average = averages[0] if averages else None
    return found


def follow(s: TrainSettings, networks: list[nn.Module], averages: list[nn.Module]) -> None:
    """Update the moving averages of the weights after a step; the first call copies the weights."""
    if not s.ema_decay:
        return
    if not averages:
        averages += copy.deepcopy(networks)
        return
    for average, network in zip(averages, networks, strict=True):
        for old, new in zip(floats(average), floats(network), strict=True):
            old.copy_(s.ema_decay * old + (1 - s.ema_decay) * new)


def close(found: Named, network: nn.Module, prefix: str = "") -> None:
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point():
            torch.testing.assert_close(found[prefix + name], tensor, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize(("ranks", "more"), [
    (1, {}),
    (1, {"nesterov": True, "base_batch": 2, "base_lr": 0.1}),
    (1, {"optimizer": "lars", "base_lr": 3.0, "trust": 0.1}),
    (1, {"ema_decay": 0.8, "label_smoothing": 0.0}),
    (1, {"accumulation": 3, "momentum": 0.0}),
    (2, {"ema_decay": 0.8}),  # a last batch of 6; one image for two ranks in the evaluation
    (3, {"accumulation": 2, "batch_size_per_rank": 3}),
    (2, {"optimizer": "lars", "base_lr": 3.0, "trust": 0.1, "base_batch": 4}),
])
def test_the_loop_does_what_a_second_one_does(
    ranks: int, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = memory.settings(tmp_path / "run", **more)
    wanted = by_hand(asked, ranks)
    out = memory.train(asked, monkeypatch, ranks=ranks)
    assert memory.values(out, "learning_rate") == pytest.approx(wanted.rates)
    assert memory.values(out, "train_loss") == pytest.approx(wanted.losses, rel=1e-4)
    found = zip(
        *(memory.values(out, f"eval_{k}") for k in ("accuracy", "accuracy_top5", "loss")),
        strict=True,
    )
    assert [pytest.approx(scores, rel=1e-4) for scores in found] == wanted.scores
    close(memory.part(out), wanted.network)
    if wanted.average is None:
        assert "average" not in memory.last_state(out)["parts"]
    else:
        close(memory.part(out, "average"), wanted.average, "module.")
    momentum = {"sgd": "momentum_buffer", "lars": "velocity"}[asked.optimizer]
    names = [n for n, p in wanted.network.named_parameters() if p.ndim > 1]
    names += [n for n, p in wanted.network.named_parameters() if p.ndim <= 1]
    for number, name in enumerate(names if asked.momentum else []):
        kept = memory.part(out, "optimizer")["state"][number][momentum]
        torch.testing.assert_close(kept, wanted.velocity[name], rtol=1e-3, atol=2e-5)
