"""Tests of the strategy ddp in real processes: a slow rank, and sums, means and gradients."""

import json
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
from trainkit.torch import strategy
from trainkit.torch.start import start
from trainkit.exits import PeerError
strategy.TIMEOUT = timedelta(seconds=4)
def say(text):  # of one standard output for both, the lines would mix
    Path(sys.argv[2], "said-" + os.environ["RANK"]).write_text(text)
Path(sys.argv[2], os.environ["RANK"]).touch()
while not all(Path(sys.argv[2], rank).exists() for rank in "01"):  # both have loaded PyTorch
    time.sleep(0.01)
ranks = start("ddp", device="cpu")
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


@pytest.mark.slow
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


COLLECTIVES = """
import json, os, sys
import torch
from trainkit.torch.start import start
ranks = start("ddp", device="cpu", compression=sys.argv[1])
rank = ranks.rank
network = torch.nn.Linear(2, 1)
with torch.no_grad():
    network.weight.fill_(1.0 + rank)
model = ranks.distribute(network)
start = network.weight.tolist()
for part in (0, 1):
    with ranks.backward(model, last=part == 1):
        model(torch.full((1, 2), 1.0 + rank + 10.001 * part)).sum().backward()
with ranks.averaged():
    gradient = network.weight.grad.tolist()
norm = torch.nn.BatchNorm1d(1, momentum=0.5)
own = ranks.distribute(norm)
for _ in range(2):
    own(torch.full((2, 1), 8.0 * rank))
mean = torch.tensor([float(rank)])
ranks.average([mean])
found = [start, gradient, ranks.sum([1.0, rank]), ranks.any(rank == 1), ranks.any(False),
         ranks.share(f"of {rank}"), ranks.gather(10 * rank), mean.tolist(),
         ranks.communicating > 0, norm.running_mean.item()]
ranks.close()
print(json.dumps(found))
"""


@pytest.mark.parametrize("compression", ["none", "fp16"])
def test_sums_means_and_gradients_are_those_of_all_ranks(compression: str) -> None:
    """Two processes get equal sums, means and averaged gradients of both ranks.

    The test sets the variables of Open MPI, because a start by torchrun would take too long.
    """
    job = {"PMIX_NAMESPACE": f"{os.getpid()}-{compression}", "OMP_NUM_THREADS": "1"}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", COLLECTIVES, compression], stdout=subprocess.PIPE, text=True,
            env=os.environ | job | {
                "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
        )
        for rank in (0, 1)
    ]
    for rank, child in enumerate(children):
        found = json.loads(child.communicate(timeout=100)[0])
        # The gradient is the sum of a rank's inputs: 1 + 11.001 and 2 + 12.001.
        mean = 13.0 if compression == "fp16" else pytest.approx(13.001, abs=1e-5)
        assert found == [
            [[1.0, 1.0]], [[mean, mean]], [2.0, 1.0], True, False, "of 0", [0, 10], [0.5], True,
            6.0 * rank,  # each rank has statistics of its own batches
        ]
