"""The command `evaluate`: for each future frame, the scores of a checkpoint and two baselines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from futuregan import clips, restore, scores
from futuregan.clips import Source
from futuregan.restore import Restored
from futuregan.scores import METHODS, Scores, ScoreSums
from futuregan.settings import EvaluateSettings
from trainkit import plots
from trainkit.console import Counter
from trainkit.torch.start import start

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD_NAMES = {"prediction": "prediction", "copy_last": "last frame repeated", "linear": "linear"}
MEASURE_NAMES = {
    "mse": ("MSE, x 1000", 1000.0, 2), "psnr": ("PSNR, dB", 1.0, 2), "ssim": ("SSIM", 1.0, 3),
    "ms_ssim": ("MS-SSIM", 1.0, 3), "sharpness": ("sharpness (truth: 1)", 1.0, 3),
}
"""Measure -> name with unit, factor to that unit, and number of decimals to print."""
MAX_COLUMNS = 12  # largest number of frames in the table


def main(settings: EvaluateSettings) -> None:
    """Print the scores of a checkpoint on a split; draw them if `settings.plot` is given.

    Raises:
        DataError: the run has no checkpoint, or the data has no sequences that are long enough.
    """
    assert settings.data is not None  # noqa: S101 - `settings.check` refuses None
    strategy = start("single", device=settings.device)
    model = restore.open_generator(settings.out, settings.checkpoint, strategy.device)
    frames = settings.long or model.future
    split = settings.split or clips.describe_data(settings.data)[2]
    source = clips.open_clips(
        settings.data, split, model.past, frames, model.size, model.channels, settings.stride,
        settings.every or model.every,
    )
    sums = ScoreSums(model.size, frames, strategy.device)
    with Counter("evaluating", len(source), "clips", stream=sys.stderr) as done:
        for batch in clip_batches(source, settings.batch_size, strategy.device):
            past, truth = batch.tensor_split([model.past], 2)
            sums.add(model.predict(past, frames), past, truth)
            done.add(len(batch))
    result = sums.mean_over(strategy)
    if settings.plot is not None:
        with plots.drawing():
            plots.save(draw(result, model), settings.plot)
    if settings.json:
        print(json.dumps(json_document(result, model, split)))
    else:
        print(f"{split}: {len(source)} clips, {frames} frames from {model.past}, "
              f"{model.size}x{model.size} pixels, step {model.step}")
        print("\n".join(table(result)))
        if settings.plot is not None:
            print(settings.plot)


def clip_batches(source: Source, size: int, device: torch.device) -> Iterator[Tensor]:
    """Yield all clips as input of the networks, (n, C, T, H, W) in -1..1, in batches of `size`."""
    for first in range(0, len(source), size):
        numbers = range(first, min(first + size, len(source)))
        values = torch.from_numpy(np.stack([source.read(number) for number in numbers]))
        yield values.to(device).permute(0, 4, 1, 2, 3).float().div(127.5).sub(1)


def json_document(result: Scores, model: Restored, split: str) -> dict[str, Any]:
    """Return the scores as a JSON document."""
    return {
        "split": split, "clips": result.clips, "size": model.size, "step": model.step,
        "ms_ssim_scales": scores.scales(model.size),
        "scores": {
            method: {
                measure: {"mean": result.mean(method, measure), "frames": values}
                for measure, values in measures.items()
            }
            for method, measures in result.frames.items()
        },
    }


def table(result: Scores) -> Iterator[str]:
    """Yield the lines of a table: mean scores over all frames, and scores of up to 12 frames."""
    count = len(result.frames[METHODS[0]]["mse"])
    shown = sorted({round(at) for at in np.linspace(0, count - 1, min(count, MAX_COLUMNS))})
    header = "".join(f"{at + 1:>8}" for at in shown)
    for measure in result.measures:
        name, factor, digits = MEASURE_NAMES[measure]
        if measure == "ms_ssim":
            name += f" (scales: {scores.scales(result.size)})"
        yield ""
        yield f"{name:<22}{'mean':>8}{header}"
        for method in METHODS:
            values = [result.mean(method, measure)]
            values += [result.frames[method][measure][at] for at in shown]
            cells = "".join(f"{value * factor:>8.{digits}f}" for value in values)
            yield f"  {METHOD_NAMES[method]:<20}{cells}"


def draw(result: Scores, model: Restored) -> Figure:
    """Return a figure that plots each measure over the future frames, one line per method."""
    import matplotlib as mpl
    from matplotlib.figure import Figure  # not pyplot, which requires a display

    mpl.rcParams["svg.hashsalt"] = "trimaran"  # equal scores give equal files
    shown = [name for name in ("psnr", "ssim", "sharpness") if name in result.measures]
    figure = Figure(figsize=(4 * len(shown), 3.6), dpi=120, layout="constrained")
    for axes, measure in zip(figure.subplots(1, len(shown)), shown, strict=True):
        axes.set_title(MEASURE_NAMES[measure][0], fontsize="medium", loc="left")
        axes.set_xlabel("frame of the future")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        for method, colour in zip(METHODS, plots.COLOURS, strict=False):
            values = result.frames[method][measure]
            axes.plot(range(1, len(values) + 1), values, color=colour, label=METHOD_NAMES[method],
                      marker="o" if len(values) <= 2 * MAX_COLUMNS else None, markersize=3)
        if len(values) > model.future:  # later frames are predicted from predicted frames
            axes.axvline(model.future + 0.5, color="grey", linewidth=0.8, linestyle="dotted")
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    return figure
