#!/usr/bin/env python
"""Measure how well frames can be predicted without a critic, for a comparison with FutureGAN.

    python benchmarks/plain_predictor.py --data DIR --network plain --seconds 150

The script trains a network on the clips of `recipes/futuregan/cpu-quickstart.yaml`, and prints the
scores of the app for the held-out clips. The only loss is the mean squared error. The learning rate
of Adam decreases linearly to 2 %. The network `plain` has five 3x3 convolutions with 64 features
and a last convolution, whose output is added to the last given frame. The network `generator` is
the generator of FutureGAN in the recipe.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from futuregan import clips, evaluate, scores
from futuregan.model import Generator, Shape
from trainkit.torch.start import start

SIDE, PAST, FUTURE, EVERY, STRIDE = 32, 6, 6, 2, 2  # values of the recipe
RATES = {"plain": 0.001, "generator": 0.004}
BATCHES = {"plain": 16, "generator": 4}


class Plain(nn.Module):
    """A network of convolutions over all past frames; untrained, it repeats the last frame."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number in range(5):
            layers += [nn.Conv2d(width if number else 3 * PAST, width, 3, padding=1), nn.ReLU()]
        last = nn.Conv2d(width, 3 * FUTURE, 3, padding=1)
        for parameter in last.parameters():
            nn.init.zeros_(parameter)
        self.layers = nn.Sequential(*layers, last)

    def forward(self, past: Tensor, _fade: float) -> Tensor:
        """Return the frames that follow `past`; both tensors are (n, 3, T, H, W)."""
        made = self.layers(past.flatten(1, 2)).unflatten(1, (3, FUTURE))
        return past[:, :, -1:] + made


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(description="Print the scores of a prediction without a critic.")
    top.add_argument("--data", type=Path, required=True, help="packed traffic-camera")
    top.add_argument("--network", choices=RATES, default="plain")
    top.add_argument("--seconds", type=float, default=150.0, help="seconds of training")
    top.add_argument("--base-size", type=int, default=16, help="base size of the generator")
    top.add_argument("--skip", type=int, default=64, help="skip connections of the generator")
    top.add_argument("--seed", type=int, default=17)
    return top


def frames(folder: Path, split: str, stride: int | None) -> Tensor:
    """Return all clips of a split as one tensor, (n, 3, T, H, W), with values in -1..1."""
    source = clips.open_clips(folder, split, PAST, FUTURE, SIDE, 3, stride, EVERY)
    return torch.cat(list(evaluate.clip_batches(source, len(source), torch.device("cpu"))))


def train(network: nn.Module, given: Tensor, rate: float, batch: int, seconds: float) -> int:
    """Train for some seconds on random batches of clips; return the number of steps.

    Args:
        network: the network, which predicts the frames after the first `PAST` frames of a clip.
        given: the clips, (n, 3, T, H, W).
        rate: learning rate at the start; it falls linearly to 2 % of this value.
        batch: clips per batch.
        seconds: duration of the training.
    """
    optimizer = torch.optim.Adam(network.parameters(), rate, betas=(0.9, 0.99))
    begun, steps = time.perf_counter(), 0
    while (passed := (time.perf_counter() - begun) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate * max(0.02, 1 - passed)
        chosen = given[torch.randint(len(given), (batch,))]
        error = (network(chosen[:, :, :PAST], 1.0) - chosen[:, :, PAST:]).square().mean()
        optimizer.zero_grad()
        error.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        steps += 1
    return steps


def main() -> None:
    """Train the network, and print the scores as JSON."""
    options = parser().parse_args()
    torch.manual_seed(options.seed)
    shape = Shape(SIDE, PAST, FUTURE, 3, 16, True, options.base_size, options.skip)
    network = Plain() if options.network == "plain" else Generator(shape)
    steps = train(network, frames(options.data, "train", STRIDE), RATES[options.network],
                  BATCHES[options.network], options.seconds)
    held_out = frames(options.data, "val", None)
    past, truth = held_out.tensor_split([PAST], 2)
    sums = scores.ScoreSums(SIDE, FUTURE, torch.device("cpu"))
    with torch.no_grad():
        sums.add(network(past, 1.0), past, truth)
    found = sums.mean_over(start("single", device="cpu"))
    print(json.dumps({
        "network": options.network, "seconds": options.seconds, "steps": steps,
        **{name: round(found.mean("prediction", name), 4)
           for name in ("psnr", "ssim", "sharpness")},
        "psnr_copy_last": round(found.mean("copy_last", "psnr"), 4),
    }))


if __name__ == "__main__":
    main()
