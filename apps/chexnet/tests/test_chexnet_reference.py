"""A second loop, which shares networks and batches with the app only, ends with its weights."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from chexnet import inputs, network, restore
from chexnet.network import Network
from chexnet.settings import TrainSettings
from trainkit.strategy import Strategy
from trainkit.testing.program import VARIABLES

EPOCHS, FROZEN, BATCH, SEED = 3, 1, 6, 17
HEAD, BODY = 0.05, 0.02  # learning rates
TRAINING = f"""train --model small --size 32 --channels 1 --epochs {EPOCHS} --frozen-epochs {FROZEN}
    --batch-size-per-rank {BATCH} --accumulation 1 --optimizer sgd --base-lr {HEAD}
    --body-lr {BODY} --seed {SEED} --threads 1 --device cpu --eval-every 0"""

pytestmark = pytest.mark.slow


def first_weights() -> Network:
    """Return the network as a training with the same seed begins with it."""
    random.seed(SEED)
    np.random.seed(SEED)
    tf.random.set_seed(SEED)
    return network.build("small", 32, 2, "fp32")


def loss(logits: tf.Tensor, labels: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    """Return CheXNet's loss, equation 1, of a batch; `present`: part of images with a finding."""
    probability = tf.sigmoid(logits)
    with_it = (1 - present) * labels * tf.math.log(probability)
    without = present * (1 - labels) * tf.math.log(1 - probability)
    return -tf.reduce_mean(with_it + without)


def trained(folder: Path) -> Network:
    """Return the network after the second loop: SGD with momentum 0.9, written out."""
    settings = TrainSettings(
        data=folder, model="small", size=32, channels="1", batch_size_per_rank=BATCH, seed=SEED
    )
    batches = inputs.open_inputs(settings, Strategy()).train
    present = tf.constant(batches.vectors().mean(0))
    found = first_weights()
    parts = [(found.head, HEAD), (found.body, BODY)]
    velocity = {id(one): 0.0 for part, _ in parts for one in part.trainable_variables}
    for epoch in range(EPOCHS):
        learning = parts[:1] if epoch < FROZEN else parts
        for batch in batches.epoch(epoch):
            with tf.GradientTape(persistent=True) as tape:
                features = found.features(batch.images, training=epoch >= FROZEN)
                value = loss(found.head(features), batch.labels, present)
            for part, rate in learning:
                for one in part.trainable_variables:
                    moved = 0.9 * velocity[id(one)] - rate * tape.gradient(value, one.value)
                    velocity[id(one)] = moved
                    one.assign_add(moved)
    return found


def test_the_loop_does_what_a_second_one_does(findings: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [*TRAINING.split(), "--data", str(findings), "--out", str(out)]
    program = [sys.executable, "-m", "chexnet", *words]
    subprocess.run(program, env=os.environ | VARIABLES, check=True)
    ours, theirs = restore.open_network(out, None).network, trained(findings)
    first = first_weights()
    for part in ("body", "head"):
        both = zip(getattr(ours, part).variables, getattr(theirs, part).variables, strict=True)
        for one, other in both:
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-4, atol=2e-5)
    moved = np.abs(ours.body.variables[0].numpy() - first.body.variables[0].numpy()).max()
    assert moved > 1e-3  # or the comparison says nothing
