"""The transfer training of CheXNet on two ranks inside the image: scores, and interruptions."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image
from typer.testing import CliRunner

from inside import HOROVODRUN, MPIRUN, inside, run_inside
from trimaran.cli import app
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.launch.specification import Mount
from trimaran.reporting import Silent

STEPS = 6
SMALL = "--synthetic --model small --size 32 --threads 1 --precision fp32 --optimizer sgd"
SHORT = f"{SMALL} --max-steps {STEPS} --log-every 1 --base-lr 0.01 --patience 1".split()
LONG = f"""{SMALL} --epochs 6 --frozen-epochs 1 --base-lr 0.001 --patience 2 --batch-size-per-rank 8
    --checkpoint-every 30 --strategy horovod""".split()
"""Options of a long training on 1,024 images, with 64 steps per epoch."""
LAUNCHERS = {"mpirun": MPIRUN, "horovodrun": HOROVODRUN}
PER_LAYER, STATISTICS = 5, (3, 4)
"""Number of variables of a layer of the model `small`, and positions of its running statistics.

Between two evaluations, the running statistics differ between the ranks.
"""

pytestmark = [
    pytest.mark.trains,
    pytest.mark.engine("apptainer"),
    pytest.mark.timeout(1800),  # the image is built, the first time
    pytest.mark.usefixtures("user_cache"),
]
ranks_by = pytest.mark.parametrize(
    "launcher", ["mpirun", pytest.param("horovodrun", marks=pytest.mark.long)]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def image() -> BuiltImage:
    return Apptainer().build(
        definition.load("chexnet-tensorflow-cpu"), base=None, offline=False, reporter=Silent()
    )


def words(launcher: str | None, *more: str) -> list[str]:
    start = LAUNCHERS[launcher] if launcher else ["python"]
    return [*start, "-m", "chexnet", "train", "--out=/out/run", *more]


def train(out: Path, launcher: str | None, *more: str, bind: Mount | None = None) -> Path:
    """Train in the image to the end, unless an earlier test has done so; return the run."""
    if not (out / "run/result.json").exists():
        out.mkdir(exist_ok=True)
        run_inside(image(), out, words(launcher, *more), *([bind] if bind else []))
    return out / "run"


def values(run: Path, key: str) -> list[Any]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [one["value"] for one in lines if one["key"] == key]


def parts(run: Path) -> dict[str, Any]:
    """Return the newest checkpoint: arrays of the network's body and head, and all other state."""
    with zipfile.ZipFile(max((run / "checkpoints").glob("*.npz"))) as file:
        found: dict[str, Any] = json.loads(file.read("state.json"))["parts"]
        for name in file.namelist():
            if name.endswith(".npy"):
                found[name] = np.lib.format.read_array(file.open(name))
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether both checkpoints are bitwise equal."""
    return one.keys() == other.keys() and all(
        value.tobytes() == other[name].tobytes() if isinstance(value, np.ndarray)
        else value == other[name] for name, value in one.items()
    )


@ranks_by
def test_two_ranks_train_as_one_process_does(launcher: str, folder: Path) -> None:
    alone = train(folder / "alone", None, *SHORT, "--batch-size-per-rank=16", "--accumulation=2")
    found = train(folder / launcher, launcher, *SHORT, "--batch-size-per-rank=8",
                  "--strategy=horovod")
    losses = values(alone, "train_loss")
    assert len(losses) == STEPS
    assert values(found, "train_loss") == pytest.approx(losses, rel=1e-4)
    one, other = parts(alone), parts(found)
    for part in ("body", "head"):
        for number, place in one[part].items():
            if part == "body" and int(number) % PER_LAYER in STATISTICS:
                continue
            name = f"{place['$array']}.npy"
            np.testing.assert_allclose(other[name], one[name], rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def squares(folder: Path) -> Path:
    """Return packed images of noise with a bright square on the left, on the right, both or none.

    `--synthetic` repeats one image a thousand times, so rounding would determine the order of
    the scores.
    """
    draw, images = np.random.default_rng(0), folder / "images"
    rows = ["file,classes"]
    for split, count in (("train", 16 * STEPS), ("val", 44)):
        (images / split).mkdir(parents=True)
        for number in range(count):
            pixels = draw.integers(0, 128, (32, 32), np.uint8)
            found = draw.integers(0, 2, 2)
            for side in np.flatnonzero(found):
                pixels[8:24, 16 * side : 16 * side + 12] += 64
            Image.fromarray(pixels).save(images / split / f"{number}.png")
            names = [name for name, there in zip(("left", "right"), found, strict=True) if there]
            rows.append(f"{split}/{number}.png,{'|'.join(names)}")
    (images / "labels.csv").write_text("\n".join(rows) + "\n")
    words = ["data", "pack", images, "--labels", images / "labels.csv", "--format", "tfrecord",
             "-o", folder / "squares"]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return folder / "squares"


@ranks_by
def test_two_ranks_have_the_auroc_of_one(launcher: str, folder: Path, squares: Path) -> None:
    """Both trainings evaluate the same network; each of two ranks evaluates half of the images."""
    fixed = (*SHORT[1:], "--data=/squares", "--channels=1", "--no-statistics")
    data = Mount(str(squares), "/squares")
    alone = train(folder / "alone-fixed", None, *fixed, "--batch-size-per-rank=16", bind=data)
    found = train(folder / f"{launcher}-fixed", launcher, *fixed, "--batch-size-per-rank=8",
                  "--strategy=horovod", bind=data)
    assert values(alone, "eval_auroc")[0] != 0.5
    for key in ("eval_auroc", "eval_average_precision", "eval_accuracy", "eval_loss"):
        (ours,), (expected,) = values(found, key), values(alone, key)
        assert ours == pytest.approx(expected, rel=1e-5), key


@pytest.mark.long
@ranks_by
def test_kerass_own_loop_averages_over_two_ranks(launcher: str, folder: Path) -> None:
    """The training completes; if the ranks had different weights, it would exit with code 70."""
    out = folder / f"{launcher}-fit"
    out.mkdir()
    run_inside(image(), out, [
        *LAUNCHERS[launcher], "-m", "chexnet", "fit", "--out=/out/run", "--synthetic",
        "--model=resnet50", "--size=32", "--max-steps=3", "--batch-size-per-rank=4",
        "--log-every=1", "--threads=1", "--strategy=horovod",
    ])
    assert values(out / "run", "global_batch_size") == [8]
    assert len(values(out / "run", "throughput")) == 3


def ranks(launched: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the processes of the ranks, without the processes of the launcher."""
    found = []
    for one in psutil.Process(launched.pid).children(recursive=True):
        try:
            line = one.cmdline()
        except psutil.Error:
            continue
        if line[:1] and line[0].endswith("python") and line[1:3] == ["-m", "chexnet"]:
            found.append(one)
    return found


