"""The command `predict`: pictures of the predicted continuation of clips."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from futuregan import pictures, restore, video_input
from futuregan.clips import Frame
from futuregan.pictures import PredictedClip
from futuregan.restore import Restored
from futuregan.settings import PredictSettings
from trainkit import atomic
from trainkit.exits import ArgumentError
from trainkit.streams import say
from trainkit.torch.start import start

VISIBLE = 128  # smallest side of a frame in the picture, in pixels
SHOWN = 5  # largest number of ignored files that the warning names


def main(settings: PredictSettings) -> None:
    """Predict the continuation of clips, write the pictures, and print their paths.

    Raises:
        DataError: the run has no checkpoint, or the data cannot be decoded or is too short.
    """
    assert settings.data is not None  # noqa: S101 - `settings.check` refuses None
    strategy = start("single", device=settings.device)
    model = restore.open_generator(settings.out, settings.checkpoint, strategy.device)
    frames = settings.long or model.future
    source = video_input.open_video_input(
        settings.data, settings.split, model, frames, settings.every or model.every
    )
    if names := video_input.ignored(settings.data):
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        listed = ", ".join(names[:SHOWN])
        say(sys.stderr, f"warning: {settings.data}: not images, ignored: {listed}{more}\n")
    clips = [
        predict_clip(model, source.read(number), frames, strategy.device)
        for number in settings.clip or [0]
    ]
    scale = settings.scale or -(-VISIBLE // model.size)
    for path in settings.to or ():
        write(path, clips, scale, settings.fps)
        print(path)


def predict_clip(model: Restored, clip: Frame, frames: int, device: torch.device) -> PredictedClip:
    """Return a clip together with its prediction.

    Args:
        model: the network.
        clip: input frames, followed by the known true frames, (T, H, W, C).
        frames: number of frames to predict.
        device: device of the network.
    """
    past, truth = np.split(clip, [model.past])
    values = torch.from_numpy(past).to(device).permute(3, 0, 1, 2)[None].float()
    prediction = model.predict(values.div(127.5).sub(1), frames)[0]
    levels = prediction.permute(1, 2, 3, 0).add(1).mul(127.5).round().to(torch.uint8)
    return PredictedClip(past, levels.cpu().numpy(), truth)


def write(path: Path, clips: list[PredictedClip], scale: int, fps: int) -> None:
    """Write one picture atomically; the suffix of `path` determines its format.

    Raises:
        ArgumentError: the format does not allow a picture of this size.
    """
    size, most = pictures.animation_size(clips, scale), pictures.LARGEST.get(path.suffix)
    if most is not None and max(size) > most:
        raise ArgumentError(
            f"--to {path}: the picture would have {size[0]}x{size[1]} pixels, and {path.suffix} "
            f"allows sides of at most {most}; use fewer clips or a smaller --scale",
            code="argument-invalid",
        )
    with atomic.replacing(path) as file:
        if path.suffix == ".png":
            pictures.sheet(clips, scale).save(file, "PNG", optimize=True)
        elif path.suffix == ".gif":
            pictures.write_gif(pictures.animation_frames(clips, scale), file, fps)
        else:
            pictures.write_mp4(pictures.animation_frames(clips, scale), file, fps)
