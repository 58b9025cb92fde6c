"""Clips of a data set of sequences: windows of frames, decoded once, in batches for each rank."""

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

AHEAD = 3  # batches that are made beforehand
Frame = NDArray[np.uint8]


@dataclass(frozen=True)
class Batch:
    """A rank's part of a global batch.

    Attributes:
        clips: values of 0..255, (n, C, T, H, W).
        between: where between real and made clips the critic's slope is looked at, 0..1, (n,).
        count: clips of all ranks.
    """

    clips: Tensor
    between: Tensor
    count: int


class Source(Protocol):
    """What has clips, by numbers."""

    def __len__(self) -> int: ...

    def read(self, number: int) -> Frame:
        """Return a clip, (T, H, W, C)."""
        ...


class Frames:
    """Decoded frames, of one size; those used last are kept, up to a number of bytes."""

    def __init__(self, records: Records, size: int, channels: int, most: int) -> None:
        self._records, self._size, self._channels, self._most = records, size, channels, most
        self._kept: OrderedDict[tuple[int, int], Frame] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._records)

    def read(self, sequence: int, frame: int) -> Frame:
        """Return a frame, (H, W, C).

        Raises:
            DataError: it cannot be decoded; the message names it.
        """
        key = (sequence, frame)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = self._decode(sequence, frame)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = found
                self._bytes += found.nbytes
            while self._bytes > self._most:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return found

    def _decode(self, sequence: int, frame: int) -> Frame:
        content = self._records.frames(sequence)[frame].tobytes()
        try:
            image = picturefile.picture(content)
        except BadImage as error:
            raise DataError(f"{self._records.describe(sequence)}: frame {frame} {error}") from error
        return fitted(image, self._size, self._channels)


def fitted(image: Image.Image, size: int, channels: int) -> Frame:
    """Return the centre square of an image of mode L or RGB at `size` pixels, (H, W, C)."""
    image = picturefile.in_channels(image, channels)
    whole = image if image.size == (size, size) else ImageOps.fit(
        image, (size, size), Image.Resampling.LANCZOS
    )
    return np.asarray(whole, np.uint8).reshape(size, size, channels)


class Clips:
    """Windows of frames of each sequence.

    Args:
        records: the sequences.
        size: side of the frames, in pixels.
        channels: of a frame.
        length: frames of a clip.
        stride: frames between the beginnings of two clips.
        every: frames from one of a clip to the next.
        keep: bytes of decoded frames to keep.

    Raises:
        DataError: a sequence has fewer frames than a window; the message names it.
    """

    def __init__(
        self, records: Records, size: int, channels: int, length: int, stride: int, every: int,
        keep: int,
    ) -> None:
        self._records, self._span, self._every = records, (length - 1) * every + 1, every
        self._frames = Frames(records, size, channels, keep)
        self._windows: list[tuple[int, int]] = []
        for sequence in range(len(records)):
            count = len(records.frames(sequence))
            if count < self._span:
                raise DataError(
                    f"{records.describe(sequence)}: a sequence of {count} frames, and a clip has "
                    f"{self._span}: say fewer --past or --future frames, or pack longer sequences"
                )
            self._windows += [(sequence, at) for at in range(0, count - self._span + 1, stride)]

    def __len__(self) -> int:
        return len(self._windows)

    def read(self, number: int) -> Frame:
        """Return a clip, (T, H, W, C).

        Raises:
            DataError: a frame of it cannot be decoded.
        """
        return self._from(number, self._span)

    def read_on(self, number: int, frames: int) -> Frame:
        """Return so many frames from where a clip begins, or those that its sequence has.

        Raises:
            DataError: one of them cannot be decoded.
        """
        return self._from(number, (frames - 1) * self._every + 1)

    def _from(self, number: int, span: int) -> Frame:
        sequence, first = self._windows[number]
        end = min(first + span, len(self._records.frames(sequence)))
        return np.stack([
            self._frames.read(sequence, at) for at in range(first, end, self._every)
        ])

    def describe(self, number: int) -> str:
        """Return where a clip is."""
        sequence, first = self._windows[number]
        return f"{self._records.describe(sequence)}, frames {first} to {first + self._span - 1}"


