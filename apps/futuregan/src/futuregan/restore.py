"""A trained generator, out of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from futuregan.model import Generator, Shape
from trainkit import outputs
from trainkit.torch.parts import load_network


@dataclass(frozen=True)
class Restored:
    """A generator as it was when a checkpoint was written.

    Attributes:
        generator: the network.
        fade: how much of the last resolution there is, 0..1.
        past: frames that it is given.
        future: frames that it makes.
        size: side of the frames, in pixels.
        channels: of a frame.
        every: of which frames of a sequence it was trained: each N-th.
        step: updates made.
    """

    generator: Generator
    fade: float
    past: int
    future: int
    size: int
    channels: int
    every: int
    step: int

    @torch.inference_mode()
    def predict(self, past: Tensor, frames: int) -> Tensor:
        """Return so many frames that follow those of `past` (n, C, T, H, W), in -1..1.

        Those beyond what the generator makes at once are made from frames that it made itself.
        """
        seen = past
        while seen.shape[2] < self.past + frames:
            made = self.generator(seen[:, :, -self.past :], self.fade).float().clamp(-1, 1)
            seen = torch.cat([seen, made], 2)
        return seen[:, :, self.past : self.past + frames]


def open_generator(out: Path | None, file: Path | None, device: torch.device) -> Restored:
    """Return the generator of the checkpoint `file`, or of the newest one of the run in `out`.

    It is the moving average where the training had one.

    Raises:
        DataError: there is no checkpoint, or it is of something else.
    """
    state = outputs.load_trained(out, file)
    about: dict[str, Any] = state["about"]
    shape = Shape(**about["shape"])
    network = Generator(shape)
    load_network(network, state["parts"].get("average", state["parts"]["generator"]))
    network.to(device).eval().requires_grad_(False)
    return Restored(
        network, about["fade"], shape.past, shape.future, about["size"], shape.channels,
        about["every"], state["step"],
    )
