"""Pictures of predictions: a sheet with all frames, and an animation."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import av
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from futuregan.clips import Frame

GAP = 4  # pixels between frames
LABEL = 96  # pixels of the column with the names of the rows
HEAD = 20  # pixels above each picture, for text
ERRORS = 4  # amplification factor of the errors
LARGEST = {".gif": 65_535, ".mp4": 16_384}
"""File suffix -> largest side of a picture in pixels, a limit of the GIF format or of libx264."""
INK, PAPER, MADE = (30, 30, 30), (255, 255, 255), (213, 94, 0)


@dataclass(frozen=True)
class PredictedClip:
    """A clip and its prediction; frames are (T, H, W, C) with values 0..255.

    Attributes:
        past: input frames.
        prediction: predicted frames.
        truth: true future frames. If the source ends earlier, there are fewer frames than in
            `prediction`.
    """

    past: Frame
    prediction: Frame
    truth: Frame

    @property
    def errors(self) -> Frame:
        """The amplified absolute errors of the predicted frames that have a true frame."""
        known = len(self.truth)
        difference = np.abs(self.prediction[:known].astype(int) - self.truth.astype(int))
        amplified: Frame = (difference * ERRORS).clip(0, 255).astype(np.uint8)
        return amplified


def sheet(clips: Sequence[PredictedClip], scale: int) -> Image.Image:
    """Return a picture of all frames: for each clip a row of input, truth, prediction and error.

    Each pixel of a frame becomes a square with a side of `scale` pixels.
    """
    rows: list[tuple[str, Frame]] = []
    for clip in clips:
        rows += [("input", clip.past), ("truth", clip.truth), ("prediction", clip.prediction),
                 (f"error, x {ERRORS}", clip.errors)]
    rows = [(name, frames) for name, frames in rows if len(frames)]
    side = clips[0].prediction.shape[1] * scale + GAP
    width, height = max(len(frames) for _, frames in rows), len(rows)
    picture = Image.new("RGB", (LABEL + width * side, HEAD + height * side), PAPER)
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(13)
    for column in range(width):
        middle = LABEL + column * side + side // 2
        draw.text((middle, HEAD // 2), str(column + 1), INK, font, anchor="mm")
    for row, (name, frames) in enumerate(rows):
        top = HEAD + row * side
        colour = MADE if name == "prediction" else INK
        draw.text((GAP, top + side // 2), name, colour, font, anchor="lm")
        for column, frame in enumerate(frames):
            picture.paste(enlarge(frame, scale), (LABEL + column * side, top))
    return picture


def animation_frames(clips: Sequence[PredictedClip], scale: int) -> list[Image.Image]:
    """Return the frames of an animation with a row for each clip: the truth and the prediction.

    Both begin with the input frames; predicted frames have a coloured border. Each pixel of a frame
    becomes a square with a side of `scale` pixels.
    """
    side, size = clips[0].prediction.shape[1] * scale + 2 * GAP, animation_size(clips, scale)
    font = ImageFont.load_default(13)
    pictures = []
    for at in range(len(clips[0].past) + len(clips[0].prediction)):
        picture = Image.new("RGB", size, PAPER)
        draw = ImageDraw.Draw(picture)
        future = at - len(clips[0].past)
        for column, words in enumerate(("truth", "input" if future < 0 else f"frame {future + 1}")):
            draw.text((column * side + GAP, HEAD // 2), words, INK, font, anchor="lm")
        for row, clip in enumerate(clips):
            top = HEAD + row * side
            real = np.concatenate([clip.past, clip.truth])
            seen = np.concatenate([clip.past, clip.prediction])
            if at < len(real):
                picture.paste(enlarge(real[at], scale), (GAP, top + GAP))
            if future >= 0:
                draw.rectangle((side, top, 2 * side - 1, top + side - 1), fill=MADE)
            picture.paste(enlarge(seen[at], scale), (side + GAP, top + GAP))
        pictures.append(picture)
    return pictures


def animation_size(clips: Sequence[PredictedClip], scale: int) -> tuple[int, int]:
    """Return the width and height of the animation in pixels; both are even."""
    side = clips[0].prediction.shape[1] * scale + 2 * GAP
    height = HEAD + len(clips) * side
    return 2 * side, height + height % 2


def enlarge(frame: Frame, scale: int) -> Image.Image:
    """Return a frame (H, W, C) as a picture in which each pixel is a square of side `scale`."""
    image = Image.fromarray(frame[..., 0] if frame.shape[2] == 1 else frame)
    size = (image.width * scale, image.height * scale)
    return image.resize(size, Image.Resampling.NEAREST).convert("RGB")


def write_gif(pictures: Sequence[Image.Image], file: IO[bytes], fps: int) -> None:
    """Write a GIF animation that repeats forever."""
    first, *others = pictures
    first.save(file, "GIF", save_all=True, append_images=others, duration=1000 // fps, loop=0)


def write_mp4(pictures: Sequence[Image.Image], file: IO[bytes], fps: int) -> None:
    """Write a video (H.264, 4:2:0) for any browser; the sides of the pictures must be even."""
    whole = io.BytesIO()  # Python reports a full disk as a full disk, libav as another error
    with av.open(whole, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "18"})
        stream.width, stream.height = pictures[0].size
        stream.pix_fmt = "yuv420p"
        for picture in pictures:
            frame = av.VideoFrame.from_image(picture)  # type: ignore[no-untyped-call]
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    file.write(whole.getvalue())
