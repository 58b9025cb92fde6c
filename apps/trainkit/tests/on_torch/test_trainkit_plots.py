"""Tests of the pictures of runs of any length and state, and of the errors of `plot`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from trainkit import curves, metrics, plots
from trainkit.common_options import PlotSettings
from trainkit.curves import Curve
from trainkit.exits import ArgumentError, DataError
from trainkit.metrics import MetricsLog
from trainkit.plots import Look, Panel
from trainkit.testing.refusals import refused

LOOK = Look(
    panels=(
        Panel("score, %", ("score",), 100),
        Panel("rate", ("rate",), bottom=0),
        Panel("speed", (metrics.THROUGHPUT,)),
        *(Panel(f"nothing {number}", ("nothing",)) for number in range(3)),
    ),
    noisy=frozenset({metrics.THROUGHPUT}),
    dotted=frozenset({"score"}),
    best=("score", "best score {:.2%}"),
)


def write(folder: Path, epochs: Iterable[int], status: str | None = None) -> Path:
    """Write the metrics of the epochs `epochs`, with 10 steps each, and return the folder."""
    folder.mkdir(parents=True)
    with MetricsLog(folder / "metrics.jsonl") as log:
        for epoch in epochs:
            log.start(metrics.EPOCH_START, epoch_num=epoch, step=10 * epoch - 10, steps=10)
            where = {"epoch_num": epoch, "step": 10 * epoch}
            for key in ("score", "rate", metrics.THROUGHPUT):
                log.event(key, 1 / (1 + epoch), **where)
        if status:
            log.stop(metrics.RUN_STOP, status=status, **where)
    return folder


def panels(*folders: Path) -> dict[str, list[Curve]]:
    """Draw the runs `folders`; return title of each panel -> the curves in it."""
    figure = plots.draw([curves.read(folder) for folder in folders], LOOK)
    return {
        axes.get_title(loc="left"): [
            Curve(tuple(line.get_xdata()), tuple(line.get_ydata())) for line in axes.lines
        ]
        for axes in figure.axes
    }


def draw(*runs: Path, to: Path | None = None) -> None:
    """Draw the curves of runs, as the command `plot` does."""
    settings = PlotSettings(list(runs), to)
    settings.check()
    plots.main(settings, LOOK)


def test_each_metric_has_its_panel_and_unit(tmp_path: Path) -> None:
    drawn = panels(write(tmp_path / "run", (1, 2), metrics.SUCCESS))
    assert drawn["rate"] == [Curve((1.0, 2.0), (1 / 2, 1 / 3))]
    assert drawn["score, %"] == [Curve((1.0, 2.0), (50.0, 1 / 3 * 100))]
    assert drawn["nothing 0"] == [Curve()]


def test_runs_of_different_length_share_the_axes(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a", (1, 2)), write(tmp_path / "b", (1, 2, 3, 4))]
    ends = [curve.epochs[-1] for curve in panels(*runs)["rate"]]
    assert ends == [2.0, 4.0]


@pytest.mark.slow
def test_many_noisy_points_are_drawn_as_means_over_all_of_them(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a", range(1, 3001))]
    faint, means = panels(*runs)["speed"]
    assert len(faint.values) == 3000
    assert len(means.values) == pytest.approx(plots.STRETCHES, abs=1)
    (rate,) = panels(*runs)["rate"]  # has no noise
    assert len(rate.values) == 3000


def test_a_mean_curve_has_the_mean_of_each_stretch() -> None:
    curve = Curve(tuple(n / 4 for n in range(1, 9)), (1.0, 3.0, 5.0, 7.0, 2.0, 4.0, 6.0, 8.0))
    # Epochs .25 .5 .75 | 1 1.25 1.5 1.75 and the lone 2, which joins them.
    assert plots.mean_curve(curve, 1) == Curve((0.5, 1.5), (3.0, 5.4))
    assert plots.mean_curve(curve, 0.25) == curve


def test_the_legend_says_which_run_and_how_far(tmp_path: Path) -> None:
    runs = [
        write(tmp_path / "x" / "a", (1, 2), metrics.SUCCESS),
        write(tmp_path / "x" / "b", (1,), metrics.ABORTED),
        write(tmp_path / "y" / "a", (1, 2, 3)),
    ]
    with MetricsLog(runs[2] / "metrics.jsonl") as log:
        log.event(metrics.RESUMED, 15, step=15)
    assert plots.labels([curves.read(run) for run in runs], LOOK) == [
        "x/a: finished at epoch 2; best score 50.00%",
        "x/b: stopped at epoch 1; best score 50.00%",
        "y/a: epoch 3 so far; continued at 1.5; best score 50.00%",
    ]
    assert plots.names([curves.read(runs[0])]) == ["a"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_the_same_runs_give_the_same_file(tmp_path: Path, suffix: str, start: bytes) -> None:
    runs = [write(tmp_path / "a", (1,)), write(tmp_path / "b", ())]
    files = [tmp_path / f"{n}.{suffix}" for n in (1, 2)]
    for file in files:
        draw(*runs, to=file)
    assert files[0].read_bytes().startswith(start)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_nothing_to_draw_and_nothing_to_overwrite(tmp_path: Path) -> None:
    run = write(tmp_path / "run", ())
    with refused(DataError, "metrics-missing", f"{run}: "):
        draw(run)
    with refused(DataError, "metrics-missing", tmp_path / "metrics.jsonl"):
        draw(tmp_path)
    (tmp_path / "mine.png").write_text("mine")
    with refused(ArgumentError, "file-exists", tmp_path / "mine.png"):
        draw(run, to=tmp_path / "mine.png")
