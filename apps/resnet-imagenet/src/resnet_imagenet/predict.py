"""The most likely classes of image files: the command `predict`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from resnet_imagenet.bad import undecodable
from resnet_imagenet.evaluate import load_checkpoint, restore_network
from resnet_imagenet.formats.images import SUFFIXES, is_image
from resnet_imagenet.pipelines import Preprocessing, Way
from resnet_imagenet.producer import Producer
from resnet_imagenet.settings import PredictSettings
from trainkit.exits import DataError


def main(settings: PredictSettings) -> None:
    """Print the best classes of each image, as a table or as JSON."""
    assert settings.data is not None  # noqa: S101 - `settings.check` saw to it
    files = image_files(settings.data)
    network, to, about = restore_network(load_checkpoint(settings.out, settings.checkpoint))
    answers: list[dict[str, Any]] = []
    for start in range(0, len(files), settings.batch_size):
        chunk = files[start : start + settings.batch_size]
        chances = probabilities(network, read_images(chunk, to, settings.threads))
        best = chances.topk(min(settings.top, len(about["classes"])))
        for file, values, numbers in zip(chunk, best.values, best.indices, strict=True):
            pairs = zip(values.tolist(), numbers.tolist(), strict=True)
            classes = [{"class": about["classes"][n], "probability": value} for value, n in pairs]
            answers.append({"file": str(file), "classes": classes})
    print(json.dumps(answers, indent=2) if settings.json else table(answers))


def image_files(path: Path) -> list[Path]:
    """Return `path` itself, or the image files in it, sorted by name.

    Raises:
        DataError: there is nothing to predict.
    """
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if is_image(p.name))
        if not files:
            raise DataError(f"{path} has no image files ({', '.join(SUFFIXES)})")
        return files
    if not path.is_file():
        raise DataError(f"{path} does not exist")
    return [path]


def read_images(files: Sequence[Path], to: Preprocessing, threads: int) -> Tensor:
    """Return `files` as the network sees them, (N, C, H, W).

    Raises:
        DataError: a file cannot be read or decoded; the message names it.
    """
    try:
        encoded = [np.frombuffer(file.read_bytes(), np.uint8) for file in files]
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error
    labels = np.zeros((len(files), 1), np.int64)  # unknown, and the graph wants some
    way, source = Way(training=False, threads=threads), itertools.repeat((encoded, labels))
    producer = Producer(to, source, way, batch=len(files))
    try:
        return producer.next()[0]
    except RuntimeError as error:
        samples = [(content, labels[0], None) for content in encoded]
        for number, text in undecodable(to, way, samples):
            raise DataError(f"{files[number]} {text}") from error
        raise
    finally:
        producer.close()


@torch.inference_mode()
def probabilities(network: nn.Module, images: Tensor) -> Tensor:
    """Return the softmax (N, classes) of `network` in evaluation mode, in fp32."""
    network.eval()
    chances: Tensor = network(images).softmax(dim=1)
    return chances


def table(answers: Sequence[dict[str, Any]]) -> str:
    """Return one block of lines per image: its name, then its classes, the best first."""
    lines = []
    for answer in answers:
        lines.append(answer["file"])
        lines += [f"  {c['probability']:7.2%}  {c['class']}" for c in answer["classes"]]
    return "\n".join(lines)
