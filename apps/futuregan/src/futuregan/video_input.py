"""Read the input frames of `predict` from a video file, a folder of images, or packed sequences."""

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
from futuregan.clips import Frame, fit_to_square
from futuregan.restore import Restored
from shards import display, picturefile
from shards.picturefacts import BadImage
from trainkit.data.folder import is_image
from trainkit.exits import DataError

CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,m4v"


class VideoInput(Protocol):
    """A source of clips: input frames, followed by the true future frames if they exist."""

    def read(self, number: int) -> Frame:
        """Return the frames of clip `number`, (T, H, W, C); T is smaller near the source's end.

        Raises:
            DataError: the clip cannot be decoded, or has too few frames to predict from.
        """
        ...


class PackedSequences:
    """Clips of packed sequences.

    The index of a clip does not depend on how many of its frames are predicted.
    """

    def __init__(self, folder: Path, split: str | None, model: Restored, frames: int,
                 every: int) -> None:
        split = split or clips.describe_data(folder)[2]
        self._split, self._length = split, model.past + frames
        self._clips = clips.open_clips(
            folder, split, model.past, model.future, model.size, model.channels, None, every
        )

    def read(self, number: int) -> Frame:
        """Return the clip with the index `number`."""
        if number >= len(self._clips):
            raise DataError(f"clip {number}: the split '{self._split}' has {len(self._clips)} "
                            f"clips, 0 to {len(self._clips) - 1}", code="argument-invalid")
        return self._clips.read_frames(number, self._length)


class FrameSequence:
    """Clips of one video file or one folder of images; a clip can begin at any frame."""

    def __init__(self, path: Path, model: Restored, frames: int, every: int) -> None:
        self._path, self._model, self._every = path, model, every
        self._length = model.past + frames

    def read(self, number: int) -> Frame:
        """Return the clip that begins with the frame `number`."""
        read_images = video_frames if self._path.is_file() else folder_frames
        span = (self._length - 1) * self._every + 1
        frames_read, shape, seen = [], None, 0
        for seen, image in enumerate(itertools.islice(read_images(self._path), number + span), 1):
            if shape not in (None, image.size):
                raise DataError(
                    f"{self._path}: frame {seen - 1} has {image.size[0]}x{image.size[1]} pixels, "
                    f"those before {shape[0]}x{shape[1]}; frames of one clip must be of one size",
                    code="image-unsuitable",
                )
            shape = image.size
            if seen > number and (seen - 1 - number) % self._every == 0:
                frames_read.append(fit_to_square(image, self._model.size, self._model.channels))
        if len(frames_read) < self._model.past:
            needed = number + (self._model.past - 1) * self._every + 1
            raise DataError(
                f"{self._path} has {seen} frames; to predict from frame {number} on, "
                f"it needs {needed}",
                code="sequence-too-short",
            )
        return np.stack(frames_read)


def open_video_input(
    path: Path, split: str | None, model: Restored, frames: int, every: int
) -> VideoInput:
    """Return the source of clips at `path`: packed sequences, a folder of images, or a video.

    Args:
        path: the folder or file.
        split: split of packed sequences; None for the evaluation split.
        model: network for which the frames are scaled.
        frames: number of frames to predict.
        every: distance between two frames of a clip, in frames of the source.

    Raises:
        DataError: the path does not exist.
    """
    if not path.exists():
        raise DataError(
            f"{path} does not exist; --data is a video, or a folder of frames", code="data-missing"
        )
    if (path / "dataset.json").is_file():
        return PackedSequences(path, split, model, frames, every)
    return FrameSequence(path, model, frames, every)


def folder_frames(folder: Path) -> Iterator[Image.Image]:
    """Yield the images in `folder`, in the order of the numbers in their names.

    Raises:
        DataError: the folder has no image, or an image cannot be decoded, and the message names
            it.
    """
    files = sorted((file for file in folder.iterdir() if _is_frame(file)), key=_numbers)
    if not files:
        raise DataError(f"{folder} has no images, and no dataset.json either", code="data-missing")
    for file in files:
        try:
            yield picturefile.in_channels(picturefile.picture(file.read_bytes()), 3)
        except OSError as error:
            raise DataError(
                f"{file} cannot be read: {error.strerror}", code="file-unreadable"
            ) from error
        except BadImage as error:
            raise DataError(f"{file} {error}", code="image-undecodable") from error


def ignored(path: Path) -> list[str]:
    """Return the names of those files in the folder `path` that are not images, for a warning.

    Hidden files, which are metadata of file systems, are left out. The result is empty if `path` is
    a video or packed sequences.
    """
    if not path.is_dir() or (path / "dataset.json").is_file():
        return []
    return sorted(file.name for file in path.iterdir()
                  if not _is_frame(file) and not file.name.startswith("."))


def _is_frame(file: Path) -> bool:
    """Return whether `file` is an image; hidden files are metadata of file systems, not images."""
    return is_image(file.name) and not file.name.startswith(".")


def _numbers(file: Path) -> tuple[list[tuple[int, str]], str]:
    parts = re.findall(r"\d+|\D+", file.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], file.name


def video_frames(file: Path) -> Iterator[Image.Image]:
    """Yield the frames of a video, with the same checks as when a video is packed.

    By default, FFmpeg conceals damage, which is useful for playing a video. This function makes the
    decoder stop at errors. It also refuses a file if FFmpeg logs an error about its container, or
    if the file has fewer frames than its header lists.

    Raises:
        DataError: the file is not a video, is damaged, or has a frame that cannot be decoded or
            turned upright; the message names the frame.
    """
    number = 0
    # These settings are not reset afterwards, because another video may still be open.
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)  # also log the same error of another file
    with av.logging.Capture() as log:
        try:
            # The whitelist excludes playlists, which would make FFmpeg read other files.
            with av.open(f"file:{file}", options={"format_whitelist": CONTAINERS}) as container:
                for frame in _decoded(container, file):
                    yield _upright(frame, f"{file}: frame {number}")
                    number += 1
                complaints = [
                    text.strip() for _, name, text in log if name == container.format.name
                ]
        except (FFmpegError, OSError) as error:
            raise DataError(
                f"{file}: frame {number} cannot be decoded: {error.strerror}",
                code="image-undecodable",
            ) from error
    if complaints:
        raise DataError(
            f"{file} is damaged after frame {number - 1}: {complaints[0]}", code="image-undecodable"
        )


def _decoded(container: InputContainer, file: Path) -> Iterator[av.VideoFrame]:
    if not container.streams.video:
        raise DataError(f"{file} has no video in it", code="image-undecodable")
    stream = container.streams.video[0]
    if stream.codec_context is None:
        raise DataError(
            f"{file}: this FFmpeg does not know the codec of its video", code="image-undecodable"
        )
    stream.codec_context.options = {"err_detect": "explode"}
    number = packets = 0
    for packet in container.demux(stream):
        packets += packet.size > 0
        for frame in packet.decode():
            if frame.is_corrupt:
                raise DataError(f"{file}: frame {number} is damaged", code="image-undecodable")
            yield frame
            number += 1
    if packets < stream.frames:
        raise DataError(
            f"{file} ends at frame {packets}, its header lists {stream.frames}", code="data-damaged"
        )


def _upright(frame: av.VideoFrame, where: str) -> Image.Image:
    image: Image.Image = frame.to_image()  # type: ignore[no-untyped-call]
    try:
        return display.upright(image, frame)
    except ValueError as error:
        raise DataError(f"{where} {error}", code="image-undecodable") from error
