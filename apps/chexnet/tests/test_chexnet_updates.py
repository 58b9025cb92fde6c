"""Tests of a single update: on two ranks, in half precision, and with a checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import second_training as second
import tensorflow as tf
from sklearn import metrics as theirs
from written_findings import image, pack

from chexnet import inputs, method, network, training_evaluation
from chexnet.inputs import Batch
from chexnet.method import LossScale
from chexnet.settings import TrainSettings
from chexnet.state import Trained
from chexnet.train import Training
from trainkit import outputs
from trainkit.ranks import Ranks
from trainkit.signals import StopFlag
from trainkit.tensorflow.strategy import TensorFlowStrategy
from trainkit.testing import reading


class OfTwo(TensorFlowStrategy):
    """A stand-in for one of two ranks; the other rank has gradients of 0 and statistics of 3.

    `total` adds 10 to the first of two values, as the contribution of the other rank.

    Attributes:
        begun: the variables that rank 0 broadcasts at the start.
        given: gradients that this rank contributed to an average, by the name of the average.
        other: labels and logits of the other rank.
    """

    def __init__(self, rank: int = 0) -> None:
        super().__init__(Ranks("mpirun", rank, 2, rank, 2))
        self.given: dict[str, list[np.ndarray]] = {}
        self.begun: list[Any] = []
        self.other: Any = None

    def broadcast(self, variables: Iterable[Any]) -> None:
        self.begun = list(variables)

    def average(self, gradients: Sequence[tf.Tensor], of: str = "network") -> list[tf.Tensor]:
        if of == "network":
            self.given[of] = [one.numpy() for one in gradients]
        return [one / 2 for one in gradients]

    def equalize(self, variables: Iterable[Any]) -> None:
        for one in variables:
            one.assign((one + 3.0) / 2)

    def total(self, values: tf.Tensor) -> tf.Tensor:
        return values + tf.constant([10.0, 0.0], values.dtype)

    def gather(self, value: Any) -> list[Any]:
        return [value, value if self.other is None else self.other]


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = {"train": [image(seed) for seed in range(12)],
            "val": [image(seed) for seed in range(60, 70)]}
    return pack(tmp_path_factory.mktemp("squares") / "two", made, classes=("Mass", "Edema"))


@pytest.fixture
def training(squares: Path, tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """A function that returns a training before its first step."""
    opened = contextlib.ExitStack()

    def make(ranks: TensorFlowStrategy | None = None, **more: Any) -> Training:
        ranks = ranks or TensorFlowStrategy()
        settings = TrainSettings(
            data=squares, out=tmp_path, model="small", size=32, channels="1", log_every=1, **more
        )
        tf.keras.utils.set_random_seed(4)
        data = inputs.open_inputs(settings, ranks)
        folder = tmp_path / f"rank-{ranks.rank}"
        out = outputs.open_outputs(folder, "never", {}, strategy=ranks, keep=1, packages=(),
                                   warn=pytest.fail)
        opened.enter_context(out.log)
        return Training(settings, ranks, data, out, StopFlag())

    with opened:
        yield make


def some(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 256, (count, 32, 32, 1)).astype(np.uint8)
    return images, draw.integers(0, 2, (count, 2)).astype(np.float32)


def names(found: network.Network) -> list[str]:
    """Return the names of the gradients in `second_training`, beginning with the head."""
    body = [f"{kind}.{at}" for at in second.LAYERS for kind in ("kernel", "gamma", "beta")]
    return ["kernel.head", "bias.head", *body]


def test_ranks_of_unequal_shares_make_the_gradient_of_the_whole_batch(
    training: Callable[..., Training], tmp_path: Path
) -> None:
    """The average of the gradients of two ranks is the gradient of the whole batch.

    One rank has three of five images, the other rank has two.
    """
    images, labels = some(5)
    given = []
    for rank, own in enumerate((slice(0, 3), slice(3, 5))):
        ranks = OfTwo(rank)
        made = training(ranks, batch_size_per_rank=3, statistics=False, accumulation=2,
                        optimizer="sgd", base_lr=1e-9)
        asked = []

        def eagerly(frozen: bool, parts: int, made: Training = made, asked: Any = asked) -> Any:
            asked.append((frozen, parts))
            return lambda *words: made.update(*words, frozen=frozen, parts=parts)

        made.graph = eagerly  # type: ignore[method-assign]
        present = made.data.train.vectors().mean(0)
        values = second.weights_of(made.network)
        assert {id(one) for one in ranks.begun} == {
            id(one) for part in (made.network.body, made.network.head) for one in part.variables
        }
        batch = Batch(tf.constant(images[own]), tf.constant(labels[own]), 5)
        made.train_step(iter([batch]), frozen=False)
        assert asked == [(False, 2)]
        given.append(dict(zip(names(made.network), ranks.given["network"], strict=True)))
    each, slopes, _ = second.gradients(
        values, images, labels, second.of_findings(present), training=False
    )
    for name in given[0]:
        mean = (given[0][name] + given[1][name]) / 2
        np.testing.assert_allclose(mean, slopes[name] / 5, rtol=2e-3,
                                   atol=1e-4 * np.abs(mean).max())
    [(_, loss)] = reading.values(tmp_path / "rank-0", "train_loss")
    assert loss == pytest.approx((each[:3].sum() + 10) / 5, rel=1e-5)


def test_a_rank_without_an_image_gives_nothing(training: Callable[..., Training]) -> None:
    ranks = OfTwo()
    made = training(ranks, batch_size_per_rank=3)
    images, labels = some(1)
    none = [tf.constant(images[:0]), tf.constant(labels[:0])]
    made.update(*none, tf.constant(0.4), tf.constant(0.0, tf.float64), frozen=False, parts=0)
    assert all((one == 0).all() for one in ranks.given["network"])
    assert len(ranks.given["network"]) == len(names(made.network))


def test_an_fp16_update_has_gradients_without_the_scale_and_none_that_are_not_finite(
    training: Callable[..., Training]
) -> None:
    made = training(precision="fp16", optimizer="sgd", base_lr=0.5, weighted=False)
    scale, before = made.trained.scale.scale, second.weights_of(made.network)
    images, labels = some(4)
    words = [tf.constant(images), tf.constant(labels), tf.constant(0.25),
             tf.constant(0.0, tf.float64)]
    sums = made.update(*words, frozen=True, parts=1).numpy()
    each, slopes, _ = second.gradients(
        before, images, labels, second.of_findings(None), training=False
    )
    after = second.weights_of(made.network)
    for name in ("kernel.head", "bias.head"):
        moved = after[name] - before[name]
        np.testing.assert_allclose(moved, -0.5 * slopes[name] / 4, rtol=0.05,
                                   atol=0.02 * np.abs(moved).max())
    assert sums[0] == pytest.approx(each.sum(), rel=0.01)
    assert float(scale) == 2.0**15
    scale.assign(2.0**126)
    words[2] = tf.constant(8.0)  # beyond what fp32 holds
    made.update(*words, frozen=True, parts=1)
    for name, value in second.weights_of(made.network).items():
        np.testing.assert_array_equal(value, after[name])
    assert float(scale) == 2.0**125
    assert int(made.trained.head_optimizer.iterations.numpy()) == 1
    network.build("small", 32, 2, "fp32")


def test_the_scale_doubles_only_after_so_many_finite_steps_in_a_row(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (LossScale.FIRST, LossScale.EVERY) == (32768, 2000)
    monkeypatch.setattr(LossScale, "EVERY", 3)
    scale, seen = LossScale("fp16"), []
    for value in (1.0, np.inf, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, np.nan):
        scale.unscaled([tf.constant([value])])
        seen.append(float(scale.scale) / LossScale.FIRST)
    assert seen == [1, 0.5, 0.5, 0.5, 1, 1, 1, 2, 1]
    scale.scale.assign(1.0)
    scale.unscaled([tf.constant([np.inf])])
    assert float(scale.scale) == 1


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_decay_is_of_kernels_only_and_beside_the_gradient(kind: str) -> None:
    made = method.optimizer(TrainSettings(optimizer=kind, weight_decay=0.5, base_lr=0.01))
    before = {"kernel": [1.0, -2.0], "gamma": [1.0, 3.0], "beta": [0.5, 0.1], "bias": [2.0, 1.0],
              "kernel.depthwise": [0.3, 4.0]}
    kept = [keras.Variable(np.float32(value), name=name) for name, value in before.items()]
    made.build(kept)
    by_hand, values = second.Optimizer(kind, 0.5), {k: np.array(v) for k, v in before.items()}
    for rate in (0.1, 0.1, 0.02):
        slope = np.array([0.3, -1.5]) * rate
        made.learning_rate.assign(rate)
        made.apply([tf.constant(slope, tf.float32)] * len(kept), kept)
        by_hand.step(values, dict.fromkeys(values, slope), rate)
    for one, value in zip(kept, values.values(), strict=True):
        np.testing.assert_allclose(one.numpy(), value, rtol=1e-4)


def test_everything_that_changes_with_the_steps_comes_back(
    training: Callable[..., Training]
) -> None:
    made = training(precision="fp16", patience=1).trained
    draw = np.random.default_rng(5)

    def every(one: Trained) -> list[Any]:
        return [*one.network.body.variables, *one.network.head.variables,
                *one.body_optimizer.variables, *one.head_optimizer.variables, *one.scale.variables]

    for variable in every(made):
        kind = tf.as_dtype(variable.dtype).as_numpy_dtype
        variable.assign(draw.integers(1, 90, variable.shape).astype(kind))
    made.plateau.update(0.7)
    made.plateau.update(0.6)
    states = {name: part.state_dict() for name, part in made.parts().items()}
    other = Trained(made.settings, made.data, made.ranks,
                    network.build("small", 32, 2, "fp16"))
    for name, part in other.parts().items():
        part.load_state_dict(states[name])
    for one, theirs_ in zip(every(other), every(made), strict=True):
        np.testing.assert_array_equal(one.numpy(), theirs_.numpy())
    assert other.plateau.factor == pytest.approx(0.1)
    network.build("small", 32, 2, "fp32")


def test_ranks_are_compared_by_all_that_is_learned(training: Callable[..., Training]) -> None:
    """The digest changes with each trainable weight, but not with batch normalization statistics.

    These statistics differ between the ranks within an epoch.
    """
    made = training().trained
    learned = {id(one) for part in (made.network.body, made.network.head)
               for one in part.trainable_variables}
    for variable in [*made.network.body.variables, *made.network.head.variables]:
        before = made.digest()
        variable.assign_add(tf.ones(variable.shape))
        assert (made.digest() != before) == (id(variable) in learned)


def test_all_ranks_judge_by_the_mean_of_their_statistics_and_all_images(
    training: Callable[..., Training]
) -> None:
    ranks = OfTwo()
    made = training(ranks, batch_size_per_rank=2)
    draw = np.random.default_rng(6)
    for at in second.LAYERS:
        normal = made.network.body.get_layer(f"small.{at}.bn")
        for one, low in ((normal.moving_mean, -1), (normal.moving_variance, 0.5), (normal.beta, 1)):
            one.assign(draw.uniform(low, low + 1, one.shape).astype(np.float32))
    values = second.weights_of(made.network)
    values |= {name: (one + 3) / 2 for name, one in values.items()
               if name.startswith(("mean", "variance"))}
    own = np.array([0, 1, 4, 5, 8])  # of ten in batches of four; the last one has two
    source = made.data.evaluation.source
    pixels = np.stack([tf.io.decode_png(bytes(source.encoded(int(at)))).numpy() for at in own])
    labels = np.stack([source.vector(int(at)) for at in own])
    others = np.array([[1, 0], [0, 1], [1, 1.0]]), np.array([[0.2, 1], [-1, 0.1], [2, -0.3]])
    ranks.other = others
    found = training_evaluation.evaluate(made.trained, made.session, made.data.evaluation)
    assert found is not None
    assert second.logits(values, pixels).std(0).min() > 0.01
    logits = np.concatenate([second.logits(values, pixels), others[1]])
    truth = np.concatenate([labels, others[0]])
    likely = 1 / (1 + np.exp(-logits))
    expected = {
        "eval_loss": -(truth * np.log(likely) + (1 - truth) * np.log(1 - likely)).mean(),
        "eval_accuracy": ((likely > 0.5) == truth).mean(),
        "eval_auroc": theirs.roc_auc_score(truth, logits),
        "eval_average_precision": theirs.average_precision_score(truth, logits),
        "eval_better_than_chexnet": sum(
            theirs.roc_auc_score(truth, logits, average=None) > [0.8676, 0.8878]),
    }
    assert found.values == pytest.approx(expected, rel=1e-4)
    assert found.result == {name.removeprefix("eval_"): one for name, one in found.values.items()}


def test_images_of_one_class_are_judged_by_the_likeliest() -> None:
    truth = np.eye(3)[[0, 1, 2, 2]]
    logits = np.array([[2, 1, 0], [3, 2, 1], [0, 0, 4], [0.5, 0, -1]], float)
    found = training_evaluation.score_classes(truth, logits)
    likely = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert found.values == pytest.approx({
        "eval_loss": -np.log((likely * truth).sum(1)).mean(), "eval_accuracy": 0.5,
    })


def test_the_loss_of_classes_is_of_one_of_them() -> None:
    logits, labels = np.array([[1.0, 2, -1], [0, 0, 3]]), np.eye(3)[[1, 0]]
    likely = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(method.class_losses(tf.constant(logits), tf.constant(labels)),
                               -np.log((likely * labels).sum(1)))
