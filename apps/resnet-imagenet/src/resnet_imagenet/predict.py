"""The command `predict`: the most likely classes of image files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from resnet_imagenet.defects import undecodable
from resnet_imagenet.evaluate import restore_network
from resnet_imagenet.pipelines import PipelineOptions, Preprocessing
from resnet_imagenet.producer import Producer
from resnet_imagenet.settings import PredictSettings
from shards import picturefile
from shards.formats.records import Bytes
from shards.picturefacts import BadImage
from trainkit import outputs
from trainkit.console import Counter
from trainkit.data.folder import SUFFIXES, is_image
from trainkit.exits import DataError
from trainkit.streams import mute

NO_LABEL = np.zeros(1, np.int64)  # placeholder, because the pipeline requires a label

Answer = dict[str, Any]
"""The prediction for an image, with the keys `file` and `classes`.

`classes` is a list of dicts with the keys `class` and `probability`, the most likely class first.
"""


def main(settings: PredictSettings) -> None:
    """Print the most likely classes of each image as a table or as JSON, one batch at a time.

    Raises:
        DataError: some images could not be read; the predictions of all others are printed.
    """
    assert settings.data is not None  # noqa: S101 - `settings.check` refuses None
    files = image_files(settings.data)
    state = outputs.load_trained(settings.out, settings.checkpoint)
    network, to, description = restore_network(state)
    defects = 0

    def answers() -> Iterator[Answer]:
        nonlocal defects
        for start in range(0, len(files), settings.batch_size):
            chunk = files[start : start + settings.batch_size]
            readable, images, reasons = read_images(chunk, to, settings.threads)
            for reason in reasons:
                print(reason, file=sys.stderr)
            defects += len(reasons)
            if images is not None:
                probability = probabilities(network, images)
                yield from best_classes(readable, probability, description["classes"], settings.top)
            done.add(len(chunk))

    # On a terminal the predictions themselves show the progress.
    with Counter(
        "predicting", len(files), "images", quiet=sys.stdout.isatty(), stream=sys.stderr
    ) as done:
        write(answers(), as_json=settings.json)
    if defects:
        raise DataError(
            f"{defects} of {len(files)} images could not be read; they are named above",
            code="image-undecodable",
        )


def image_files(path: Path) -> list[str]:
    """Return `path` itself, or all image files below it, sorted.

    Hidden files are skipped: some systems store metadata in hidden files with names of images.

    Raises:
        DataError: there is no image file.
    """
    if not path.is_dir():
        if not path.is_file():
            raise DataError(f"{path} does not exist", code="data-missing")
        return [str(path)]
    files = sorted(
        os.path.join(folder, name)  # noqa: PTH118 - strings, because there may be millions
        for folder, _, names in os.walk(path)
        for name in names
        if is_image(name) and not name.startswith(".")
    )
    if not files:
        raise DataError(f"{path} has no image files ({', '.join(SUFFIXES)})", code="data-missing")
    return files


def read_images(
    files: Sequence[str], to: Preprocessing, threads: int
) -> tuple[list[str], Tensor | None, list[str]]:
    """Read and preprocess `files`, and find the files that cannot be read.

    Returns:
        The readable files; their images (files, C, H, W), or None if no file is readable; and an
        error message for each unreadable file.
    """
    contents: dict[str, Bytes] = {}
    reasons = []
    for file in files:
        try:
            content = Path(file).read_bytes()
            picturefile.check(content)
            contents[file] = np.frombuffer(picturefile.plain(content), np.uint8)
        except OSError as error:
            reasons.append(f"{file} cannot be read: {error.strerror}")
        except BadImage as error:
            reasons.append(f"{file} {error}")
    try:
        images = decode(list(contents.values()), to, threads) if contents else None
    except RuntimeError:
        options, samples = PipelineOptions(training=False, threads=threads), list(contents.values())
        faulty = dict(undecodable(to, options, [(sample, NO_LABEL, None) for sample in samples]))
        if not faulty:  # the error has another cause
            raise
        names = list(contents)
        reasons += [f"{names[number]} {text}" for number, text in faulty.items()]
        for number in faulty:
            del contents[names[number]]
        images = decode(list(contents.values()), to, threads) if contents else None
    return list(contents), images, reasons


def decode(encoded: list[Bytes], to: Preprocessing, threads: int) -> Tensor:
    """Return encoded images as input of the network, (N, C, H, W).

    Raises:
        RuntimeError: DALI cannot decode one of the images.
    """
    source = iter([(encoded, np.stack([NO_LABEL] * len(encoded)))])  # a single batch
    options = PipelineOptions(training=False, threads=threads)
    producer = Producer(to, [source], options, batch=len(encoded), ahead=0)
    try:
        return producer.next()[0]
    finally:
        producer.close()


@torch.inference_mode()
def probabilities(network: nn.Module, images: Tensor) -> Tensor:
    """Return the class probabilities (N, classes) by `network` in evaluation mode, in fp32."""
    network.eval()
    probability: Tensor = network(images).softmax(dim=1)
    return probability


def best_classes(
    files: Sequence[str], probability: Tensor, classes: Sequence[str], top: int
) -> Iterator[Answer]:
    """Yield the `top` most likely classes of each file from `probability` (N, classes)."""
    best = probability.topk(min(top, len(classes)))
    for file, values, numbers in zip(files, best.values, best.indices, strict=True):
        pairs = zip(values.tolist(), numbers.tolist(), strict=True)
        found = [{"class": classes[number], "probability": value} for value, number in pairs]
        yield {"file": file, "classes": found}


def write(answers: Iterator[Answer], *, as_json: bool) -> None:
    """Print each of `answers` as soon as it is available, as lines or as one JSON array.

    If the output is a pipe whose reader ends early, such as `head`, this function ends, too,
    without an error.
    """
    try:
        if as_json:
            separator = "[\n"
            for answer in answers:
                print(f"{separator}{json.dumps(answer)}", end="")
                separator = ",\n"
            print("\n]" if separator == ",\n" else "[]")
        else:
            for answer in answers:
                print(answer["file"])
                for found in answer["classes"]:
                    print(f"  {found['probability']:7.2%}  {found['class']}")
        sys.stdout.flush()
    except BrokenPipeError:
        mute(sys.stdout)
