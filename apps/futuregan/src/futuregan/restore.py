"""Restore a trained generator from a checkpoint."""

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
    """A generator in the state in which a checkpoint was written.

    Attributes:
        generator: the network.
        fade: weight of the highest level, 0..1.
        past: number of input frames.
        future: number of frames that the network predicts at once.
        size: side of the frames, in pixels.
        channels: number of channels of a frame.
        every: distance between two frames of a training clip, in frames of the sequence.
        step: number of updates before the checkpoint.
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
        """Return the frames that follow `past`, in -1..1.

        The network predicts `future` frames at once. Later frames are predicted from frames that it
        predicted before.

        Args:
            past: input frames (n, C, past, H, W) in -1..1.
            frames: number of frames to predict.
        """
        seen = past
        while seen.shape[2] < self.past + frames:
            predicted = self.generator(seen[:, :, -self.past :], self.fade).float().clamp(-1, 1)
            seen = torch.cat([seen, predicted], 2)
        return seen[:, :, self.past : self.past + frames]


def open_generator(out: Path | None, file: Path | None, device: torch.device) -> Restored:
    """Return the generator of the checkpoint `file`, or of the newest checkpoint of the run `out`.

    The generator is the moving average if the checkpoint has one.

    Raises:
        DataError: the run has no checkpoint, or the checkpoint belongs to another app.
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
