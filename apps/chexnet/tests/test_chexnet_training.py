"""Tests that repeat whole trainings with a second implementation, and compare the results.

The tests compare weights, learning rates, losses and scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import second_training as second
import tensorflow as tf
from sklearn import metrics as theirs
from written_findings import image, pack

from chexnet import __main__ as app
from chexnet import inputs, network, restore, training_evaluation, weights
from chexnet.settings import PretrainSettings, TrainSettings
from trainkit.data.dataset import open_dataset
from trainkit.journal import Evaluation
from trainkit.strategy import Strategy
from trainkit.testing import reading

SEED = 23
COMMON = f"""--model small --size 32 --channels 1 --seed {SEED} --threads 1 --decoders 1
    --device cpu --log-every 1"""


@pytest.fixture(autouse=True, scope="module")
def plain_graphs() -> Iterator[None]:
    """Disable TensorFlow's graph optimizer, which would take more time than it saves here."""
    for off in (True, False):
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": off})
        if off:
            yield


def first_weights(outputs: int = 2) -> second.Arrays:
    """Return the initial weights of a training with `SEED`.

    Keras draws the weights with Python's random number generator.
    """
    import random

    random.seed(SEED)
    np.random.seed(SEED)
    tf.random.set_seed(SEED)
    return second.weights_of(network.build("small", 32, outputs, "fp32"))


def train(verb: str, words: str, data: Path, out: Path, *more: str | Path) -> second.Arrays:
    """Train in this process; return the weights in the newest checkpoint."""
    said = [verb, *COMMON.split(), *words.split(), "--data", data, "--out", out, *more]
    assert app.main(list(map(str, said))) == 0
    return second.weights_of(restore.open_network(out, None).network)


def told(out: Path, key: str) -> list[float]:
    return [value for _, value in reading.values(out, key)]


def labels_of(data: Path, split: str) -> np.ndarray:
    records = open_dataset(data, labels=("multi", "class")).records(split)
    return np.stack([records.vector(at) for at in range(len(records))])


@pytest.fixture(scope="module")
def chests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of two findings with published AUROCs; their frequencies differ between splits."""
    made: dict[str, list[Any]] = {"train": [], "val": [], "test": []}
    wanted = {"train": (14, {0: 4, 1: 9}), "val": (7, {0: 4, 1: 3}), "test": (5, {0: 2, 1: 3})}
    for number, (split, (count, parts)) in enumerate(wanted.items()):
        pool = [image(1000 * number + seed) for seed in range(200)]
        while len(made[split]) < count:
            one = pool.pop()
            rest = count - len(made[split])
            have = {at: sum(at in found for found, _ in made[split]) for at in parts}
            need = {at: parts[at] - have[at] for at in parts}
            if all((0 <= need[at] - (at in one[0]) <= rest - 1) for at in parts):
                made[split].append(one)
    return pack(tmp_path_factory.mktemp("chests") / "two", made, classes=("Mass", "Edema"))


def scores_by_hand(values: second.Arrays, data: Path, split: str) -> dict[str, float]:
    """Return the scores of the weights `values` on a split, computed by scikit-learn and NumPy."""
    records, labels = open_dataset(data, labels=("multi",)).records(split), labels_of(data, split)
    pixels = np.stack([tf.io.decode_png(bytes(records.encoded(at))).numpy()
                       for at in range(len(records))])
    found = second.logits(values, pixels)
    aurocs = theirs.roc_auc_score(labels, found, average=None)
    likely = 1 / (1 + np.exp(-found))
    return {
        "loss": float(-(labels * np.log(likely) + (1 - labels) * np.log(1 - likely)).mean()),
        "accuracy": float(((likely > 0.5) == labels).mean()),
        "auroc": float(aurocs.mean()),
        "average_precision": float(theirs.average_precision_score(labels, found)),
        "better_than_chexnet": int((aurocs > [0.8676, 0.8878]).sum()),
    }


def batches(data: Path, size: int, epochs: int) -> list[list[inputs.Batch]]:
    """Return the batches of each epoch; the tests of the inputs check their content."""
    settings = TrainSettings(
        data=data, model="small", size=32, channels="1", batch_size_per_rank=size, seed=SEED
    )
    train = inputs.open_inputs(settings, Strategy()).train
    return [list(train.epoch(epoch)) for epoch in range(epochs)]


@pytest.fixture(scope="module")
def trained(chests: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with SGD: one epoch with a frozen body, two epochs of the whole network, and a test.

    Each step has two micro-batches, and the learning rates grow in a warm-up.
    """
    out = tmp_path_factory.mktemp("trained") / "run"
    train("train", "--epochs 3 --frozen-epochs 1 --batch-size-per-rank 6 --accumulation 2 "
          "--optimizer sgd --weight-decay 0.5 --base-lr 0.03 --body-lr 0.01 --base-batch 4 "
          "--warmup-images 12 --test", chests, out)
    return out


