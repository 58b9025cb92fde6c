"""Tests of clips: each occurs once per epoch, in an order that does not depend on the ranks."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from packed_images import png
from PIL import Image
from written_sequences import moving, pack

from futuregan import clips, video_input
from futuregan.clips import Loader
from oddpictures import CASES, GOOD, Case, different
from trainkit.exits import DataError
from trainkit.ranks import Ranks
from trainkit.testing.refusals import refused
from trainkit.torch.strategy import TorchStrategy


def opened(folder: Path, stride: int | None = 2, keep: int = 1 << 20) -> clips.Clips:
    return clips.open_clips(folder, "train", 3, 3, 16, 1, stride, 1, keep)


def loader(folder: Path, rank: int = 0, size: int = 1, training: bool = True) -> Loader:
    strategy = TorchStrategy(Ranks(rank=rank, size=size))
    return Loader(opened(folder), training=training, seed=3, strategy=strategy, threads=2)


def test_windows_begin_at_every_stride_and_never_leave_a_sequence(sequences: Path) -> None:
    found = opened(sequences, stride=4)
    assert len(found) == 3 * 3  # of 16 frames: 0 to 5, 4 to 9, 8 to 13
    assert np.array_equal(found.read(4)[..., 0], moving(16, 16, 1)[4:10])
    assert found.describe(4).endswith("frames 4 to 9")
    assert len(opened(sequences, stride=None)) == 3 * 2  # of its own length


def test_of_a_fast_camera_not_every_frame_is_taken(sequences: Path) -> None:
    found = clips.open_clips(sequences, "train", 2, 2, 16, 1, 1, 3)
    assert len(found) == 3 * 7  # of 16 frames: 0, 3, 6, 9 to 6, 9, 12, 15
    assert np.array_equal(found.read(8)[..., 0], moving(16, 16, 1)[1:11:3])


class Lengths:
    """A stand-in for packed records, in which the sequences have lengths, but no pixels."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def frames(self, number: int) -> list[None]:
        return [None] * self._lengths[number]


def test_kitti_has_658_clips_of_twelve_frames_one_after_the_other() -> None:
    """The sequence lengths come from `evaluate_tracking.seqmap` in KITTI's development kit."""
    lengths = [154, 447, 233, 144, 314, 297, 270, 800, 390, 803, 294, 373, 78, 340, 106, 376, 209,
               145, 339, 1059, 837]
    assert (len(lengths), sum(lengths)) == (21, 8008)
    assert len(clips.Clips(Lengths(lengths), 128, 3, 12, 12, 1, 0)) == 658


@pytest.mark.parametrize("keep", [0, 3_000, 1 << 20])
def test_what_is_kept_in_memory_changes_nothing(sequences: Path, keep: int) -> None:
    found = opened(sequences, keep=keep)
    for _ in range(2):
        assert np.array_equal(found.read(7)[..., 0], moving(16, 16, 1)[2:8])


def test_larger_frames_are_cut_to_their_centre_and_made_smaller(sequences: Path) -> None:
    found = clips.open_clips(sequences, "train", 3, 3, 8, 3)
    assert found.read(0).shape == (6, 8, 8, 3)
    assert np.array_equal(found.read(0)[..., 0], found.read(0)[..., 2])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_an_epoch_has_each_clip_once_for_any_number_of_ranks(sequences: Path, size: int) -> None:
    whole = list(loader(sequences).epoch(1, 0, 6))
    ranks = [list(loader(sequences, rank, size).epoch(1, 0, 6 // size)) for rank in range(size)]
    parts = list(chain.from_iterable(zip(*ranks, strict=True)))
    assert torch.equal(
        torch.cat([part.clips for part in parts]), torch.cat([batch.clips for batch in whole])
    )
    assert torch.equal(
        torch.cat([part.interpolation for part in parts]),
        torch.cat([batch.interpolation for batch in whole]),
    )
    assert sum(batch.count for batch in whole) == len(opened(sequences)) == 18


def test_it_goes_on_anywhere_and_has_another_order_in_each_epoch(sequences: Path) -> None:
    whole = list(loader(sequences).epoch(2, 0, 4))
    rest = list(loader(sequences).epoch(2, 3, 4))
    assert [batch.count for batch in whole] == [4, 4, 4, 4, 2]
    for one, two in zip(rest, whole[3:], strict=True):
        assert torch.equal(one.clips, two.clips)
        assert torch.equal(one.interpolation, two.interpolation)
    other = list(loader(sequences).epoch(3, 0, 4))
    assert not torch.equal(other[0].clips, whole[0].clips)
    held = loader(sequences, training=False)
    assert torch.equal(next(held.epoch(0, 0, 4)).clips, next(held.epoch(5, 0, 4)).clips)


def test_a_rank_may_have_no_part_of_the_last_batch(sequences: Path) -> None:
    last = list(loader(sequences, rank=3, size=4).epoch(0, 0, 4))[-1]
    assert last.clips.shape == (0, 1, 6, 16, 16)
    assert last.count == 2


def test_a_sequence_shorter_than_a_clip_is_named(tmp_path: Path) -> None:
    folder = pack(tmp_path / "short", {"train": [moving(9, 16, 0), moving(5, 16, 1)]})
    with refused(DataError, "sequence-too-short", "record 00000001", " 5 frames", " 6:"):
        opened(folder)


def test_a_frame_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    frames = [png(frame) for frame in moving(6, 16, 0)]
    frames[4] = frames[4][:45]
    folder = pack(tmp_path / "damaged", {"train": [frames]})
    with refused(DataError, "image-undecodable", "record 00000000", "frame 4 "):
        list(loader(folder).epoch(0, 0, 1))


def test_a_sequence_shorter_than_a_clip_is_named_with_what_it_has(tmp_path: Path) -> None:
    folder = pack(tmp_path / "short", {"train": [moving(6, 16, 0), moving(5, 16, 1)]})
    named = ("train-00000.tar: record 00000001", " 5 frames", " 6:")
    with refused(DataError, "sequence-too-short", *named):
        opened(folder)


def test_fewer_clips_than_ranks_are_refused(tmp_path: Path) -> None:
    folder = pack(tmp_path / "few", {"train": [moving(6, 16, 0)]})
    with refused(DataError, "data-too-small", "1 clips", "2 ranks"):
        loader(folder, size=2)


def test_images_are_no_sequences(tiny: Path) -> None:
    with refused(DataError, "data-unsuitable", "'sample' is image"):
        clips.describe_data(tiny)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("case", GOOD.values(), ids=GOOD)
def test_frames_are_seen_as_by_the_packer(
    case: Case, channels: int, tmp_path: Path
) -> None:
    """16-bit grey is scaled instead of clipped to white, and the EXIF orientation is applied."""
    folder = pack(tmp_path / "odd", {"train": [[case.content] * 4]})
    found = clips.open_clips(folder, "train", 2, 2, 24, channels).read(0)[0]
    image = Image.fromarray(case.pixels).convert("RGB").convert("L" if channels == 1 else "RGB")
    wanted = clips.fit_to_square(image, 24, channels)
    assert np.abs(found.astype(int) - wanted).max() <= case.near + 12


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_folder_of_frames_is_seen_as_its_packed_frames(case: Case, tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(case.content)
    if case.pixels is None:
        with pytest.raises(DataError, match=rf"0\.png .*{case.says}"):
            next(video_input.folder_frames(tmp_path))
        return
    found = next(video_input.folder_frames(tmp_path))
    rgb = np.asarray(Image.fromarray(case.pixels).convert("RGB"))
    assert not different(np.asarray(found), case._replace(pixels=rgb))
