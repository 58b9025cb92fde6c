"""DALI graphs from an encoded image to the input of the network.

All random decisions are inputs: uniform draws in 0..1 for each sample, not numbers from DALI's
generators. Therefore an epoch depends only on its seed, and not on the number of ranks, threads or
restarts. `crop_windows` converts the draws to windows.

One function builds the graph for both devices. On a GPU the graph returns floats for the network.
On a CPU the graph ends after decoding, and `cpu_transforms` resizes and normalizes, because on CPUs
the resampling of DALI is several times slower than the resampling of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline

from resnet_imagenet import crop_windows

QUEUE = 2  # batches that DALI prepares in advance


@dataclass(frozen=True)
class Preprocessing:
    """The conversion of images to tensors; checkpoints contain it for later predictions.

    Attributes:
        channels: number of channels, 1 (grey) or 3 (RGB).
        size: side of the network's square input, in pixels.
        mean: mean of each channel, for values in 0..1.
        std: standard deviation of each channel, for values in 0..1.
        native: (height, width) of a data set of small images of one size, which are not cropped;
            None for photographs, which are cropped.
    """

    channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    native: tuple[int, int] | None

    @property
    def mode(self) -> Any:
        """DALI's constant for the colour mode."""
        return types.GRAY if self.channels == 1 else types.RGB


@dataclass(frozen=True)
class PipelineOptions:
    """Options of a DALI pipeline.

    Attributes:
        training: whether to augment images; otherwise the centre of each image is used.
        scale_augmentation: whether to augment scale and aspect ratio of photographs; otherwise
            random squares of constant scale are used (see `crop_windows.plain_windows`).
        device: "cpu" or "gpu". With "gpu", CPU and GPU decode together (DALI's "mixed"), and the
            GPU does the rest.
        device_id: number of the GPU.
        threads: number of threads that decode, and on a CPU also resize.
    """

    training: bool
    scale_augmentation: bool = True
    device: str = "cpu"
    device_id: int = 0
    threads: int = 1


def pipeline(
    to: Preprocessing, source: Iterator[Any], options: PipelineOptions, *, batch: int
) -> Pipeline:
    """Return a pipeline over the batches of `source`.

    Its outputs on a GPU are (images NHWC as floats, labels). On a CPU they are (images HWC as
    bytes, each of its own size; whether to mirror each image; labels).

    Args:
        to: the preprocessing.
        source: iterator over batches. A batch consists of a list of n encoded images, their labels
            (n, 1) and, for training, the random numbers of their augmentation (n, DRAWS). The
            images are not copied and must stay in memory.
        options: device, threads, augmentation.
        batch: largest value of n.
    """
    gpu = options.device == "gpu"
    device = options.device_id if gpu else None
    pipe = Pipeline(batch, options.threads, device_id=device, prefetch_queue_depth=QUEUE, seed=0)
    kinds = [types.UINT8, types.INT64, types.FLOAT][: 3 if options.training else 2]
    with pipe:
        encoded, labels, *draws = fn.external_source(
            source=source,
            num_outputs=len(kinds),
            no_copy=True,
            dtype=kinds,
            ndim=[1] * len(kinds),
        )
        decode = photographs if to.native is None else small_images
        images = decode(encoded, draws, to, options)
        mirror = fn.constant(idata=[0], dtype=types.INT32)
        if options.training:
            mirror = in_numpy(crop_windows.mirrored, *draws, outputs=1)
        if gpu:
            pipe.set_outputs(normalized(images, to, mirror), labels.gpu())
        else:
            pipe.set_outputs(images, mirror, labels)
    pipe.build()
    return pipe


def decoding(source: Iterator[Any]) -> Pipeline:
    """Return a DALI pipeline that only decodes, to find out whether an image file is decodable.

    `source` yields lists of one image file.
    """
    pipe = Pipeline(1, 1, device_id=None, prefetch_queue_depth=1)
    with pipe:
        encoded = fn.external_source(source=source, dtype=types.UINT8, ndim=1, no_copy=True)
        pipe.set_outputs(fn.decoders.image(encoded, output_type=types.ANY_DATA))
    pipe.build()
    return pipe


def photographs(encoded: Any, draws: list[Any], to: Preprocessing, options: PipelineOptions) -> Any:
    """Return one window of each photograph; only the window is decoded."""
    if not options.training:
        choose: Any = crop_windows.centre_windows
    elif options.scale_augmentation:
        choose = crop_windows.random_windows
    else:
        choose = crop_windows.plain_windows
    start, shape = in_numpy(choose, fn.peek_image_shape(encoded), *draws, outputs=2)
    return fn.decoders.image_slice(
        encoded, start=start, shape=shape, axes=[0, 1], output_type=to.mode, device=decoder(options)
    )


def small_images(
    encoded: Any, draws: list[Any], to: Preprocessing, options: PipelineOptions
) -> Any:
    """Return small images: whole in an evaluation; in a training padded, then randomly cropped.

    The crop has the original size: He et al., arXiv:1512.03385, section 4.2.
    """
    images = fn.decoders.image(encoded, output_type=to.mode, device=decoder(options))
    if not options.training:
        return images
    start = in_numpy(crop_windows.padded_starts, *draws, outputs=1)
    return fn.slice(images, start=start, shape=to.native, axes=[0, 1], out_of_bounds_policy="pad")


def decoder(options: PipelineOptions) -> str:
    """Return DALI's name for the device that decodes."""
    return "mixed" if options.device == "gpu" else "cpu"


def in_numpy(function: Callable[..., Any], *inputs: Any, outputs: int) -> Any:
    """Return a graph node that applies `function` to NumPy arrays with one row for each sample."""

    def run(*samples: Sequence[NDArray[Any]]) -> Any:
        results = function(*(np.stack(values) for values in samples))
        return list(results) if outputs == 1 else tuple(list(rows) for rows in results)

    return fn.python_function(
        *inputs, function=run, num_outputs=outputs, batch_processing=True, device="cpu"
    )


def normalized(images: Any, to: Preprocessing, mirror: Any) -> Any:
    """Return images of side `to.size` as normalized floats, HWC."""
    images = fn.resize(images, size=[to.size, to.size], antialias=True)
    return fn.crop_mirror_normalize(
        images,
        mirror=mirror,
        mean=[255 * value for value in to.mean],
        std=[255 * value for value in to.std],
        dtype=types.FLOAT,
        output_layout="HWC",
    )