def test_sgd_with_a_frozen_epoch_parts_decay_and_warm_up_does_what_a_second_one_does(
    trained: Path, chests: Path
) -> None:
    first = first_weights()
    present = labels_of(chests, "train").mean(0)
    by_hand = second.Second(first, second.of_findings(present), "sgd", 0.5)
    rates, losses = [], []
    scores: dict[str, list[float]] = {}
    for epoch, own in enumerate(batches(chests, 6, 3)):
        for batch in own:
            peak = 0.03 * 6 / 4
            rates.append(peak * min(1.0, (len(rates) + 1) / 3))  # 12 images of 4: three steps
            losses.append(by_hand.step(
                batch.images.numpy(), batch.labels.numpy(), head=rates[-1],
                body=None if epoch < 1 else rates[-1] / 3, parts=2,
            ))
        for key, value in scores_by_hand(by_hand.values, chests, "val").items():
            scores.setdefault(f"eval_{key}", []).append(value)
    ours = second.weights_of(restore.open_network(trained, None).network)
    second.close(ours, by_hand.values, first)
    assert told(trained, "learning_rate") == pytest.approx(rates)
    assert told(trained, "train_loss") == pytest.approx(losses, rel=1e-3)
    for key, values in scores.items():
        assert told(trained, key) == pytest.approx(values, rel=1e-3), key
    tested = scores_by_hand(by_hand.values, chests, "test")
    assert {key: told(trained, f"test_{key}") for key in tested} == {
        key: [pytest.approx(value, rel=1e-3)] for key, value in tested.items()
    }
    begun = {line["key"]: line["value"] for line in reading.lines(trained)[:6]}
    assert begun | {"seed": SEED, "global_batch_size": 6, "train_samples": 14,
                    "eval_samples": 7} == begun


def made_up(trained: Any, session: Any, loader: Any) -> Evaluation:
    """Return made-up scores: the AUROC never improves; accuracy and average precision rise."""
    at = session.progress.epoch
    values = {"eval_auroc": [0.6, 0.5, 0.6][at], "eval_accuracy": 0.5 + 0.1 * at,
              "eval_average_precision": 0.2 + 0.1 * at, "eval_loss": [0.5, 0.7, 0.4][at]}
    return Evaluation(values, values, "")


