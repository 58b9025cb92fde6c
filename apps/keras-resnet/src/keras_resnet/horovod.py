"""Train with several processes, on one node or many: Horovod.

Each rank has one device and a replica of the network, and reads its own share of each batch.
`DistributedOptimizer` adds the gradients of all ranks by MPI, Gloo or NCCL. It requires Keras 2,
because it adds nothing in Keras 3, and reports no error.
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras as keras

from keras_resnet import contract, network
from keras_resnet.images import Split
from keras_resnet.settings import TrainSettings
from trainkit.tensorflow import determinism
from trainkit.tensorflow.horovod import check_keras
from trainkit.tensorflow.start import start


def main(settings: TrainSettings) -> None:
    """Train as `settings` specify, and write all files below `settings.out`.

    Raises:
        AppError: the training failed; the error has the exit code of the app contract.
    """
    determinism.prepare(settings.seed, threads=settings.threads, inter=settings.inter_threads)
    check_keras("train")
    ranks = start("horovod", device=settings.device)
    import horovod.tensorflow.keras as hvd  # after `start`, which reports if it is missing

    def batches(split: Split, epoch: int = 0, first: int = 0) -> tf.data.Dataset:
        return split.batches(epoch, first, rank=ranks.rank, ranks=ranks.size)

    with contract.opened(settings, ranks) as run:
        if run is None:
            return
        train = run.images.train
        model = network.build(settings, run.images.classes)
        optimizer = keras.optimizers.SGD(settings.learning_rate, settings.momentum)
        model.compile(hvd.DistributedOptimizer(optimizer, op=hvd.Sum))
        ranks.broadcast(model.variables)
        with run.fitting(model, batches, total=ranks.sum) as fit:
            for epoch, first in fit.epochs():
                model.fit(
                    batches(train, epoch, first), steps_per_epoch=train.plan.steps - first,
                    initial_epoch=epoch, epochs=epoch + 1, callbacks=[fit], verbose=0,
                )
