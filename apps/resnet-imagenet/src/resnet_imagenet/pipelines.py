"""What happens to an image between its file and the network, as DALI graphs.

Every random decision comes from outside, as uniform draws in 0..1 per sample, and
not from DALI's own generators: so an epoch depends on its seed only, not on the
number of ranks, threads or restarts. `windows` turns draws into windows.

One graph serves both devices. On a GPU it ends with floats that are ready for the
network. On a CPU it ends after decoding, and `host` does the last two steps: DALI's
resampling is several times slower there than PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline

from resnet_imagenet import windows

QUEUE = 2  # batches that DALI prepares ahead


@dataclass(frozen=True)
class Preprocessing:
    """How images become tensors; kept in checkpoints, so that prediction does the same.

    Attributes:
        channels: 1 (grey) or 3 (RGB).
        size: side of the square that the network sees, in pixels.
        mean: per channel, of values in 0..1.
        std: per channel, of values in 0..1.
        native: (height, width) of a set of small images of one size, which are used
            whole; None for photographs, which are cropped.
    """

    channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    native: tuple[int, int] | None

    @property
    def mode(self) -> Any:
        """Return DALI's name of the colour mode."""
        return types.GRAY if self.channels == 1 else types.RGB


@dataclass(frozen=True)
class Way:
    """How a graph is to be run.

    Attributes:
        training: augment, else take the centre of each image.
        scale_augmentation: augment photographs in scale and aspect ratio; False takes a
            random square of one scale (see `windows.plain_windows`).
        device: "cpu", or "gpu" to decode on the CPU and the GPU ("mixed") and to do
            everything else there.
        device_id: which GPU.
        threads: threads for decoding, on a CPU also for resizing.
    """

    training: bool
    scale_augmentation: bool = True
    device: str = "cpu"
    device_id: int = 0
    threads: int = 1


def pipeline(to: Preprocessing, source: Iterator[Any], way: Way, *, batch: int) -> Pipeline:
    """Return a pipeline over the batches of `source`.

    Its outputs are, on a GPU, (images NHWC as floats, labels); on a CPU (images as bytes
    HWC, each of its own size, whether to mirror it, labels).

    Args:
        to: the wanted tensors.
        source: yields (list of encoded images, labels (n, 1)) and, for training, draws
            (n, DRAWS); the image bytes are not copied and must stay valid.
        way: device, threads, augmentation.
        batch: the largest n.
    """
    gpu = way.device == "gpu"
    device = way.device_id if gpu else None
    pipe = Pipeline(batch, way.threads, device_id=device, prefetch_queue_depth=QUEUE, seed=0)
    kinds = [types.UINT8, types.INT64, types.FLOAT][: 3 if way.training else 2]
    with pipe:
        encoded, labels, *draws = fn.external_source(
            source=source,
            num_outputs=len(kinds),
            no_copy=True,
            dtype=kinds,
            ndim=[1] * len(kinds),
        )
        decode = photographs if to.native is None else small_images
        images = decode(encoded, draws, to, way)
        mirror = fn.constant(idata=[0], dtype=types.INT32)
        if way.training:
            mirror = in_numpy(windows.mirrored, *draws, outputs=1)
        if gpu:
            pipe.set_outputs(normalized(images, to, mirror), labels.gpu())
        else:
            pipe.set_outputs(images, mirror, labels)
    pipe.build()
    return pipe


def decoding(source: Iterator[Any]) -> Pipeline:
    """Return a pipeline that decodes lists of one image file, and nothing else."""
    pipe = Pipeline(1, 1, device_id=None, prefetch_queue_depth=1)
    with pipe:
        encoded = fn.external_source(source=source, dtype=types.UINT8, ndim=1, no_copy=True)
        pipe.set_outputs(fn.decoders.image(encoded, output_type=types.ANY_DATA))
    pipe.build()
    return pipe


def photographs(encoded: Any, draws: list[Any], to: Preprocessing, way: Way) -> Any:
    """Return one window of each photograph, the only part that is decoded."""
    if not way.training:
        choose: Any = windows.centre_windows
    else:
        choose = windows.random_windows if way.scale_augmentation else windows.plain_windows
    start, shape = in_numpy(choose, fn.peek_image_shape(encoded), *draws, outputs=2)
    return fn.decoders.image_slice(
        encoded, start=start, shape=shape, axes=[0, 1], output_type=to.mode, device=decoder(way)
    )


def small_images(encoded: Any, draws: list[Any], to: Preprocessing, way: Way) -> Any:
    """Return whole small images, for training padded and cropped to their size.

    He et al., arXiv:1512.03385, section 4.2.
    """
    images = fn.decoders.image(encoded, output_type=to.mode, device=decoder(way))
    if not way.training:
        return images
    start = in_numpy(windows.padded_starts, *draws, outputs=1)
    return fn.slice(images, start=start, shape=to.native, axes=[0, 1], out_of_bounds_policy="pad")


def decoder(way: Way) -> str:
    """Return DALI's name of the device that decodes."""
    return "mixed" if way.device == "gpu" else "cpu"


def in_numpy(function: Callable[..., Any], *inputs: Any, outputs: int) -> Any:
    """Return nodes of `function`, which takes and returns arrays with a row per sample."""

    def run(*samples: Sequence[NDArray[Any]]) -> Any:
        results = function(*(np.stack(values) for values in samples))
        return list(results) if outputs == 1 else tuple(list(rows) for rows in results)

    return fn.python_function(
        *inputs, function=run, num_outputs=outputs, batch_processing=True, device="cpu"
    )


def normalized(images: Any, to: Preprocessing, mirror: Any) -> Any:
    """Return images of `to.size` squared as floats with mean 0 and deviation 1, HWC."""
    images = fn.resize(images, size=[to.size, to.size], antialias=True)
    return fn.crop_mirror_normalize(
        images,
        mirror=mirror,
        mean=[255 * value for value in to.mean],
        std=[255 * value for value in to.std],
        dtype=types.FLOAT,
        output_layout="HWC",
    )
