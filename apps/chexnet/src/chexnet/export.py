"""The command `export`: write a trained network as ONNX or SavedModel, and check it.

The export contains everything that its use requires: weights, findings and preprocessing. It
appears under its name only after its outputs were compared with the outputs of the original
network.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from chexnet import inputs, restore
from chexnet.findings import NOTICE
from chexnet.inputs import Loader
from chexnet.restore import Restored
from chexnet.settings import ExportSettings
from trainkit import atomic
from trainkit.data.order import Plan
from trainkit.exits import ArgumentError, DataError
from trainkit.provenance import versions
from trainkit.strategy import Strategy
from trainkit.tensorflow.parts import plain
from trainkit.tensorflow.start import start

OPSET = 18
TOLERANCE = 1e-4
"""Largest accepted difference between a logit of the exported network and the original logit.

The difference is divided by max(1, largest absolute logit of the original network).

A different order of summation in fp32 causes about a tenth of this difference.
"""
BATCH = 8  # images per batch of the comparison
IMAGES = 64  # number of images of --data in the comparison
NEEDED = {"onnx": ("tf2onnx", "onnx", "onnxruntime"), "savedmodel": ()}
PACKAGES = ("tensorflow-cpu", "tensorflow", "tf2onnx", "onnx", "chexnet")

Images = NDArray[np.float32]
Answer = Callable[[Images], Images]
"""An exported network as a function, for the comparison with the original network.

