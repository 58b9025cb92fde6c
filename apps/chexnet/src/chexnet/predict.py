"""Findings of X-rays, and which regions speak for them: the command `predict`."""

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

SHOWN = 3  # findings that are drawn unless others are asked for
HIGHEST = 4.0  # of a drawn image, in parts of its width: a strip would be too high to draw
STRONG = 0.5  # of the largest value: what is inside of the box

Map = NDArray[np.float32]


@dataclass(frozen=True)
class Seen:
    """What the network says of one image.

    Attributes:
        path: its file.
        image: as it was read.
        probabilities: of the findings.
        maps: which regions speak for each, from 0 to 1, (findings, H, W) of the image.
        cells: the same as the network made them, of its coarse cells, (findings, h, w).
    """

    path: Path
    image: Image.Image
    probabilities: NDArray[np.float64]
    maps: Map
    cells: Map

    def likeliest(self, count: int) -> list[int]:
        """Return so many findings, the likeliest first."""
        found: list[int] = np.argsort(-self.probabilities, kind="stable")[:count].tolist()
        return found


def main(settings: PredictSettings) -> None:
    """Print what a checkpoint finds in images, and draw where it sees that.

    Raises:
        ArgumentError: a finding is none of the network's.
        DataError: there is no checkpoint, or an image cannot be read.
    """
    ranks = start("single", device=settings.device)
    with tf.device(ranks.device):
        model = restore.open_network(settings.out, settings.checkpoint)
        asked = [_number(model, name) for name in settings.findings or ()]
        seen = [look(model, path) for path in settings.data or ()]
    if settings.to is not None:
        with plots.drawing():
            plots.save(draw(seen, model.findings, asked), settings.to)
    if settings.json:
        print(json.dumps({
            "notice": NOTICE, "step": model.step,
            "images": [document(one, model.findings) for one in seen],
        }))
        return
    for one in seen:
        print(one.path)
        for at in asked or one.likeliest(len(model.findings)):
            print(f"  {model.findings[at]:<20}{one.probabilities[at]:>7.1%}")
    print(NOTICE)
    if settings.to is not None:
        print(settings.to)


def _number(model: Restored, name: str) -> int:
    if name not in model.findings:
        raise ArgumentError(
            f"--findings {name}: the network was trained on {', '.join(model.findings)}"
        )
    return model.findings.index(name)


def look(model: Restored, path: Path) -> Seen:
    """Return what the network says of the image in a file.

    Raises:
        DataError: it cannot be read.
    """
    image = xray.read(path, model.channels)
    logits, maps = model.maps(crops.scaled(
        tf.constant(packed(image, model)), tf.constant([crops.WHOLE]), model.size
    )[0])
    grown = np.stack([
        np.asarray(Image.fromarray(one).resize(image.size, Image.Resampling.BICUBIC))
        for one in maps.numpy()
    ])
    return Seen(path, image, probabilities(logits.numpy().astype(float)),
                _relative(np.clip(grown, 0, None)), _relative(maps.numpy()))


def packed(image: Image.Image, model: Restored) -> NDArray[np.uint8]:
    """Return the pixels of an image, scaled as those that the network was trained on were packed.

    Without that, an X-ray of 2,000 pixels would lose all but every tenth of them. The filter is
    that of `trimaran data pack`.
    """
    if model.packed is not None and image.size != model.packed:
        image = image.resize(model.packed, Image.Resampling.BICUBIC)
    return np.asarray(image).reshape(image.height, image.width, model.channels)


def _relative(maps: Map) -> Map:
    """Return each map in parts of its largest value; 0 where nothing speaks for a finding."""
    most = maps.max((1, 2), keepdims=True)
    found: Map = np.divide(maps, most, out=np.zeros_like(maps), where=most > 0)
    return found


def box(found: Map) -> list[int] | None:
    """Return left, top, right, bottom of what speaks strongly for a finding; None: nothing does."""
    rows, columns = np.nonzero(found > STRONG)
    if not len(rows):
        return None
    return [int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1]


def document(seen: Seen, findings: tuple[str, ...]) -> dict[str, Any]:
    """Return what is said of one image for machines.

    Regions are in its pixels; a map has rows of cells, which divide the image evenly.
    """
    return {
        "file": str(seen.path), "width": seen.image.width, "height": seen.image.height,
        "findings": {
            name: {"probability": float(seen.probabilities[at]), "region": box(seen.maps[at]),
                   "map": np.round(seen.cells[at], 3).astype(float).tolist()}
            for at, name in enumerate(findings)
        },
    }


def draw(seen: Sequence[Seen], findings: tuple[str, ...], asked: Sequence[int]) -> Figure:
    """Return the figure: a row for each image, itself and a map over it for each finding."""
    import matplotlib as mpl
    from matplotlib.figure import Figure  # not pyplot, which looks for a display

    mpl.rcParams["svg.hashsalt"] = "trimaran"  # the same maps give the same file
    columns = 1 + (len(asked) or min(SHOWN, len(findings)))
    heights = [min(one.image.height / one.image.width, HIGHEST) for one in seen]
    inches = sum(2.6 * height + 0.3 for height in heights) + 0.3
    figure = Figure(figsize=(2.6 * columns, inches), dpi=120, layout="constrained")
    rows = figure.subplots(len(seen), columns, squeeze=False, height_ratios=heights)
    for one, places in zip(seen, rows, strict=True):
        which = list(asked) or one.likeliest(columns - 1)
        for axes, at in zip(places, [None, *which], strict=True):
            axes.imshow(one.image, cmap="gray")
            axes.set_axis_off()
            title = one.path.name[:28]
            if at is not None:
                title = f"{findings[at]} {one.probabilities[at]:.0%}"
                axes.imshow(one.maps[at], cmap="inferno", alpha=0.6 * one.maps[at], vmin=0, vmax=1)
            axes.set_title(title, fontsize="small")
    figure.supxlabel(NOTICE, fontsize="x-small", color="grey")
    return figure