def interrupt(
    out: Path, launcher: str, number: signal.Signals, when: Callable[[], bool]
) -> tuple[int, str]:
    """Start the long training, and send a signal to a rank when `when` returns true.

    Returns:
        The exit code and the output of the training.
    """
    out.mkdir(exist_ok=True)
    argv, env = inside(image(), out, words(launcher, *LONG, "--resume=auto"))
    launched = subprocess.Popen(
        argv, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        limit = time.monotonic() + 200
        while not (when() and len(ranks(launched)) == 2):
            assert launched.poll() is None, launched.communicate()[0]
            assert time.monotonic() < limit
            time.sleep(0.02)
        ranks(launched)[1].send_signal(number)
        said = launched.communicate(timeout=400)[0]
    finally:
        launched.kill()
    return launched.returncode, said


def newest(out: Path) -> Path | None:
    return max((out / "run/checkpoints").glob("step-*.npz"), default=None)


@pytest.mark.long
@ranks_by
def test_a_rank_that_is_killed_ends_all_and_they_go_on_to_the_same_bits(
    launcher: str, folder: Path
) -> None:
    whole = train(folder / f"{launcher}-whole", launcher, *LONG)
    out = folder / f"{launcher}-killed"
    code, said = interrupt(out, launcher, signal.SIGKILL, lambda: newest(out) is not None)
    assert code != 0, said
    assert not (out / "run/result.json").exists(), "it was too quick: give it more epochs"
    went_on = train(out, launcher, *LONG, "--resume=auto")
    assert len(values(went_on, "resumed_from_step")) == 1
    assert same(parts(went_on), parts(whole))
    assert values(went_on, "eval_auroc") == values(whole, "eval_auroc")


@pytest.mark.long
@ranks_by
def test_a_signal_to_one_rank_stops_all_at_the_same_step_and_they_go_on(
    launcher: str, folder: Path
) -> None:
    whole = train(folder / f"{launcher}-whole", launcher, *LONG)
    out = folder / f"{launcher}-stopped"
    code, said = interrupt(out, launcher, signal.SIGTERM, lambda: newest(out) is not None)
    assert "after step" in said
    if launcher == "mpirun":  # horovodrun ends with 1, whatever its ranks do
        assert code == 75, said
    assert code != 0, said
    assert values(out / "run", "run_stop") != []
    went_on = train(out, launcher, *LONG, "--resume=auto")
    assert same(parts(went_on), parts(whole))
