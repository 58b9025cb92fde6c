"""Train with parameter servers, asynchronously or synchronously: ParameterServerStrategy.

Rank 0 is the coordinator: it reads the images and sends each batch to a worker. Servers keep the
weights. In asynchronous SGD, a worker reads the weights, computes the gradients of a whole batch,
and applies them at once, although other workers may have changed the weights since. With
`--synchronous`, the workers share each batch, and rank 0 adds their gradients and applies the sum.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras as keras

from keras_resnet import contract, network
from keras_resnet.contract import STALENESS
from keras_resnet.images import Split
from keras_resnet.network import Classifier
from keras_resnet.settings import TrainSettings
from trainkit.tensorflow import determinism
from trainkit.tensorflow.keras_fit import Ready
from trainkit.tensorflow.parameter_server import Coordinator, Remote
from trainkit.tensorflow.start import start_parameter_server


def main(settings: TrainSettings) -> None:
    """Train as `settings` specify, and write all files below `settings.out`.

    Raises:
        AppError: the training failed; the error has the exit code of the app contract.
    """
    determinism.prepare(settings.seed, threads=settings.threads, inter=settings.inter_threads)
    ranks = start_parameter_server(
        settings.servers or 1, synchronous=settings.synchronous, device=settings.device
    )
    if ranks is None:  # this rank was a server or a worker, and rank 0 has ended the training
        return
    shares = ranks.replicas

    def batches(split: Split, epoch: int = 0, first: int = 0) -> Iterator[tuple[Any, ...]]:
        found = iter(split.batches(epoch, first, replicas=shares))
        return zip(*[found] * shares, strict=True)  # each batch in one share per worker

    with contract.opened(settings, ranks) as run:
        if run is None:
            return
        train = run.images.train
        with ranks.distribution.scope():
            model = network.build(settings, run.images.classes)
            model.compile(keras.optimizers.SGD(settings.learning_rate, settings.momentum))
        workers = Workers(ranks, model)
        make_step = workers.synchronous if settings.synchronous else workers.asynchronous
        with run.fitting(model, batches, evaluated=workers.evaluated) as fit:
            for epoch, first in fit.epochs():
                for batch in fit.steps(batches(train, epoch, first)):
                    fit.finish_step(make_step(batch))


class Workers:
    """The functions that rank 0 sends to the workers; each is a graph that a worker executes.

    Args:
        ranks: the strategy that connects rank 0 with servers and workers.
        model: the network, whose variables are on the servers.
    """

    def __init__(self, ranks: Coordinator, model: Classifier) -> None:
        self._ranks, self._model = ranks, model
        self._run = ranks.distribution.run
        self._update = tf.function(self._update_weights, reduce_retracing=True)
        self._gradients = tf.function(
            lambda *share: self._run(model.gradients, args=(share,)), reduce_retracing=True
        )
        self._apply = tf.function(self._apply_gradients)
        self._test = tf.function(
            lambda *share: self._run(model.test_step, args=(share,)), reduce_retracing=True
        )

    def asynchronous(self, batch: Sequence[Any]) -> Remote:
        """Have an idle worker change the weights by the gradients of a whole batch."""
        (whole,) = batch
        return self._ranks.schedule(self._update, whole)

    def synchronous(self, batch: Sequence[Any]) -> Ready:
        """Have each worker compute the gradients of its share of a batch, and apply their sum.

        The gradients are added in the order of the shares, so that a resumed run has the same bits.
        """
        pending = [self._ranks.schedule(self._gradients, share) for share in batch]
        found = [share.result() for share in pending]
        sums = [sum(parts) for parts in zip(*(parts for parts, _ in found), strict=True)]
        self._ranks.schedule(self._apply, sums).result()
        return Ready({key: sum(one[key] for _, one in found) for key in found[0][1]})

    def evaluated(self, batches: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Evaluate `batches` on the workers.

        Yields:
            For each share of a batch, the result of `Classifier.test_step`.
        """
        return self._ranks.map(self._test, itertools.chain.from_iterable(batches))

    def _update_weights(self, *batch: tf.Tensor) -> Any:
        updates = self._model.optimizer.iterations

        def step() -> tuple[tf.Tensor, Any]:
            before = updates.read_value()
            with tf.control_dependencies([before]):  # it is read before the weights
                return before, self._model.train_step(batch)

        before, results = self._run(step)
        stale = tf.cast(updates.read_value() - before - 1, tf.float32)
        return results | {STALENESS: stale * tf.cast(tf.shape(batch[0])[0], tf.float32)}

    def _apply_gradients(self, *sums: tf.Tensor) -> None:
        pairs = list(zip(sums, self._model.trainable_variables, strict=True))
        self._run(lambda: self._model.optimizer.apply_gradients(pairs))
