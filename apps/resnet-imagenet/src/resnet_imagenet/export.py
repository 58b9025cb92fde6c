"""The command `export`: write a trained network as ONNX or TorchScript, and check the file.

The file contains everything that its use requires: weights, classes and preprocessing. It appears
under its name only after its outputs were compared with the outputs of the original network.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import itertools
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from resnet_imagenet.crop_windows import CENTRE
from resnet_imagenet.data import Loader
from resnet_imagenet.evaluate import restore_network
from resnet_imagenet.pipelines import PipelineOptions, Preprocessing
from resnet_imagenet.settings import DALI_THREADS, ExportSettings
from trainkit import atomic, outputs
from trainkit.checkpoint import State
from trainkit.data.dataset import open_dataset
from trainkit.exits import ArgumentError, DataError
from trainkit.progress import Progress
from trainkit.provenance import versions
from trainkit.torch.strategy import TorchStrategy

OPSET = 20  # of the exporter; a conversion to another opset fails for some operators
TOLERANCE = 1e-4
"""Largest accepted difference of two logits, divided by max(1, largest logit).

It is about ten times the effect of another order of summation in fp32 on a ResNet.
"""
BATCH = 16  # images per batch of the comparison
IMAGES = 64  # number of images of --data in the comparison
PACKAGES = ("torch", "onnx", "onnxscript", "resnet-imagenet")

Answer = Callable[[Tensor], Tensor]
"""Function from images (N, C, H, W) to logits (N, classes)."""


def main(settings: ExportSettings) -> None:
    """Write the network of a checkpoint to a new file, if the exported network has equal outputs.

    The largest difference between the outputs of the exported and the original network is printed.

    Raises:
        DataError: the outputs differ by more than rounding can explain. No file is written.
    """
    assert settings.to is not None  # noqa: S101 - `settings.check` refuses None
    if settings.format == "onnx":
        need_onnx()
    state = outputs.load_trained(settings.out, settings.checkpoint)
    network, to, description = restore_network(state)
    to = dataclasses.replace(to, size=settings.image_size or to.size)
    network.eval()
    facts = metadata(state, to, description)
    encode, load = {"onnx": (onnx_file, load_onnx), "torchscript": (script_file, load_script)}[
        settings.format
    ]
    with atomic.replacing(settings.to) as file:
        with quiet():
            content = encode(network, to, facts)
            exported = load(content)
        comparisons = {"random": compare(network, exported, random_images(to))}
        if settings.data is not None:
            images = real_images(settings.data, to)
            comparisons[str(settings.data)] = compare(network, exported, images)
        for name, comparison in comparisons.items():
            print(f"{name}: {comparison}")
            if comparison.difference > comparison.allowed:
                raise DataError(
                    f"the exported network differs from the original: {comparison}; "
                    f"{settings.to} is not written",
                    code="export-differs",
                )
        file.write(content)
    shape = f"(any number, {to.channels}, {to.size}, {to.size})"
    print(f"{settings.to}  {description['model']}, {len(content) / 1e6:.1f} MB, images {shape}")


def need_onnx() -> None:
    """Raise an error if a package for ONNX is missing, as in the container images for GPUs.

    Raises:
        ArgumentError: a package is missing; the message names it.
    """
    needed = ("onnx", "onnxscript", "onnxruntime")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ArgumentError(
            f"export to ONNX needs {', '.join(missing)}, not installed here; "
            "export with the CPU image, whose checkpoints are the same",
            code="library-missing",
        )


def metadata(state: State, to: Preprocessing, description: dict[str, Any]) -> dict[str, str]:
    """Return the metadata of the exported file, which describe its network: name -> JSON text.

    Args:
        state: content of the checkpoint.
        to: the preprocessing that converts images to inputs of the network.
        description: description of the network in the checkpoint.
    """
    at, side = state["progress"], [to.size, to.size]
    facts = {
        "model": description["model"],
        "classes": description["classes"],
        "preprocessing": {
            "mode": "L" if to.channels == 1 else "RGB",
            **({} if to.native else {"centre_square": CENTRE}),  # side of the window / shorter side
            "resize": side,
            "formula": "(pixel / 255 - mean) / std",
            "mean": to.mean,
            "std": to.std,
            "layout": "NCHW",
            "dtype": "float32",
        },
        "training_step": Progress.of(at).steps_done,
        "versions": versions(PACKAGES),
    }
    return {key: json.dumps(value) for key, value in facts.items()}


def onnx_file(network: nn.Module, to: Preprocessing, facts: dict[str, str]) -> bytes:
    """Return `network` as an ONNX file with its weights and with `facts` as metadata.

    The input is named `images`, the output `logits`.
    """
    program = torch.onnx.export(
        network,
        (torch.zeros(2, to.channels, to.size, to.size),),  # a batch of 1 would become a constant
        input_names=["images"],
        output_names=["logits"],
        dynamic_shapes={"images": {0: "batch"}},
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    assert program is not None  # noqa: S101 - None is returned only for exports to a file
    model = program.model_proto
    parts = (model.graph.node, model.graph.input, model.graph.output, model.graph.value_info)
    for part in itertools.chain(*parts, model.graph.initializer):
        part.ClearField("metadata_props")  # they contain paths of source files
    for key, value in facts.items():
        model.metadata_props.add(key=key, value=value)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def load_onnx(content: bytes) -> Answer:
    """Return the network in an ONNX file as a function that runs ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])

    def answer(images: Tensor) -> Tensor:
        (logits,) = session.run(["logits"], {"images": images.contiguous().numpy()})
        return torch.from_numpy(logits)

    return answer


