"""Frames of a video file, of a folder, or of packed sequences, to predict what follows them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import av
import av.logging
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from PIL import Image

from futuregan import clips
from futuregan.clips import Frame, fitted
from futuregan.restore import Restored
from shards import display, picturefile
from shards.picturefacts import BadImage
from trainkit.data.folder import is_image
from trainkit.exits import DataError

CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,m4v"


class Footage(Protocol):
    """What has clips; `read` gives one with all frames that there are, up to those asked for."""

    def read(self, number: int) -> Frame:
        """Return a clip, (T, H, W, C); T may be less where nothing follows.

        Raises:
            DataError: it cannot be decoded, or has too few frames to predict from.
        """
        ...


class Packed:
    """Clips of packed sequences; which one begins where, the frames to predict do not change."""

    def __init__(self, folder: Path, split: str | None, model: Restored, frames: int,
                 every: int) -> None:
        split = split or clips.about(folder)[2]
        self._split, self._length = split, model.past + frames
        self._clips = clips.open_clips(
            folder, split, model.past, model.future, model.size, model.channels, None, every
        )

    def read(self, number: int) -> Frame:
        """Return a clip."""
        if number >= len(self._clips):
            raise DataError(f"clip {number}: the split '{self._split}' has {len(self._clips)} "
                            f"clips, 0 to {len(self._clips) - 1}")
        return self._clips.read_on(number, self._length)


class Single:
    """Clips of one video file or of one folder of frames; they begin with any frame."""

    def __init__(self, path: Path, model: Restored, frames: int, every: int) -> None:
        self._path, self._model, self._every = path, model, every
        self._length = model.past + frames

    def read(self, number: int) -> Frame:
        """Return the clip that begins with the frame `number`."""
        opened = video_frames if self._path.is_file() else folder_frames
        span = (self._length - 1) * self._every + 1
        found, shape, seen = [], None, 0
        for seen, image in enumerate(itertools.islice(opened(self._path), number + span), 1):
            if shape not in (None, image.size):
                raise DataError(
                    f"{self._path}: frame {seen - 1} has {image.size[0]}x{image.size[1]} pixels, "
                    f"those before {shape[0]}x{shape[1]}; frames of one clip must be of one size"
                )
            shape = image.size
            if seen > number and (seen - 1 - number) % self._every == 0:
                found.append(fitted(image, self._model.size, self._model.channels))
        if len(found) < self._model.past:
            needed = number + (self._model.past - 1) * self._every + 1
            raise DataError(
                f"{self._path} has {seen} frames; to predict from frame {number} on, "
                f"it needs {needed}"
            )
        return np.stack(found)


def open_footage(
    path: Path, split: str | None, model: Restored, frames: int, every: int
) -> Footage:
    """Return what has clips at `path`: packed sequences, a folder of frames, or a video.

    Raises:
        DataError: there is nothing.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist; --data is a video, or a folder of frames")
    if (path / "dataset.json").is_file():
        return Packed(path, split, model, frames, every)
    return Single(path, model, frames, every)


def folder_frames(folder: Path) -> Iterator[Image.Image]:
    """Yield the images in `folder`, in the order of the numbers in their names.

    Raises:
        DataError: there are none, or one cannot be decoded; the message names it.
    """
    files = sorted((file for file in folder.iterdir() if _is_frame(file)), key=_numbers)
    if not files:
        raise DataError(f"{folder} has no images, and no dataset.json either")
    for file in files:
        try:
            yield picturefile.in_channels(picturefile.picture(file.read_bytes()), 3)
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}") from error
        except BadImage as error:
            raise DataError(f"{file} {error}") from error


def _is_frame(file: Path) -> bool:
    """Hidden files are what systems leave beside images."""
    return is_image(file.name) and not file.name.startswith(".")


def _numbers(file: Path) -> tuple[list[tuple[int, str]], str]:
    parts = re.findall(r"\d+|\D+", file.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], file.name


def video_frames(file: Path) -> Iterator[Image.Image]:
    """Yield the frames of a video; with the same checks as where videos are packed.

    FFmpeg hides what is wrong with a file where it can, because a player goes on. So decoders stop
    at errors, what a container complains of in its log is a fault, and so are fewer frames than
    its header lists.

    Raises:
        DataError: it is none, it ends before its end, or a frame cannot be decoded or has a display
            matrix that is no orientation; the message says which.
    """
    number = 0
    # Both for good: set back at the end of one video, they would be so for another one still open.
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)  # the same complaint about the next file is a fault, too
    with av.logging.Capture() as log:
        try:
            # No playlists and the like, which would have FFmpeg read other files.
            with av.open(f"file:{file}", options={"format_whitelist": CONTAINERS}) as container:
                for frame in _decoded(container, file):
                    yield _upright(frame, f"{file}: frame {number}")
                    number += 1
                told = [text.strip() for _, name, text in log if name == container.format.name]
        except (FFmpegError, OSError) as error:
            raise DataError(
                f"{file}: frame {number} cannot be decoded: {error.strerror}"
            ) from error
    if told:
        raise DataError(f"{file} is damaged after frame {number - 1}: {told[0]}")


def _decoded(container: InputContainer, file: Path) -> Iterator[av.VideoFrame]:
    if not container.streams.video:
        raise DataError(f"{file} has no video in it")
    stream = container.streams.video[0]
    if stream.codec_context is None:
        raise DataError(f"{file}: its video has a codec that is unknown here")
    stream.codec_context.options = {"err_detect": "explode"}
    number = packets = 0
    for packet in container.demux(stream):
        packets += packet.size > 0
        for frame in packet.decode():
            if frame.is_corrupt:
                raise DataError(f"{file}: frame {number} is damaged")
            yield frame
            number += 1
    if packets < stream.frames:
        raise DataError(f"{file} ends at frame {packets}, its header lists {stream.frames}")


def _upright(frame: av.VideoFrame, where: str) -> Image.Image:
    image: Image.Image = frame.to_image()  # type: ignore[no-untyped-call]
    try:
        return display.upright(image, frame)
    except ValueError as error:
        raise DataError(f"{where} {error}") from error
