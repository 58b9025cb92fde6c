"""Ranks of torch.distributed that are not equally fast."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, time
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from trainkit import engine, engine_ddp
from trainkit.exits import PeerError
engine_ddp.TIMEOUT = timedelta(seconds=4)
def say(text):  # of one standard output for both, the lines would mix
    Path(sys.argv[2], "said-" + os.environ["RANK"]).write_text(text)
Path(sys.argv[2], os.environ["RANK"]).touch()
while not all(Path(sys.argv[2], rank).exists() for rank in "01"):  # both have loaded PyTorch
    time.sleep(0.01)
ranks = engine.start("ddp", device="cpu")
try:
    with ranks.explained():
        with ranks.unhurried() if sys.argv[1] == "unhurried" else nullcontext():
            if ranks.rank == 1:
                time.sleep(9)
        say(f"together {ranks.sum([1.0])}")
        ranks.close()
except PeerError as error:
    say("lost")
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize(("way", "said"), [("unhurried", "together [2.0]"), ("usual", "lost")])
def test_a_slow_rank_is_waited_for_where_nothing_is_hurried(
    way: str, said: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone",
         program, way, tmp_path],
        capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert said in [file.read_text() for file in tmp_path.glob("said-*")], done.stderr
    assert (done.returncode == 0) == (way == "unhurried")
