"""Train with one process on one device: plain `model.fit`.

The README shows how many lines of this file the other strategies change.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras as keras

from keras_resnet import contract, network
from keras_resnet.images import Split
from keras_resnet.settings import TrainSettings
from trainkit.tensorflow import determinism
from trainkit.tensorflow.start import start


def main(settings: TrainSettings) -> None:
    """Train as `settings` specify, and write all files below `settings.out`.

    Raises:
        AppError: the training failed; the error has the exit code of the app contract.
    """
    determinism.prepare(settings.seed, threads=settings.threads, inter=settings.inter_threads)
    ranks = start("single", device=settings.device)

    def batches(split: Split, epoch: int = 0, first: int = 0) -> tf.data.Dataset:
        return split.batches(epoch, first)

    with contract.opened(settings, ranks) as run:
        if run is None:
            return
        train = run.images.train
        model = network.build(settings, run.images.classes)
        model.compile(keras.optimizers.SGD(settings.learning_rate, settings.momentum))
        with run.fitting(model, batches) as fit:
            for epoch, first in fit.epochs():
                model.fit(
                    batches(train, epoch, first), steps_per_epoch=train.plan.steps - first,
                    initial_epoch=epoch, epochs=epoch + 1, callbacks=[fit], verbose=0,
                )
