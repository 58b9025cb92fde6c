"""The command `predict`: findings of X-rays, and the regions that indicate them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from PIL import Image

from chexnet import crops, restore, xray
from chexnet.evaluate import probabilities
from chexnet.findings import NOTICE
from chexnet.restore import Restored
from chexnet.settings import PredictSettings
from trainkit import plots
from trainkit.exits import ArgumentError
from trainkit.tensorflow.start import start

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 3  # number of findings that are drawn by default
HIGHEST = 4.0  # largest height / width of a drawn image
STRONG = 0.5  # smallest evidence for a cell of the box, relative to the maximum

Map = NDArray[np.float32]


@dataclass(frozen=True)
class Prediction:
    """The prediction for one image.

    Attributes:
        path: file of the image.
        image: the image as it was read.
        probabilities: probability of each finding, (findings,).
        maps: evidence for each finding in each pixel of the image, 0..1, (findings, H, W).
        cells: the same evidence in each cell of the network's features, 0..1, (findings, h, w).
    """

    path: Path
    image: Image.Image
    probabilities: NDArray[np.float64]
    maps: Map
    cells: Map

    def most_likely(self, count: int) -> list[int]:
        """Return the indices of the `count` most likely findings, the most likely first."""
        found: list[int] = np.argsort(-self.probabilities, kind="stable")[:count].tolist()
        return found


def main(settings: PredictSettings) -> None:
    """Print the findings of images; draw their regions if `settings.to` is given.

    Raises:
        ArgumentError: the network has no output for a requested finding.
        DataError: the run has no checkpoint, or an image cannot be read.
    """
    ranks = start("single", device=settings.device)
    with tf.device(ranks.device):
        model = restore.open_network(settings.out, settings.checkpoint)
        selected = [_finding_index(model, name) for name in settings.findings or ()]
        predictions = [predict_image(model, path) for path in settings.data or ()]
    if settings.to is not None:
        with plots.drawing():
            plots.save(draw(predictions, model.findings, selected), settings.to)
    if settings.json:
        print(json.dumps({
            "notice": NOTICE, "step": model.step,
            "images": [json_document(prediction, model.findings) for prediction in predictions],
        }))
        return
    for prediction in predictions:
        print(prediction.path)
        for at in selected or prediction.most_likely(len(model.findings)):
            print(f"  {model.findings[at]:<20}{prediction.probabilities[at]:>7.1%}")
    print(NOTICE)
    if settings.to is not None:
        print(settings.to)


def _finding_index(model: Restored, name: str) -> int:
    if name not in model.findings:
        raise ArgumentError(
            f"--findings {name}: the network was trained on {', '.join(model.findings)}",
            code="argument-invalid",
        )
    return model.findings.index(name)


def predict_image(model: Restored, path: Path) -> Prediction:
    """Return the prediction for the image in a file.

    Raises:
        DataError: the image cannot be read.
    """
    image = xray.read(path, model.channels)
    logits, maps = model.maps(crops.crop_and_resize(
        tf.constant(resize_as_packed(image, model)), tf.constant([crops.WHOLE]), model.size
    )[0])
    upscaled = np.stack([
        np.asarray(Image.fromarray(cells).resize(image.size, Image.Resampling.BICUBIC))
        for cells in maps.numpy()
    ])
    return Prediction(path, image, probabilities(logits.numpy().astype(float)),
                _relative(np.clip(upscaled, 0, None)), _relative(maps.numpy()))


def resize_as_packed(image: Image.Image, model: Restored) -> NDArray[np.uint8]:
    """Return the pixels of an image, scaled to the size of the packed training images.

    Without this step, the network would get only about every tenth pixel of an X-ray of 2,000
    pixels. The filter is the same as in `trimaran data pack`.
    """
    if model.packed is not None and image.size != model.packed:
        image = image.resize(model.packed, Image.Resampling.BICUBIC)
    return np.asarray(image).reshape(image.height, image.width, model.channels)


def _relative(maps: Map) -> Map:
    """Return each map divided by its maximum; a map without any evidence stays 0."""
    most = maps.max((1, 2), keepdims=True)
    found: Map = np.divide(maps, most, out=np.zeros_like(maps), where=most > 0)
    return found


def bounding_box(found: Map) -> list[int] | None:
    """Return the box around the strong evidence in a map: left, top, right and bottom in pixels.

    The result is None if the map has no evidence.
    """
    rows, columns = np.nonzero(found > STRONG)
    if not len(rows):
        return None
    return [int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1]


def json_document(prediction: Prediction, findings: tuple[str, ...]) -> dict[str, Any]:
    """Return the prediction for an image as a JSON document.

    Regions are in pixels of the image. A map is a list of rows of cells; the cells divide the image
    evenly.
    """
    return {
        "file": str(prediction.path),
        "width": prediction.image.width, "height": prediction.image.height,
        "findings": {
            name: {
                "probability": float(prediction.probabilities[at]),
                "region": bounding_box(prediction.maps[at]),
                "map": np.round(prediction.cells[at], 3).astype(float).tolist(),
            }
            for at, name in enumerate(findings)
        },
    }


def draw(
    predictions: Sequence[Prediction], findings: tuple[str, ...], selected: Sequence[int]
) -> Figure:
    """Return a figure with a row for each image: first the plain image, then the maps of findings.

    Each map is drawn over the image. `selected` contains the numbers of the findings; if it is
    empty, the most likely findings of each image are drawn.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure  # pyplot would require a display

    mpl.rcParams["svg.hashsalt"] = "trimaran"  # equal maps give equal files
    columns = 1 + (len(selected) or min(SHOWN, len(findings)))
    images = [prediction.image for prediction in predictions]
    heights = [min(image.height / image.width, HIGHEST) for image in images]
    inches = sum(2.6 * height + 0.3 for height in heights) + 0.3
    figure = Figure(figsize=(2.6 * columns, inches), dpi=120, layout="constrained")
    rows = figure.subplots(len(predictions), columns, squeeze=False, height_ratios=heights)
    for prediction, places in zip(predictions, rows, strict=True):
        which = list(selected) or prediction.most_likely(columns - 1)
        for axes, at in zip(places, [None, *which], strict=True):
            axes.imshow(prediction.image, cmap="gray")
            axes.set_axis_off()
            title = prediction.path.name[:28]
            if at is not None:
                title = f"{findings[at]} {prediction.probabilities[at]:.0%}"
                evidence = prediction.maps[at]
                axes.imshow(evidence, cmap="inferno", alpha=0.6 * evidence, vmin=0, vmax=1)
            axes.set_title(title, fontsize="small")
    figure.supxlabel(NOTICE, fontsize="x-small", color="grey")
    return figure
