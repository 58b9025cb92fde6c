"""What follows a video, as pictures: the command `predict`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from futuregan import footage, pictures, restore
from futuregan.clips import Frame
from futuregan.looking import PredictSettings
from futuregan.pictures import Shown
from futuregan.restore import Restored
from trainkit import atomic
from trainkit.exits import ArgumentError
from trainkit.torch.start import start

VISIBLE = 128  # pixels that a frame has in the picture at least


def main(settings: PredictSettings) -> None:
    """Predict what follows some clips, and say where the pictures are.

    Raises:
        DataError: there is no checkpoint, or the data cannot be decoded, or is too short.
    """
    assert settings.data is not None  # noqa: S101 - `settings.check` saw to it
    strategy = start("single", device=settings.device)
    model = restore.open_generator(settings.out, settings.checkpoint, strategy.device)
    frames = settings.long or model.future
    source = footage.open_footage(
        settings.data, settings.split, model, frames, settings.every or model.every
    )
    clips = [
        predicted(model, source.read(number), frames, strategy.device)
        for number in settings.clip or [0]
    ]
    scale = settings.scale or -(-VISIBLE // model.size)
    for path in settings.to or ():
        write(path, clips, scale, settings.fps)
        print(path)


def predicted(model: Restored, clip: Frame, frames: int, device: torch.device) -> Shown:
    """Return a clip (T, H, W, C), whose first frames are the past, with what is predicted."""
    past, truth = np.split(clip, [model.past])
    values = torch.from_numpy(past).to(device).permute(3, 0, 1, 2)[None].float()
    made = model.predict(values.div(127.5).sub(1), frames)[0]
    levels = made.permute(1, 2, 3, 0).add(1).mul(127.5).round().to(torch.uint8)
    return Shown(past, levels.cpu().numpy(), truth)


def write(path: Path, clips: list[Shown], scale: int, fps: int) -> None:
    """Write one picture, of the form that its name says; it is there whole, or not at all.

    Raises:
        ArgumentError: that form has no pictures so large.
    """
    size, most = pictures.moving_size(clips, scale), pictures.LARGEST.get(path.suffix)
    if most is not None and max(size) > most:
        raise ArgumentError(
            f"--to {path}: it would have {size[0]}x{size[1]} pixels, and {path.suffix} has sides "
            f"of {most} at most; take fewer clips or a smaller --scale"
        )
    with atomic.replacing(path) as file:
        if path.suffix == ".png":
            pictures.sheet(clips, scale).save(file, "PNG", optimize=True)
        elif path.suffix == ".gif":
            pictures.write_gif(pictures.moving(clips, scale), file, fps)
        else:
            pictures.write_mp4(pictures.moving(clips, scale), file, fps)
