"""The command `evaluate`: loss and accuracy of a checkpoint on a split."""

from __future__ import annotations

import json

import tensorflow as tf

from keras_resnet import evaluation, images, restore
from keras_resnet.evaluation import Totals
from keras_resnet.settings import EvaluateSettings
from trainkit.console import Counter
from trainkit.data.dataset import open_dataset
from trainkit.exits import DataError
from trainkit.tensorflow.start import start


def main(settings: EvaluateSettings) -> None:
    """Print loss and accuracy of a checkpoint on a split.

    Raises:
        DataError: the run has no checkpoint, or the data have other classes.
    """
    assert settings.data is not None  # noqa: S101 - `settings.check` refuses None
    ranks = start("single", device=settings.device)
    with tf.device(ranks.device):
        found = restore.open_network(settings.out, settings.checkpoint)
        classes = tuple(open_dataset(settings.data).classes)
        if classes != found.classes:
            raise DataError(
                f"{settings.data} has the classes {', '.join(classes)}, and the network was "
                f"trained on {', '.join(found.classes)}",
                code="data-mismatch",
            )
        split = images.open_split(
            settings.data, settings.split, found.size, settings.batch_size, settings.decoders
        )
        with Counter("evaluating", split.plan.steps, "batches", quiet=settings.json) as counter:
            totals = Totals(counter, lambda: False)
            with split.explained():
                found.model.compile()
                found.model.evaluate(split.batches(), callbacks=[totals], verbose=0)
    result = evaluation.scores(totals.values)
    if settings.json:
        print(json.dumps({"step": found.step, "images": int(totals.values[-1]), **result.result}))
    else:
        print(f"step {found.step}  {int(totals.values[-1])} images  {result.text}")
