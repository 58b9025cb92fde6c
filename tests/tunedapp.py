"""Stand-ins for runs that are tuned: made-up rates, and a program that runs like an app."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from samples import GOOD
from trimaran.engines import BuiltImage
from trimaran.engines.host import Host
from trimaran.recipes.cards import Tuning
from trimaran.tune.search import Measured
from trimaran.tune.space import Configuration, Parameter, Space

RECIPE = {
    **GOOD, "data": {}, "env": {"OMP_NUM_THREADS": "2"},
    "args": {"model": "resnet20", "epochs": 1, "batch-size-per-rank": 64, "synthetic": True},
}
"""A recipe without data whose ranks, threads, micro-batches and precision can be tuned."""

SPACE = Space(
    (Parameter("ranks", 1, (1, 2, 4)), Parameter("threads", 4, (1, 2, 4)),
     Parameter("input-workers", 1, (1, 2, 4)), Parameter("batch-parts", 1, (1, 2, 4)),
     Parameter("precision", "auto", ("auto", "fp32", "bf16"))),
    {}, Tuning(), cores=4,
)
BEST = {"ranks": 2, "threads": 2, "input-workers": 2, "batch-parts": 1, "precision": "bf16"}
_FACTORS = {"ranks": 1.3, "threads": 1.1, "input-workers": 1.2, "precision": 1.5}


def response(chosen: Configuration) -> float:
    """Return the made-up rate of a configuration of SPACE; BEST has the largest one."""
    rate = 100.0 / (chosen["batch-parts"] or 1)  # type: ignore[operator]
    for name, factor in _FACTORS.items():
        rate *= factor if chosen[name] == BEST[name] else 1.0
    return rate


def measuring(rate: Callable[[Configuration], float]) -> Callable[[int, Configuration], Measured]:
    """Return a function that a search calls to measure; it returns `rate` and runs nothing."""
    return lambda number, chosen: Measured(rate(chosen), None, 1.0, f"trials/{number:03}")


# It trains nothing. Its rate is 100 samples/s for each thread up to two; in fp32 it is half of it,
# and with more than four parts it fails. With STOP it sends
# Ctrl-C to the tool in fp32, and with HANG it does not end in fp32.
PROGRAM = f"""#!{sys.executable} -I
import json, os, pathlib, signal, sys, time
words = dict(word[2:].partition("=")[::2] for word in sys.argv[2:])
out = pathlib.Path(words["out"])
rate = 100.0 * min(2, int(os.environ["OMP_NUM_THREADS"]))
rate *= 0.5 if words.get("precision") == "fp32" else 1.0
rate *= float(os.environ.get("FACTOR", 1.0)) if words.get("precision") == "bf16" else 1.0
if "STOP" in os.environ and words.get("precision") == "fp32":
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)
if "HANG" in os.environ and words.get("precision") == "fp32":
    time.sleep(60)
if int(words.get("accumulation", 1)) > 4:
    sys.exit("too many parts")
steps, every = int(words["max-steps"]), int(words["log-every"])
lines = [("run_start", None, dict(ranks=1), 0)]
for step in range(every, steps + 1, every):
    where = dict(step=step, epoch_num=1)
    lines.append(("throughput", rate * (0.1 if step < steps / 4 else 1), where, step * 100))
lines.append(("run_stop", None, dict(status="success", step=steps), steps * 100))
with (out / "metrics.jsonl").open("w") as log:
    for key, value, where, at in lines:
        log.write(json.dumps(dict(key=key, value=value, metadata=where, time_ms=at)) + chr(10))
(out / "checkpoints").mkdir()
(out / "checkpoints/step-00000008.npz").write_text("weights")
(out / "result.json").write_text(json.dumps(dict(status="success", steps=steps, evaluation=None)))
"""


def install(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the host engine run PROGRAM as the app of every image."""
    options = "apps/resnet-imagenet/options.json"
    (checkout / options).write_text((Path(__file__).resolve().parents[1] / options).read_text())
    program = checkout / "venv/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    built = BuiltImage("x", "host", str(checkout / "venv"), None, "0" * 64, 0)
    monkeypatch.setattr(Host, "build", lambda *_, **__: built)
