"""Pictures of predictions: a sheet with all frames beside each other, and frames that move."""

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
HEAD = 20  # pixels above each picture, for words
ERRORS = 4  # times an error is shown brighter
LARGEST = {".gif": 65_535, ".mp4": 16_384}
"""Pixels of a side that GIF has a number for, and that libx264 encodes."""
INK, PAPER, MADE = (30, 30, 30), (255, 255, 255), (213, 94, 0)


@dataclass(frozen=True)
class Shown:
    """A clip with its prediction; frames are (T, H, W, C), 0..255.

    Attributes:
        past: what was given.
        made: what was predicted.
        truth: what came, as far as it is known.
    """

    past: Frame
    made: Frame
    truth: Frame

    @property
    def errors(self) -> Frame:
        """Absolute errors where the truth is known, shown brighter."""
        known = len(self.truth)
        apart = np.abs(self.made[:known].astype(int) - self.truth.astype(int))
        brighter: Frame = (apart * ERRORS).clip(0, 255).astype(np.uint8)
        return brighter


def sheet(clips: Sequence[Shown], scale: int) -> Image.Image:
    """Return a picture of clips below each other, with a row of frames for each of their parts."""
    rows: list[tuple[str, Frame]] = []
    for clip in clips:
        rows += [("input", clip.past), ("truth", clip.truth), ("prediction", clip.made),
                 (f"error, x {ERRORS}", clip.errors)]
    rows = [(name, frames) for name, frames in rows if len(frames)]
    side = clips[0].made.shape[1] * scale + GAP
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
            picture.paste(enlarged(frame, scale), (LABEL + column * side, top))
    return picture


def moving(clips: Sequence[Shown], scale: int) -> list[Image.Image]:
    """Return pictures to show one after the other: for each clip what came beside the prediction.

    Both begin with the frames that were given; predicted ones have a coloured edge.
    """
    side, size = clips[0].made.shape[1] * scale + 2 * GAP, moving_size(clips, scale)
    font = ImageFont.load_default(13)
    pictures = []
    for at in range(len(clips[0].past) + len(clips[0].made)):
        picture = Image.new("RGB", size, PAPER)
        draw = ImageDraw.Draw(picture)
        future = at - len(clips[0].past)
        for column, words in enumerate(("truth", "input" if future < 0 else f"frame {future + 1}")):
            draw.text((column * side + GAP, HEAD // 2), words, INK, font, anchor="lm")
        for row, clip in enumerate(clips):
            top = HEAD + row * side
            real = np.concatenate([clip.past, clip.truth])
            seen = np.concatenate([clip.past, clip.made])
            if at < len(real):
                picture.paste(enlarged(real[at], scale), (GAP, top + GAP))
            if future >= 0:
                draw.rectangle((side, top, 2 * side - 1, top + side - 1), fill=MADE)
            picture.paste(enlarged(seen[at], scale), (side + GAP, top + GAP))
        pictures.append(picture)
    return pictures


def moving_size(clips: Sequence[Shown], scale: int) -> tuple[int, int]:
    """Return width and height of what moves, in pixels; both are even."""
    side = clips[0].made.shape[1] * scale + 2 * GAP
    height = HEAD + len(clips) * side
    return 2 * side, height + height % 2


def enlarged(frame: Frame, scale: int) -> Image.Image:
    """Return a frame (H, W, C) as a picture whose pixels are squares of so many."""
    image = Image.fromarray(frame[..., 0] if frame.shape[2] == 1 else frame)
    size = (image.width * scale, image.height * scale)
    return image.resize(size, Image.Resampling.NEAREST).convert("RGB")


def write_gif(pictures: Sequence[Image.Image], file: IO[bytes], fps: int) -> None:
    """Write pictures that move, again and again."""
    first, *others = pictures
    first.save(file, "GIF", save_all=True, append_images=others, duration=1000 // fps, loop=0)


def write_mp4(pictures: Sequence[Image.Image], file: IO[bytes], fps: int) -> None:
    """Write a video that any browser shows: H.264, 4:2:0; their sides are even."""
    whole = io.BytesIO()  # a disk that is full is told by Python, and by libav as something else
    with av.open(whole, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "18"})
        stream.width, stream.height = pictures[0].size
        stream.pix_fmt = "yuv420p"
        for picture in pictures:
            frame = av.VideoFrame.from_image(picture)  # type: ignore[no-untyped-call]
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    file.write(whole.getvalue())
