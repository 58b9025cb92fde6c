"""Compare a training on one rank with several ranks; stop it early; kill one of its ranks.

Horovod is compiled for an image; therefore its tests run in the image (`tests/integration`).
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from trainkit import checkpoint
from trainkit.testing.refusals import assert_reported

WORDS = (
    "--model resnet20 --epochs 2 --base-lr 0.1 --warmup-epochs 0 --momentum 0.9 --log-every 1 "
    "--threads 1 --precision fp32 --device cpu"
)
OPTIONS = WORDS.split()


def values(out: Path, key: str) -> list[float]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line["value"] for line in lines if line["key"] == key]


def weights(out: Path) -> dict[str, np.ndarray]:
    newest = max((out / "checkpoints").iterdir())
    return checkpoint.load(newest)["parts"]["network"]


def launch(ranks: int, data: Path, out: Path, *more: str) -> "subprocess.Popen[str]":
    """Start `ranks` processes by torchrun, or one process without a launcher."""
    launcher = [sys.executable, "-m"]
    if ranks > 1:
        launcher += ["torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
        launcher += ["-m"]
        more = ("--strategy", "ddp", *more)
    arguments = ["train", "--data", str(data), "--out", str(out), *OPTIONS, *more]
    return subprocess.Popen(
        [*launcher, "resnet_imagenet", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def finished(process: "subprocess.Popen[str]", code: int = 0) -> str:
    said = process.communicate(timeout=240)[0]
    assert process.returncode == code, said
    return said


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "share"), [pytest.param(4, 16, marks=pytest.mark.long), (3, 11)])
def test_ranks_train_as_one_does_with_as_many_parts(
    ranks: int, share: int, tiny: Path, tmp_path: Path
) -> None:
    batch = share * ranks  # of 100 images; (3, 11) leaves one for a last batch of three ranks
    parts = ["--accumulation", str(ranks), "--batch-size-per-rank", str(batch)]
    finished(launch(1, tiny, tmp_path / "one", *parts))
    finished(launch(ranks, tiny, tmp_path / "many", "--batch-size-per-rank", str(share)))
    losses = values(tmp_path / "one", "train_loss")
    assert values(tmp_path / "many", "train_loss") == pytest.approx(losses, rel=1e-5)
    assert len(losses) == 2 * -(-100 // batch)
    one, many = weights(tmp_path / "one"), weights(tmp_path / "many")
    for name, array in one.items():
        if "running" not in name and "tracked" not in name:  # each rank has its own averages
            np.testing.assert_allclose(many[name], array, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_ranks_that_do_not_average_are_found(tmp_path: Path, tiny: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text(
        "import sys\n"
        "from trainkit.torch.strategy import Ddp\n"
        "from resnet_imagenet.__main__ import main\n"
        "Ddp.distribute = lambda self, network: network\n"
        "Ddp.backward = lambda self, network, *, last: __import__('contextlib').nullcontext()\n"
        "sys.exit(main())\n"
    )
    arguments = ["train", "--data", tiny, "--out", tmp_path / "run", *OPTIONS, "--strategy", "ddp"]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
         "--standalone", program, *arguments],
        capture_output=True, text=True, timeout=240, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode != 0
    assert done.stderr.count("the ranks have different weights after step 1") == 1  # rank 0 tells


@pytest.mark.slow
@pytest.mark.long
def test_a_signal_to_one_rank_stops_all_and_they_go_on(tiny: Path, tmp_path: Path) -> None:
    long = ["--epochs", "400", "--batch-size-per-rank", "8", "--eval-every", "0"]
    process = launch(2, tiny, tmp_path / "run", *long)
    workers = wait_for_ranks(process, tmp_path / "run")
    os.kill(workers[-1], signal.SIGUSR1)
    said = process.communicate(timeout=120)[0]
    assert_reported(said, "stopped", "--resume auto")
    assert said.count("error[stopped]") == 1  # rank 0 tells, whoever got the signal
    steps = len(values(tmp_path / "run", "train_loss"))
    more = ["--resume", "auto", "--max-steps", str(steps + 5)]
    finished(launch(2, tiny, tmp_path / "run", *long, *more))
    assert len(values(tmp_path / "run", "train_loss")) == steps + 5


@pytest.mark.slow
def test_a_killed_rank_ends_the_others_soon_and_by_name(tiny: Path, tmp_path: Path) -> None:
    long = ["--epochs", "400", "--batch-size-per-rank", "8", "--eval-every", "0"]
    process = launch(2, tiny, tmp_path / "run", *long)
    workers = wait_for_ranks(process, tmp_path / "run")
    os.kill(workers[-1], signal.SIGKILL)
    started = time.monotonic()
    said = process.communicate(timeout=60)[0]
    assert process.returncode != 0
    assert time.monotonic() - started < 30
    assert_reported(said, "rank-lost")
    assert "resnet_imagenet/train.py" not in said  # no traceback but the launcher's


@pytest.mark.slow
def test_a_bad_record_on_one_rank_is_the_first_error_shown(tiny: Path, tmp_path: Path) -> None:
    import shutil

    data = tmp_path / "data"
    shutil.copytree(tiny, data)
    shard = data / "train-00002.tar"
    content = bytearray(shard.read_bytes())
    content[512:520] = b"no image"
    shard.write_bytes(content)
    said = finished(launch(2, data, tmp_path / "run", "--batch-size-per-rank", "8"), code=1)
    assert "record 00000080.png" in said
    assert "rank " in said


def wait_for_ranks(process: "subprocess.Popen[str]", out: Path) -> list[int]:
    """Wait until the ranks have made some steps, and return their process IDs."""
    for _ in range(600):
        if (out / "metrics.jsonl").exists() and len(values(out, "train_loss")) > 3:
            break
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children]
