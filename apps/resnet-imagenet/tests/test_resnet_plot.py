"""The command `plot`: one or several runs, whatever their length and state, as one picture."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from PIL import Image

from resnet_imagenet import plot
from resnet_imagenet.__main__ import main
from trainkit import curves, metrics
from trainkit.curves import Curve
from trainkit.metrics import MetricsLog


def write(folder: Path, epochs: Iterable[int], status: str | None = None) -> Path:
    """Write the metrics of a run of 10 steps an epoch that has come through `epochs`."""
    folder.mkdir(parents=True)
    with MetricsLog(folder / "metrics.jsonl") as log:
        log.event(metrics.GLOBAL_BATCH_SIZE, 10)
        log.event(metrics.TRAIN_SAMPLES, 100)
        for epoch in epochs:
            where = {"epoch_num": epoch, "step": 10 * epoch}
            for key in (*plot.NOISY, *plot.AT_EVALUATION, metrics.LEARNING_RATE):
                log.event(key, 1 / (1 + epoch), **where)
        if status:
            log.stop(metrics.RUN_STOP, status=status, **where)
    return folder


def panels(*folders: Path) -> dict[str, list[Curve]]:
    """Return the title of each panel that is drawn, and its lines."""
    figure = plot.draw([curves.read(folder) for folder in folders])
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


def test_runs_of_different_length_share_the_axes(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a", (1, 2)), write(tmp_path / "b", (1, 2, 3, 4))]
    ends = [curve.epochs[-1] for curve in panels(*runs)["learning rate"]]
    assert ends == [2.0, 4.0]


def test_many_noisy_points_are_drawn_as_means_over_all_of_them(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a", range(1, 3001))]
    faint, means = panels(*runs)["throughput, img/s"]
    assert len(faint.values) == 3000
    assert len(means.values) == pytest.approx(plot.STRETCHES, abs=1)
    (rate,) = panels(*runs)["learning rate"]  # has no noise
    assert len(rate.values) == 3000


def test_a_mean_curve_has_the_mean_of_each_stretch() -> None:
    curve = Curve(tuple(n / 4 for n in range(1, 9)), (1.0, 3.0, 5.0, 7.0, 2.0, 4.0, 6.0, 8.0))
    # Epochs .25 .5 .75 | 1 1.25 1.5 1.75 and the lone 2, which joins them.
    assert plot.mean_curve(curve, 1) == Curve((0.5, 1.5), (3.0, 5.4))
    assert plot.mean_curve(curve, 0.25) == curve


def test_the_legend_says_which_run_and_how_far(tmp_path: Path) -> None:
    runs = [
        write(tmp_path / "x" / "a", (1, 2), metrics.SUCCESS),
        write(tmp_path / "x" / "b", (1,), metrics.ABORTED),
        write(tmp_path / "y" / "a", (1, 2, 3)),
    ]
    with MetricsLog(runs[2] / "metrics.jsonl") as log:
        log.event(metrics.RESUMED, 15, step=15)
    assert plot.labels([curves.read(run) for run in runs]) == [
        "x/a: finished at epoch 2; best top-1 50.00%",
        "x/b: stopped at epoch 1; best top-1 50.00%",
        "y/a: epoch 3 so far; continued at 1.5; best top-1 50.00%",
    ]
    assert plot.names([curves.read(runs[0])]) == ["a"]


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
@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_the_same_runs_give_the_same_file(tmp_path: Path, suffix: str, start: bytes) -> None:
    runs = [str(write(tmp_path / "a", (1,))), str(write(tmp_path / "b", ()))]
    files = [tmp_path / f"{n}.{suffix}" for n in (1, 2)]
    for file in files:
        assert main(["plot", "--out", *runs, "--to", str(file)]) == 0
    assert files[0].read_bytes().startswith(start)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_nothing_to_draw_and_nothing_to_overwrite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write(tmp_path / "run", ())
    assert main(["plot", "--out", str(run)]) == 3
    assert f"{run}: no measurements yet" in capsys.readouterr().err
    assert main(["plot", "--out", str(tmp_path)]) == 3
    assert "metrics.jsonl does not exist" in capsys.readouterr().err
    (tmp_path / "mine.png").write_text("mine")
    assert main(["plot", "--out", str(run), "--to", str(tmp_path / "mine.png")]) == 2
    assert "exists, and nothing is overwritten" in capsys.readouterr().err


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
