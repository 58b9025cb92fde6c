"""The command `plot` draws the metrics of a training."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from PIL import Image

from resnet_imagenet.__main__ import CURVES, main
from trainkit import curves, metrics, plots
from trainkit.curves import Curve
from trainkit.metrics import MetricsLog


def write(folder: Path, epochs: Iterable[int], status: str | None = None) -> Path:
    """Write the metrics of a run that has completed `epochs`, with 10 steps per epoch."""
    folder.mkdir(parents=True)
    with MetricsLog(folder / "metrics.jsonl") as log:
        for epoch in epochs:
            log.start(metrics.EPOCH_START, epoch_num=epoch, step=10 * epoch - 10, steps=10)
            where = {"epoch_num": epoch, "step": 10 * epoch}
            for key in (*CURVES.noisy, *CURVES.dotted, metrics.LEARNING_RATE):
                log.event(key, 1 / (1 + epoch), **where)
        if status:
            log.stop(metrics.RUN_STOP, status=status, **where)
    return folder


def panels(*folders: Path) -> dict[str, list[Curve]]:
    """Return title -> lines of each panel that is drawn."""
    figure = plots.draw([curves.read(folder) for folder in folders], CURVES)
    return {
        axes.get_title(loc="left"): [
            Curve(tuple(line.get_xdata()), tuple(line.get_ydata())) for line in axes.lines
        ]
        for axes in figure.axes
    }


def test_each_metric_has_its_panel_and_unit(tmp_path: Path) -> None:
    drawn = panels(write(tmp_path / "run", (1, 2), metrics.SUCCESS))
    assert len(drawn) == 6
    fraction, percent = Curve((1.0, 2.0), (1 / 2, 1 / 3)), Curve((1.0, 2.0), (50.0, 1 / 3 * 100))
    assert drawn["loss: training (line), evaluation (dots)"] == [fraction, fraction]
    assert drawn["learning rate"] == [fraction]
    assert drawn["throughput, img/s"] == [fraction]
    for name in ("evaluation: top-1, %", "evaluation: top-5, %", "time spent waiting for data, %"):
        assert drawn[name] == [percent]


@pytest.mark.slow
def test_a_running_training_is_drawn_again_and_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = write(tmp_path / "run", (1, 2))
    for _ in range(2):
        with (run / "metrics.jsonl").open("a") as file:
            file.write('{"half a li')
        assert main(["plot", "--out", str(run)]) == 0
        assert capfd.readouterr() == (f"{run / 'plot.png'}\n", "")
    with Image.open(run / "plot.png") as picture:
        assert picture.size == (1440, 816)
    assert sorted(path.name for path in run.iterdir()) == ["metrics.jsonl", "plot.png"]


@pytest.mark.slow
def test_the_backend_of_a_notebook_does_not_matter(tmp_path: Path) -> None:
    run = write(tmp_path / "run", [1, 2], "success")
    words = ["plot", "--out", str(run), "--to", str(tmp_path / "plot.png")]
    done = subprocess.run(
        [sys.executable, "-m", "resnet_imagenet", *words], capture_output=True, text=True,
        check=False,
        env={**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plot.png").is_file()
