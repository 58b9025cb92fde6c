"""Batches contain each sample once; seed, epoch and step determine them for any number of ranks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from resnet_imagenet import data
from resnet_imagenet.crop_windows import DRAWS
from resnet_imagenet.data import Loader
from resnet_imagenet.pipelines import PipelineOptions, Preprocessing
from resnet_imagenet.producer import lanes
from trainkit.data.dataset import open_dataset
from trainkit.data.order import Plan
from trainkit.exits import DataError
from trainkit.ranks import Ranks
from trainkit.testing.refusals import refused
from trainkit.torch.strategy import TorchStrategy


def loader(
    folder: Path,
    *,
    training: bool = True,
    seed: int = 1,
    strategy: TorchStrategy | None = None,
    batch: int = 16,
    threads: int = 1,
) -> Loader:
    dataset = open_dataset(folder)
    split = "train" if training else dataset.evaluation_split()
    return Loader(
        dataset.records(split),
        data.preprocessing(dataset, None),
        PipelineOptions(training, threads=threads),
        batch_per_rank=batch,
        seed=seed,
        strategy=strategy or TorchStrategy(),
    )


def numbers(images: torch.Tensor) -> list[int]:
    """Return the sample number of each image of `numbered`: half of its uniform brightness."""
    peak = images.amax(dim=(1, 2, 3)) * 0.25 + 0.5
    return (peak * 255 / 2).round().int().tolist()


def test_an_epoch_has_each_sample_once_with_its_label(numbered: Path) -> None:
    batches = list(loader(numbered).epoch(0))
    seen = [n for images, _ in batches for n in numbers(images)]
    assert sorted(seen) == list(range(100))
    assert seen != sorted(seen)
    assert [len(labels) for _, labels in batches] == [16] * 6 + [4]
    assert [n % 2 for n in seen] == [int(x) for _, labels in batches for x in labels]


def test_evaluation_keeps_order_and_pixels(numbered: Path) -> None:
    batches = list(loader(numbered, training=False).epoch(0))
    assert [n for images, _ in batches for n in numbers(images)] == list(range(30))
    images = batches[0][0]
    assert images.shape == (16, 1, 12, 12)
    assert images.is_contiguous(memory_format=torch.channels_last)
    expected = (2 * 3 / 255 - 0.5) / 0.25
    assert torch.allclose(images[3], torch.tensor(expected), atol=1e-6)
    again = list(loader(numbered, training=False).epoch(5))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(batches, again, strict=True))


def same(one, two) -> bool:
    pairs = list(zip(one, two, strict=True))
    return all(torch.equal(a, b) and torch.equal(x, y) for (a, x), (b, y) in pairs)


def test_epochs_differ_and_seeds_differ_and_both_repeat(tiny: Path) -> None:
    one = loader(tiny)
    first, second = list(one.epoch(0)), list(one.epoch(1))
    assert not same(first, second)
    assert not same(first, list(loader(tiny, seed=2).epoch(0)))
    assert same(second, list(loader(tiny).epoch(1)))  # without having made epoch 0


@pytest.mark.parametrize("first", [0, 1, 6])
def test_going_on_in_the_middle_gives_the_rest_and_the_next_epoch(tiny: Path, first: int) -> None:
    whole, resumed = loader(tiny), loader(tiny)
    assert same(list(whole.epoch(3))[first:], list(resumed.epoch(3, first)))
    assert same(list(whole.epoch(4)), list(resumed.epoch(4)))


def test_the_next_epoch_is_prepared_while_this_one_ends(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    class Counted(data.Producer):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            started.append(arguments)
            super().__init__(*arguments, **more)

    monkeypatch.setattr(data, "Producer", Counted)
    whole, expected = loader(tiny), loader(tiny)
    for epoch in range(3):
        batches = whole.epoch(epoch)  # a training takes each batch, and does not ask for one more
        assert same([next(batches) for _ in range(whole.steps)], list(expected.epoch(epoch)))
    assert len(started) == 2


@pytest.mark.parametrize("rank", [0, 2])  # the last batch is one image: none for the last rank
def test_lanes_take_turns_without_changing_a_batch(
    tiny: Path, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> list[Any]:
        whole = loader(tiny, strategy=TorchStrategy(Ranks(rank=rank, size=3)), batch=11, threads=2)
        return [list(whole.epoch(*where)) for where in [(0, 0), (1, 0), (3, 2), (4, 0)]]

    alone = made()
    monkeypatch.setattr(data, "lanes", lambda *_: 2)
    assert all(same(*pair) for pair in zip(alone, made(), strict=True))


def test_only_photographs_on_cpus_with_an_even_number_of_threads_have_two_lanes() -> None:
    photographs = Preprocessing(3, 224, (0.5,) * 3, (0.25,) * 3, None)
    small = Preprocessing(1, 28, (0.5,), (0.25,), (28, 28))
    counts = [lanes(photographs, PipelineOptions(True, threads=n)) for n in (1, 2, 3, 4)]
    assert counts == [1, 2, 1, 2]
    assert lanes(photographs, PipelineOptions(True, device="gpu", threads=4)) == 1
    assert lanes(small, PipelineOptions(True, threads=2)) == 1


def test_the_ranks_share_the_global_batch_with_the_same_augmentation(tiny: Path) -> None:
    alone = list(loader(tiny, batch=16).epoch(0))
    ranks = [TorchStrategy(Ranks(rank=rank, size=4)) for rank in range(4)]
    parts = [list(loader(tiny, batch=4, strategy=rank).epoch(0)) for rank in ranks]
    together = [
        tuple(torch.cat([part[step][i] for part in parts]) for i in (0, 1)) for step in range(7)
    ]
    assert same(alone, together)


def test_small_images_are_padded_cropped_and_flipped(tmp_path: Path, tiny: Path) -> None:
    plan = Plan(100, 16, 1, training=True)
    dataset = open_dataset(tiny)
    plain = {
        n: image[0]
        for n, image in enumerate(
            image for images, _ in tiny_in_order(tiny) for image in images
        )
    }
    images, _ = next(loader(tiny).epoch(0))
    draws = plan.draws(0, 0, DRAWS)
    black = (0 - dataset.mean[0]) / dataset.std[0]
    for row, number in enumerate(plan.order(0)[:16].tolist()):
        padded = torch.full((20, 20), black)
        padded[4:16, 4:16] = plain[number]
        y, x = (int(v * 9) for v in draws[row, 20:22])
        wanted = padded[y : y + 12, x : x + 12]
        wanted = wanted.flip(1) if draws[row, 22] < 0.5 else wanted
        assert torch.allclose(images[row, 0], wanted, atol=1e-6)


def tiny_in_order(folder: Path):
    dataset = open_dataset(folder)
    return Loader(
        dataset.records("train"),
        data.preprocessing(dataset, None),
        PipelineOptions(training=False),
        batch_per_rank=16,
        seed=0,
        strategy=TorchStrategy(),
    ).epoch(0)


@pytest.mark.parametrize(("epoch", "step"), [(0, 1), (3, 5)])
def test_small_images_are_changed_by_the_draws_of_their_epoch_and_step(
    tiny: Path, epoch: int, step: int
) -> None:
    """Each image equals the crop and flip that the draws of its epoch and step determine."""
    plain = torch.cat([images for images, _ in tiny_in_order(tiny)])
    batch = loader(tiny).epoch(epoch, step)
    images, _ = next(batch)
    order = np.random.default_rng((1, epoch)).permutation(100)[16 * step :]
    draws = np.random.default_rng((1, epoch, step)).random((16, 23), np.float32)
    for image, number, draw in zip(images[:, 0], order, draws, strict=False):
        padded = torch.full((20, 20), -2.0)  # black: (0 - 0.5) / 0.25
        padded[4:16, 4:16] = plain[number, 0]
        y, x = int(draw[20] * 9), int(draw[21] * 9)
        wanted = padded[y : y + 12, x : x + 12]
        assert torch.allclose(image, wanted.flip(1) if draw[22] < 0.5 else wanted, atol=1e-6)


def test_small_images_are_used_whole_and_photographs_at_224(tiny: Path, photographs: Path) -> None:
    small = data.preprocessing(open_dataset(tiny), None)
    assert (small.size, small.native) == (12, (12, 12))
    large = data.preprocessing(open_dataset(photographs), None)
    assert (large.size, large.native, large.channels) == (224, None, 3)
    assert data.preprocessing(open_dataset(photographs), 160).size == 160


def test_photographs_become_224_pixels_of_three_channels(photographs: Path) -> None:
    for training in (True, False):
        images, labels = next(loader(photographs, training=training, batch=4).epoch(0))
        assert images.shape == (4, 3, 224, 224)
        assert labels.shape == (4,)
        assert images.std() > 0.3  # pixels, not a constant
    centre = next(loader(photographs, training=False, batch=4).epoch(0))[0][0]
    value = (centre * 0.25 + 0.5) * 255
    # The picture's red rises from 0 to 255 over its width, green over its height: the middle
    # of both is 127, and a centre crop of 224 / 256 of the height keeps 1/16 to 15/16 of green.
    assert value[0, :, 111:113].mean() == pytest.approx(127.5, abs=4)
    assert value[1, 0, :].mean() == pytest.approx(255 / 16, abs=4)
    assert value[1, -1, :].mean() == pytest.approx(255 * 15 / 16, abs=4)


def copy_with(folder: Path, source: Path, change) -> Path:
    """Copy a data set, with `change` applied to the bytes of the second training shard."""
    folder.mkdir()
    for path in source.iterdir():
        content = path.read_bytes()
        if path.name == "train-00001.tar":
            content = change(bytearray(content))
        (folder / path.name).write_bytes(content)
    return folder


def garbage(content: bytearray) -> bytes:
    at = content.index(b"00000053.png") + 512
    content[at : at + 60] = b"x" * 60
    return bytes(content)


def test_a_corrupt_image_is_named(tmp_path: Path, tiny: Path) -> None:
    folder = copy_with(tmp_path / "bad", tiny, garbage)
    with refused(DataError, "image-undecodable", "train-00001.tar: record 00000053.png "):
        list(loader(folder).epoch(0))


def test_a_wrong_class_is_named(tmp_path: Path, tiny: Path) -> None:
    def change(content: bytearray) -> bytes:
        content[content.index(b"00000041.cls") + 512] = ord("7")
        return bytes(content)

    folder = copy_with(tmp_path / "bad", tiny, change)
    with refused(DataError, "record-invalid", "record 00000041.png ", " 7,"):
        list(loader(folder).epoch(0))
