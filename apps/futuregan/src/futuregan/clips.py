"""Clips of packed sequences: windows of frames, in batches for each rank."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from shards import picturefile
from shards.kinds import Labels
from shards.picturefacts import BadImage
from trainkit.data.dataset import Dataset, open_dataset
from trainkit.data.order import Plan
from trainkit.data.records import Records
from trainkit.exits import DataError
from trainkit.strategy import Strategy

AHEAD = 3  # batches to prepare in advance
Frame = NDArray[np.uint8]


@dataclass(frozen=True)
class Batch:
    """The share of one rank in a global batch.

    Attributes:
        clips: values 0..255, (n, C, T, H, W).
        interpolation: the position between the real clip (0) and the fake clip (1) at which the
            gradient penalty is computed, (n,).
        count: number of clips of all ranks in the batch.
    """

    clips: Tensor
    interpolation: Tensor
    count: int


class Source(Protocol):
    """A numbered collection of clips."""

    def __len__(self) -> int: ...

    def read(self, number: int) -> Frame:
        """Return the frames of clip `number`, 0..255, (T, H, W, C)."""
        ...


class FrameCache:
    """The frames of sequences, decoded at one size; recently used frames stay in memory."""

    def __init__(self, records: Records, size: int, channels: int, max_bytes: int) -> None:
        self._records, self._size, self._channels = records, size, channels
        self._max_bytes = max_bytes
        self._cache: OrderedDict[tuple[int, int], Frame] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._records)

    def read(self, sequence: int, frame: int) -> Frame:
        """Return frame `frame` of sequence `sequence`, 0..255, (H, W, C).

        Raises:
            DataError: the frame cannot be decoded; the message names the frame.
        """
        key = (sequence, frame)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        image = self._decode(sequence, frame)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = image
                self._bytes += image.nbytes
            while self._bytes > self._max_bytes:
                self._bytes -= self._cache.popitem(last=False)[1].nbytes
        return image

    def _decode(self, sequence: int, frame: int) -> Frame:
        content = self._records.frames(sequence)[frame].tobytes()
        try:
            image = picturefile.picture(content)
        except BadImage as error:
            raise DataError(
                f"{self._records.describe(sequence)}: frame {frame} {error}",
                code="image-undecodable",
            ) from error
        return fit_to_square(image, self._size, self._channels)


def fit_to_square(image: Image.Image, size: int, channels: int) -> Frame:
    """Return the centre square of an image (mode L or RGB), scaled to `size` pixels: (H, W, C)."""
    image = picturefile.in_channels(image, channels)
    whole = image if image.size == (size, size) else ImageOps.fit(
        image, (size, size), Image.Resampling.LANCZOS
    )
    return np.asarray(whole, np.uint8).reshape(size, size, channels)


class Clips:
    """All clips of a set of sequences; a clip is a window of frames.

    Args:
        records: the sequences.
        size: side of the frames, in pixels.
        channels: channels of a frame.
        length: number of frames of a clip.
        stride: number of frames between the beginnings of two clips.
        every: distance between two frames of a clip, in frames of the sequence.
        keep: bytes of decoded frames to keep in memory.

    Raises:
        DataError: a sequence has fewer frames than a clip needs; the message names the sequence.
    """

    def __init__(
        self, records: Records, size: int, channels: int, length: int, stride: int, every: int,
        keep: int,
    ) -> None:
        self._records, self._span, self._every = records, (length - 1) * every + 1, every
        self._frames = FrameCache(records, size, channels, keep)
        self._windows: list[tuple[int, int]] = []
        for sequence in range(len(records)):
            count = len(records.frames(sequence))
            if count < self._span:
                raise DataError(
                    f"{records.describe(sequence)}: a sequence of {count} frames, and a clip has "
                    f"{self._span}: use fewer --past or --future frames, or pack longer sequences",
                    code="sequence-too-short",
                )
            self._windows += [(sequence, at) for at in range(0, count - self._span + 1, stride)]

    def __len__(self) -> int:
        return len(self._windows)

    def read(self, number: int) -> Frame:
        """Return the frames of clip `number`, 0..255, (T, H, W, C).

        Raises:
            DataError: a frame of the clip cannot be decoded.
        """
        return self._read_window(number, self._span)

    def read_frames(self, number: int, frames: int) -> Frame:
        """Return at most `frames` frames from the start of clip `number`, (T, H, W, C).

        If `frames` is larger than the clip, the result includes frames after the clip. If the
        sequence ends earlier, the result has fewer than `frames` frames.

        Raises:
            DataError: one of the frames cannot be decoded.
        """
        return self._read_window(number, (frames - 1) * self._every + 1)

    def _read_window(self, number: int, span: int) -> Frame:
        sequence, first = self._windows[number]
        end = min(first + span, len(self._records.frames(sequence)))
        return np.stack([
            self._frames.read(sequence, at) for at in range(first, end, self._every)
        ])

    def describe(self, number: int) -> str:
        """Return a text that names the sequence of a clip, and its first and last frame."""
        sequence, first = self._windows[number]
        return f"{self._records.describe(sequence)}, frames {first} to {first + self._span - 1}"


class Synthetic:
    """Random clips in memory, to measure the throughput without reading a data set."""

    def __init__(self, size: int, channels: int, length: int, samples: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self._clip = draw.integers(0, 256, (length, size, size, channels), np.uint8)
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def read(self, number: int) -> Frame:
        """Return the frames of clip `number`, 0..255, (T, H, W, C)."""
        return np.roll(self._clip, number, axis=1)


def open_sequences(folder: Path) -> Dataset:
    """Return the data set of sequences in `folder`, with or without labels.

    Raises:
        DataError: the folder has no data set of sequences.
    """
    return open_dataset(folder, labels=get_args(Labels), samples=("sequence",))


def open_clips(
    folder: Path, split: str, past: int, future: int, size: int, channels: int,
    stride: int | None = None, every: int = 1, keep: int = 1 << 31,
) -> Clips:
    """Return the clips of a split.

    Args:
        folder: folder of the packed data set.
        split: name of the split.
        past: number of input frames.
        future: number of frames to predict.
        size: side of the square frames, in pixels.
        channels: number of channels, to which the frames of the data set are converted.
        stride: frames between the beginnings of two clips (default: the length of a clip).
        every: distance between two frames of a clip, in frames of the sequence.
        keep: bytes of decoded frames to keep in memory.

    Raises:
        DataError: the folder has no data set of sequences, or a sequence is too short.
    """
    records, length = open_sequences(folder).records(split), past + future
    return Clips(records, size, channels, length, stride or length * every, every, keep)


class Loader:
    """Batches of clips, prepared in the background; seed and epoch alone determine the order.

    One loader serves all resolutions: its clips have the last resolution, and the training scales
    them down.

    Args:
        clips: the clips.
        training: whether each epoch has its own random order.
        seed: seed of the order.
        strategy: the ranks, each of which gets its share of a global batch.
        threads: number of threads that decode.

    Raises:
        DataError: there are fewer clips than ranks.
    """

    def __init__(
        self, clips: Source, *, training: bool, seed: int, strategy: Strategy, threads: int
    ) -> None:
        if len(clips) < strategy.size:
            raise DataError(
                f"{len(clips)} clips are too few for {strategy.size} ranks", code="data-too-small"
            )
        self.samples = len(clips)
        self._clips, self._training, self._seed = clips, training, seed
        self._strategy = strategy
        self._pool = ThreadPoolExecutor(threads, "clips")

    def plan(self, batch: int) -> Plan:
        """Return the order and the batches of the clips, for `batch` clips on each rank."""
        return Plan(self.samples, batch * self._strategy.size, self._seed, self._training)

    def epoch(self, epoch: int, first: int, batch: int) -> Iterator[Batch]:
        """Yield this rank's share of each batch of `epoch`, beginning with step `first`.

        Raises:
            DataError: a frame cannot be decoded.
        """
        plan = self.plan(batch)
        order = plan.order(epoch)
        steps = iter(range(first, plan.steps))

        def submit(step: int) -> tuple[list[Future[Frame]], NDArray[np.float32], int]:
            share = plan.share(step, self._strategy.rank, self._strategy.size)
            numbers = order[step * plan.batch : (step + 1) * plan.batch]
            futures = [self._pool.submit(self._clips.read, int(at)) for at in numbers[share]]
            return futures, plan.draws(epoch, step, 1)[share, 0], len(numbers)

        pending = deque(submit(step) for step in islice(steps, AHEAD))
        while pending:
            futures, interpolation, count = pending.popleft()
            clips = [torch.from_numpy(one.result()).permute(3, 0, 1, 2) for one in futures]
            pending.extend(submit(step) for step in islice(steps, 1))
            images = torch.stack(clips) if clips else self._empty()
            yield Batch(images, torch.from_numpy(interpolation), count)

    def _empty(self) -> Tensor:
        """Return an empty batch, for a rank without a clip in the last batch."""
        return torch.from_numpy(self._clips.read(0)).permute(3, 0, 1, 2)[None][:0]

    def close(self) -> None:
        """Stop the threads without waiting for them."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def describe_data(folder: Path) -> tuple[str, int, str]:
    """Return the fingerprint, channels and evaluation split of the data set in `folder`.

    Raises:
        DataError: the folder has no data set of sequences.
    """
    dataset = open_sequences(folder)
    return dataset.fingerprint(), dataset.channels, dataset.evaluation_split()