def script_file(network: nn.Module, to: Preprocessing, facts: dict[str, str]) -> bytes:
    """Return `network` as a TorchScript file, made by tracing.

    The file contains each of `facts` as an extra file *.json.
    """
    example = torch.zeros(2, to.channels, to.size, to.size)
    traced = torch.jit.trace(  # type: ignore[no-untyped-call]
        network, example, check_trace=False,  # `compare` checks the outputs
    )
    buffer = io.BytesIO()
    extra = {f"{key}.json": value for key, value in facts.items()}
    torch.jit.save(traced, buffer, _extra_files=extra)
    return buffer.getvalue()


def load_script(content: bytes) -> Answer:
    """Return the network in a TorchScript file as a function that runs PyTorch."""
    loaded: Answer = torch.jit.load(  # type: ignore[no-untyped-call]
        io.BytesIO(content)
    )
    return loaded


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings of the exporters about their own components.

    They warn that torchvision, which is not used here, is missing; that PyTorch uses deprecated
    functions; and that torch.export supersedes TorchScript. TorchScript is still needed where
    LibTorch or Triton cannot read files of torch.export.
    """
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def random_images(to: Preprocessing) -> Iterator[Tensor]:
    """Yield two batches of different sizes with normally distributed values."""
    generator = torch.Generator().manual_seed(0)
    for size in (BATCH, 1):
        yield torch.randn(size, to.channels, to.size, to.size, generator=generator)


def real_images(folder: Path, to: Preprocessing) -> Iterator[Tensor]:
    """Yield the first images of the evaluation split of the data set in `folder`."""
    dataset = open_dataset(folder)
    if dataset.channels != to.channels:
        raise DataError(
            f"{folder} has images of {dataset.channels} channels, not {to.channels}",
            code="data-mismatch",
        )
    loader = Loader(
        dataset.records(dataset.evaluation_split()),
        to,
        PipelineOptions(training=False, threads=DALI_THREADS),
        batch_per_rank=BATCH,
        seed=0,
        strategy=TorchStrategy(),
    )
    for images, _ in itertools.islice(loader.epoch(0), IMAGES // BATCH):
        yield images


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The difference between the outputs of the exported and the original network.

    Attributes:
        images: number of compared images.
        difference: largest difference of two logits.
        largest: largest magnitude of a logit.
        agree: number of images for which both networks give the same most likely class.
    """

    images: int
    difference: float
    largest: float
    agree: int

    @property
    def allowed(self) -> float:
        """The largest difference that rounding can explain."""
        return TOLERANCE * max(1.0, self.largest)

    def __str__(self) -> str:
        return (
            f"{self.images} images, logits up to {self.largest:.3g} differ by at most "
            f"{self.difference:.1e} (allowed {self.allowed:.1e}), same top-1 on {self.agree}"
        )


@torch.inference_mode()
def compare(network: nn.Module, exported: Answer, batches: Iterable[Tensor]) -> Comparison:
    """Return the difference between `exported` and `network` over `batches`."""
    images, agree, difference, largest = 0, 0, 0.0, 0.0
    for batch in batches:
        ours, theirs = network(batch), exported(batch)
        images += len(batch)
        agree += int((ours.argmax(1) == theirs.argmax(1)).sum())
        differences = (ours - theirs).abs().nan_to_num(nan=math.inf)  # NaN is never allowed
        difference = max(difference, differences.max().item())
        largest = max(largest, ours.abs().max().item())
    return Comparison(images, difference, largest, agree)