def test_adam_with_a_rate_that_the_validation_lowers_goes_on_as_a_second_one_does(
    chests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with Adam has the weights and learning rates of the second implementation.

    A run that resumes after the rate fell has exactly the same weights. Steps with a frozen body do
    not count as steps of the body's optimizer.
    """
    words = """--epochs 9 --frozen-epochs 1 --batch-size-per-rank 7 --no-weighted --no-statistics
        --base-lr 0.004 --patience 1 --drop 0.25 --stop-after 2"""
    monkeypatch.setattr(training_evaluation, "evaluate", made_up)
    whole, rest = tmp_path / "whole", tmp_path / "rest"
    ours = train("train", words, chests, whole, "--checkpoint-every", "5", "--keep", "9")
    first = first_weights()
    by_hand = second.Second(first, second.of_findings(None), "adam")
    rates = [0.004] * 4 + [0.001] * 2  # it falls after two epochs, and all ends after three
    for epoch, own in enumerate(batches(chests, 7, 3)):
        for at, batch in enumerate(own):
            rate = rates[2 * epoch + at]
            by_hand.step(batch.images.numpy(), batch.labels.numpy(), head=rate,
                         body=None if epoch < 1 else rate, statistics=False)
    second.close(ours, by_hand.values, first)
    assert told(whole, "learning_rate") == pytest.approx(rates)
    for name in (name for name in ours if name.startswith(("mean", "variance"))):
        np.testing.assert_array_equal(ours[name], first[name])  # statistics stay as they were
    again = train("train", words, chests, rest, "--resume",
                  whole / "checkpoints/step-00000005.npz")
    assert told(rest, "learning_rate") == pytest.approx(rates[5:])
    for name, value in ours.items():
        np.testing.assert_array_equal(again[name], value)
    assert reading.same(reading.parts(rest), reading.parts(whole))


def test_a_pre_training_does_what_a_second_one_does_and_is_judged_by_its_accuracy(
    tmp_path: Path
) -> None:
    """A pre-training has the weights, rates and scores of the second implementation.

    The loss is the softmax cross-entropy, with weight decay. The rate falls in steps, and also when
    the accuracy no longer rises.
    """
    made = {
        split: [((0 if 0 in found else 1,), content) for found, content in map(image, seeds)]
        for split, seeds in (("train", range(7)), ("val", range(50, 56)))
    }
    data = pack(tmp_path / "classes", made, labels="class", classes=("a", "b"))
    ours = train(
        "pretrain", "--epochs 3 --batch-size-per-rank 4 --base-lr 0.05 --base-batch 4 "
        "--warmup-images 0 --weight-decay 0.3 --patience 1 --drop 0.5", data, tmp_path / "run",
    )
    settings = PretrainSettings(
        data=data, model="small", size=32, channels="1", batch_size_per_rank=4, seed=SEED
    )
    found = inputs.open_inputs(settings, Strategy())
    held = [np.concatenate([getattr(one, of).numpy() for one in found.evaluation.epoch(0)])
            for of in ("images", "labels")]
    first = first_weights()
    by_hand = second.Second(first, second.of_classes, "sgd", 0.3)
    rates, factor, best, scores = [], 1.0, -1.0, {"loss": [], "accuracy": []}
    for epoch in range(3):
        for batch in found.train.epoch(epoch):
            rates.append(0.05 * 0.1**epoch * factor)  # a tenth after 1/3 and 2/3 of the epochs
            by_hand.step(batch.images.numpy(), batch.labels.numpy(), head=rates[-1],
                         body=rates[-1])
        logits = second.logits(by_hand.values, held[0])
        accuracy = float((logits.argmax(1) == held[1].argmax(1)).mean())
        scores["accuracy"].append(accuracy)
        scores["loss"].append(float(second.of_classes(logits, held[1]).numpy().mean()))
        factor, best = (factor, accuracy) if accuracy > best else (0.5 * factor, best)
    second.close(ours, by_hand.values, first)
    assert told(tmp_path / "run", "learning_rate") == pytest.approx(rates)
    for key, values in scores.items():
        assert told(tmp_path / "run", f"eval_{key}") == pytest.approx(values, rel=1e-3), key
    assert not told(tmp_path / "run", "eval_auroc")


def test_a_training_begins_with_all_weights_and_the_rate_of_a_checkpoint(
    trained: Path, chests: Path, tmp_path: Path
) -> None:
    newest = reading.checkpoints(trained)[-1]
    words = "--max-steps 1 --eval-every 0 --batch-size-per-rank 5 --optimizer sgd --base-lr 9"
    ours = train("train", words, chests, tmp_path / "run", "--initial", newest, "--initial-rate")
    first = second.weights_of(restore.open_network(trained, None).network)
    present = labels_of(chests, "train").mean(0)
    by_hand = second.Second(first, second.of_findings(present), "sgd")
    batch = batches(chests, 5, 1)[0][0]
    rate = 0.03 * 6 / 4  # of the last step there
    by_hand.step(batch.images.numpy(), batch.labels.numpy(), head=rate, body=rate)
    second.close(ours, by_hand.values, first)
    assert told(tmp_path / "run", "learning_rate") == pytest.approx([rate])


def test_first_weights_for_other_findings_are_those_of_the_body_only(trained: Path) -> None:
    found = network.build("small", 32, 3, "fp32")
    before, there = second.weights_of(found), second.weights_of(
        restore.open_network(trained, None).network
    )
    weights.load(found, reading.checkpoints(trained)[-1])
    for name, value in second.weights_of(found).items():
        expected = before if name.endswith(".head") else there
        np.testing.assert_array_equal(value, expected[name])


def test_what_is_restored_is_what_was_trained_of(trained: Path) -> None:
    found = restore.open_network(trained, None)
    assert (found.findings, found.size, found.channels) == (("Mass", "Edema"), 32, 1)
    assert (found.step, found.packed, found.network.name) == (9, None, "small")
    assert restore.open_network(None, reading.checkpoints(trained)[0]).step == 6
