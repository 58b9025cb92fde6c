"""Compare `predict` and `export` with hand-computed values, and DALI's GPU graph with the CPU's."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline
from torch import Tensor, nn

from resnet_imagenet import data, export, pipelines, predict
from resnet_imagenet.cpu_transforms import CpuTransforms
from resnet_imagenet.pipelines import Preprocessing
from trainkit.ranks import Ranks
from trainkit.torch.strategy import TorchStrategy

LOGITS = [[1.0, 3.0, -2.0, 0.5], [0.0, -1.0, 4.0, 4.5], [2.0, 1.0, 0.0, -1.0]]


class Fixed(nn.Module):
    """A network that returns `LOGITS` in evaluation mode, and other values in training mode."""

    def forward(self, images: Tensor) -> Tensor:
        found = torch.tensor(LOGITS)[: len(images)]
        return -found if self.training else found


def test_probabilities_are_the_softmax_over_the_classes_of_an_image() -> None:
    found = predict.probabilities(Fixed().train(), torch.zeros(3, 1, 2, 2))
    for row, logits in zip(found.tolist(), LOGITS, strict=True):
        whole = sum(math.exp(value) for value in logits)
        assert row == pytest.approx([math.exp(value) / whole for value in logits])


@pytest.mark.parametrize("top", [1, 2, 9])
def test_the_best_classes_come_first_with_their_own_names(top: int) -> None:
    chances = torch.tensor([[0.1, 0.6, 0.05, 0.25], [0.4, 0.3, 0.2, 0.1]])
    answers = list(predict.best_classes(["a", "b"], chances, ["p", "q", "r", "s"], top))
    assert [answer["file"] for answer in answers] == ["a", "b"]
    wanted = [[("q", 0.6), ("s", 0.25), ("p", 0.1), ("r", 0.05)],
              [("p", 0.4), ("q", 0.3), ("r", 0.2), ("s", 0.1)]]
    for answer, best in zip(answers, wanted, strict=True):
        found = [(one["class"], one["probability"]) for one in answer["classes"]]
        assert found == [(name, pytest.approx(value)) for name, value in best[:top]]


def test_an_export_is_compared_by_its_largest_difference_and_its_best_classes() -> None:
    """The largest difference is 0.75, and the best class is the same for three of four images.

    In the first batch, the exported network gives the second image another best class.
    """
    others = [[1.0, 3.0, -2.0, 0.5], [0.0, -1.0, 4.25, 3.75], [2.0, 1.0, 0.0, -1.5]]

    def exported(images: Tensor) -> Tensor:
        return torch.tensor(others)[: len(images)]

    batches = [torch.zeros(3, 1, 2, 2), torch.zeros(1, 1, 2, 2)]
    found = export.compare(Fixed().eval(), exported, batches)
    assert found == export.Comparison(images=4, difference=0.75, largest=4.5, agree=3)
    assert found.allowed == pytest.approx(4.5e-4)
    assert export.Comparison(1, 0.0, 0.25, 1).allowed == pytest.approx(1e-4)
    same = export.compare(Fixed().eval(), Fixed().eval(), batches)
    assert (same.difference, same.agree) == (0.0, 4)


def test_an_export_that_answers_nothing_is_never_allowed() -> None:
    found = export.compare(
        Fixed().eval(), lambda images: torch.full((len(images), 4), torch.nan),
        [torch.zeros(2, 1, 2, 2)],
    )
    assert found.difference == math.inf


def test_the_file_says_how_its_images_are_to_be_made() -> None:
    to = Preprocessing(3, 32, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), None)
    at = {"steps_per_epoch": 5, "epoch": 2, "step": 3, "before": 11, "seconds": 0.0, "closed": 1,
          "scores": {}, "window": {}}
    facts = export.metadata({"progress": at}, to, {"model": "resnet20", "classes": ["a"]})
    found = {key: json.loads(text) for key, text in facts.items()}
    assert found["training_step"] == 14
    assert found["preprocessing"] == {
        "mode": "RGB", "centre_square": 0.875, "resize": [32, 32],
        "formula": "(pixel / 255 - mean) / std", "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6],
        "layout": "NCHW", "dtype": "float32",
    }


def test_images_on_the_way_of_a_gpu_are_those_of_the_host() -> None:
    """The graph for GPUs gives the images of `CpuTransforms`, up to less than 3 grey levels.

    DALI runs the operations of this graph on the CPU here, because the test has no GPU. The two
    kinds of resampling differ by two grey levels.
    """
    to = Preprocessing(3, 16, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), None)
    generator = np.random.default_rng(1)
    # Smooth ones: what differs is how the two resample, and not which pixels they see.
    ramp = np.linspace(0, 200, 24 * 40).reshape(24, 40, 1)
    images = [
        (ramp[:, ::way] * [1.0, 0.5, 0.25] + generator.integers(0, 50)).astype(np.uint8)
        for way in (1, -1)
    ]
    flips = [0, 1]
    pipe = Pipeline(2, 1, device_id=None, prefetch_queue_depth=1)
    with pipe:
        pixels, mirror = fn.external_source(
            source=iter([(images, [np.array([flip], np.int32) for flip in flips])]),
            num_outputs=2, dtype=[types.UINT8, types.INT32], layout=["HWC", ""],
        )
        pipe.set_outputs(pipelines.normalized(pixels, to, mirror))
    pipe.build()
    (found,) = pipe.run()
    wanted = CpuTransforms(to, 1)(images, flips)
    for row in range(2):
        own = torch.from_numpy(np.array(found[row])).permute(2, 0, 1)
        std = torch.tensor(to.std)[:, None, None]
        assert ((own - wanted[row]) * std * 255).abs().max() < 3


@pytest.mark.parametrize(("size", "asked", "native", "side"), [
    ((12, 10), None, (12, 10), 12), ((12, 20), None, (12, 20), 20), ((12, 10), 32, (12, 10), 32),
    ((64, 64), None, (64, 64), 64), ((65, 32), None, None, 224), ((None, None), None, None, 224),
    ((None, None), 160, None, 160),
])
def test_small_images_are_whole_and_others_are_photographs(
    size: Any, asked: int | None, native: tuple[int, int] | None, side: int
) -> None:
    dataset: Any = type("D", (), {
        "height": size[0], "width": size[1], "channels": 1, "mean": (0.25,), "std": (0.5,),
    })
    found = data.preprocessing(dataset, asked)
    assert found == Preprocessing(1, side, (0.25,), (0.5,), native)


@pytest.mark.parametrize(("samples", "batch", "size", "steps"), [
    (50, 8, 1, 6), (50, 8, 3, 2), (5, 8, 1, 1),
])
def test_synthetic_samples_are_those_of_whole_batches_of_all_ranks(
    samples: int, batch: int, size: int, steps: int
) -> None:
    to = Preprocessing(3, 8, (0.5,) * 3, (0.25,) * 3, None)
    found = data.Synthetic(
        to, classes=5, batch=batch, samples=samples, seed=3,
        strategy=TorchStrategy(Ranks("Slurm", 0, size, 0, 1)),
    )
    assert (found.steps, found.samples) == (steps, steps * batch * size)
    batches = list(found.epoch(0, 1))
    assert len(batches) == steps - 1
    assert len(list(found.epoch(4))) == steps
    images, labels = next(found.epoch(0))
    assert images.shape == (batch, 3, 8, 8)
    assert 0 <= int(labels.min()) <= int(labels.max()) < 5