It maps images (n, size, size, channels) with values 0..255 to logits (n, findings)."""


def main(settings: ExportSettings) -> None:
    """Write the network of a checkpoint to a new path, and print the largest difference.

    Raises:
        ArgumentError: a package is missing.
        DataError: the run has no checkpoint, or the outputs of the exported network differ from
            the outputs of the original network. Nothing is written.
    """
    assert settings.to is not None  # noqa: S101 - `settings.check` refuses None
    need(settings.format)
    ranks = start("single", device="cpu")
    model = restore.open_network(settings.out, settings.checkpoint)
    logits = graph(model)
    batches = {"random images": random_images(model)}
    if settings.data is not None:
        batches[str(settings.data)] = real_images(settings.data, model, ranks)
    writing = {"onnx": onnx_file, "savedmodel": saved_model}[settings.format]
    with writing(settings.to, model, logits) as answer:
        for name, images in batches.items():
            print(f"{name}: {compare(logits, answer, images)}")
    print(f"{settings.to}  {model.network.name}, images (any number, {model.size}, {model.size}, "
          f"{model.channels}) of 0..255 to logits of {len(model.findings)} findings")
    print(NOTICE)


def need(form: str) -> None:
    """Raise an error if a package that the export to the format `form` needs is missing.

    Container images for GPUs do not contain these packages.

    Raises:
        ArgumentError: a package is missing; the message names it.
    """
    missing = [name for name in NEEDED[form] if importlib.util.find_spec(name) is None]
    if missing:
        raise ArgumentError(
            f"export to {form} needs {', '.join(missing)}, not installed here; "
            "export with the CPU image, whose checkpoints are the same, or use --format savedmodel",
            code="library-missing",
        )


def graph(model: Restored) -> Any:
    """Return the network as a TensorFlow function from `images` to `logits`."""
    shape = (None, model.size, model.size, model.channels)

    def logits(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": model.network.logits(images, training=False)}

    return tf.function(logits, input_signature=[tf.TensorSpec(shape, tf.float32, name="images")])


def about(model: Restored) -> dict[str, Any]:
    """Return a description of the network, which the exported file contains for its users."""
    return {
        "model": model.network.name,
        "findings": model.findings,
        "notice": NOTICE,
        "preprocessing": {
            "mode": "L" if model.channels == 1 else "RGB",
            "resize": [model.size, model.size],
            "values": "0..255, as they are: the network normalizes them",
            "layout": "NHWC",
            "dtype": "float32",
        },
        "output": "logits; a probability is 1 / (1 + exp(-logit))",
        "training_step": model.step,
        "versions": versions(PACKAGES),
    }


@contextmanager
def onnx_file(to: Path, model: Restored, logits: Any) -> Iterator[Answer]:
    """Export the network as ONNX; yield a function that runs the exported network.

    In the `with` block, the caller compares this function with the original network. If the block
    raises no error, the export is written to the file `to`.
    """
    import onnxruntime
    import tf2onnx

    logging.getLogger("tf2onnx").setLevel(logging.ERROR)  # tf2onnx logs each step
    made, _ = tf2onnx.convert.from_function(
        logits, input_signature=logits.input_signature, opset=OPSET
    )
    for key, value in about(model).items():
        made.metadata_props.add(key=key, value=json.dumps(value))
    content = made.SerializeToString(deterministic=True)
    session = onnxruntime.InferenceSession(content, None, ["CPUExecutionProvider"])
    with atomic.replacing(to) as file:
        yield lambda images: np.asarray(session.run(["logits"], {"images": images})[0])
        file.write(content)


@contextmanager
def saved_model(to: Path, model: Restored, logits: Any) -> Iterator[Answer]:
    """Export the network as a SavedModel; yield a function that runs the exported network.

    In the `with` block, the caller compares this function with the original network. If the
    block raises no error, the folder of the SavedModel is renamed to `to`.
    """
    module = tf.Module()
    parts = (model.network.body, model.network.head)
    module.weights = [plain(one) for part in parts for one in part.variables]
    module.serve = logits
    with tempfile.TemporaryDirectory(prefix=f".{to.name}.", dir=to.parent) as aside:
        place = Path(aside, to.name)
        tf.saved_model.save(module, place, signatures=logits)
        atomic.write_json(place / "about.json", about(model))
        loaded = tf.saved_model.load(place).signatures["serving_default"]
        yield lambda images: np.asarray(loaded(images=tf.constant(images))["logits"])
        place.rename(to)
    atomic.sync_folder(to.parent)


def random_images(model: Restored) -> Iterator[Images]:
    """Yield two batches of different sizes with random pixels, for `compare`."""
    draw = np.random.default_rng(0)
    for count in (BATCH, 1):
        shape = (count, model.size, model.size, model.channels)
        yield draw.integers(0, 256, shape).astype(np.float32)


def real_images(folder: Path, model: Restored, ranks: Strategy) -> Iterator[Images]:
    """Yield the first images of the evaluation split of the data set in `folder`."""
    dataset = inputs.open_images(folder)
    source = dataset.records(dataset.evaluation_split())
    plan = Plan(len(source), BATCH, seed=0, training=False)
    loader = Loader(source, size=model.size, channels=model.channels, plan=plan, strategy=ranks,
                    augment=False, decoders=1)
    for batch in itertools.islice(loader.epoch(0), IMAGES // BATCH):
        yield batch.images.numpy().astype(np.float32)


def compare(logits: Any, answer: Answer, batches: Iterator[Images]) -> str:
    """Return a description of the difference between the exported and the original network.

    Args:
        logits: the original network, from `graph`.
        answer: the exported network.
        batches: the images on which both are compared.

    Raises:
        DataError: the difference is larger than rounding explains.
    """
    images, difference, largest = 0, 0.0, 1.0
    for batch in batches:
        ours, theirs = logits(tf.constant(batch))["logits"].numpy(), answer(batch)
        images += len(batch)
        found = np.abs(ours - theirs)
        difference = max(difference, float(np.max(np.where(np.isfinite(found), found, np.inf))))
        largest = max(largest, float(np.abs(ours).max()))
    said = (f"{images} images, logits up to {largest:.3g} differ by at most {difference:.1e} "
            f"(allowed {TOLERANCE * largest:.1e})")
    if difference > TOLERANCE * largest:
        raise DataError(f"the exported network differs from the original: {said}; "
                        "nothing is written", code="export-differs")
    return said