class Synthetic:
    """Random clips, to measure pure compute."""

    def __init__(self, size: int, channels: int, length: int, samples: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self._clip = draw.integers(0, 256, (length, size, size, channels), np.uint8)
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def read(self, number: int) -> Frame:
        """Return a clip, (T, H, W, C)."""
        return np.roll(self._clip, number, axis=1)


def open_sequences(folder: Path) -> Dataset:
    """Return the data set of sequences in `folder`, with labels or without.

    Raises:
        DataError: it is none.
    """
    return open_dataset(folder, labels=get_args(Labels), samples=("sequence",))


def open_clips(
    folder: Path, split: str, past: int, future: int, size: int, channels: int,
    stride: int | None = None, every: int = 1, keep: int = 1 << 31,
) -> Clips:
    """Return the clips of a split at `size` pixels.

    Args:
        folder: of the packed data set.
        split: its name.
        past: frames that are given.
        future: frames to predict.
        size: side of the square frames, in pixels.
        channels: of a frame; those of the data set are converted.
        stride: frames between the beginnings of two clips (default: the length of one).
        every: frames from one of a clip to the next.
        keep: bytes of decoded frames to keep.

    Raises:
        DataError: it is no data set of sequences, or one of them is too short.
    """
    records, length = open_sequences(folder).records(split), past + future
    return Clips(records, size, channels, length, stride or length * every, every, keep)


class Loader:
    """Batches of clips in an order that depends on seed and epoch only, made in the background.

    One loader serves all resolutions: its clips are of the largest, and decoded frames are kept.

    Args:
        clips: where they are from.
        training: in a new order in each epoch.
        seed: of the order.
        strategy: each rank takes its part of a global batch.
        threads: that decode.

    Raises:
        DataError: there are fewer clips than ranks.
    """

    def __init__(
        self, clips: Source, *, training: bool, seed: int, strategy: Strategy, threads: int
    ) -> None:
        if len(clips) < strategy.size:
            raise DataError(f"{len(clips)} clips are too few for {strategy.size} ranks")
        self.samples = len(clips)
        self._clips, self._training, self._seed = clips, training, seed
        self._strategy = strategy
        self._pool = ThreadPoolExecutor(threads, "clips")

    def plan(self, batch: int) -> Plan:
        """Return which clips come when, in batches of so many per rank."""
        return Plan(self.samples, batch * self._strategy.size, self._seed, self._training)

    def epoch(self, epoch: int, first: int, batch: int) -> Iterator[Batch]:
        """Yield this rank's part of each batch of `epoch` from step `first` on.

        Raises:
            DataError: a frame cannot be decoded.
        """
        plan = self.plan(batch)
        order = plan.order(epoch)
        coming = iter(range(first, plan.steps))

        def begin(step: int) -> tuple[list[Future[Frame]], NDArray[np.float32], int]:
            share = plan.share(step, self._strategy.rank, self._strategy.size)
            numbers = order[step * plan.batch : (step + 1) * plan.batch]
            made = [self._pool.submit(self._clips.read, int(at)) for at in numbers[share]]
            return made, plan.draws(epoch, step, 1)[share, 0], len(numbers)

        ahead = deque(begin(step) for step in islice(coming, AHEAD))
        while ahead:
            made, between, count = ahead.popleft()
            clips = [torch.from_numpy(one.result()).permute(3, 0, 1, 2) for one in made]
            ahead.extend(begin(step) for step in islice(coming, 1))
            yield Batch(torch.stack(clips) if clips else self._none(), torch.from_numpy(between),
                        count)

    def _none(self) -> Tensor:
        """Return no clip, for a rank that has no part of the last batch."""
        return torch.from_numpy(self._clips.read(0)).permute(3, 0, 1, 2)[None][:0]

    def close(self) -> None:
        """End the threads, without waiting."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def about(folder: Path) -> tuple[str, int, str]:
    """Return name, channels and split to evaluate on of the data set in `folder`.

    Raises:
        DataError: it is no data set of sequences.
    """
    dataset = open_sequences(folder)
    return dataset.fingerprint(), dataset.channels, dataset.evaluation_split()
