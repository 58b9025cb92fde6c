"""Start trainings on a real Slurm cluster of two nodes, and inject faults into them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml
from typer.testing import CliRunner

import cluster
import tinyapp
from trimaran import paths
from trimaran.cli import app
from trimaran.run import job_chain

NAME = "resnet-imagenet/cpu-2node-faults-smoke"
STEPS = 48
RECIPE: dict[str, Any] = {
    "schema": 1, "summary": "A training of seconds on two nodes.", "app": "resnet-imagenet",
    "target": "cpu-2node", "purpose": "smoke",
    "image": {"name": "resnet-imagenet-torch-cpu", "digest": None},
    "data": {"fashion-mnist": {"format": "webdataset", "samples": {"train": 60000, "test": 10000}}},
    "resources": {"nodes": 2, "tasks_per_node": 1, "cpus_per_task": 1, "walltime": "00:10:00"},
    "launcher": "srun", "env": {"OMP_NUM_THREADS": "1"},
    "args": {
        "model": "resnet20", "strategy": "ddp", "steps": STEPS, "batch-size-per-rank": 32,
        "base-lr": 0.05, "warmup-steps": 4, "eval-every": 0, "precision": "fp32", "threads": 1,
        "log-every": 4, "checkpoint-every": 8, "keep": 20, "watchdog": 25,
    },
    "expected": [],
}
"""Recipe for two ranks and about 30 s; it writes a checkpoint every few seconds, and keeps all."""


@dataclass
class Place:
    """A folder that stands for a login node: it has the recipes and the site file of the test."""

    root: Path
    folder: Path
    site: dict[str, Any] = field(default_factory=lambda: {"mpi": "pmix"})
    changes: list[str] = field(default_factory=list)

    def env(self) -> dict[str, str]:
        """Return the environment of a shell on the login node; write its site file."""
        (self.root / "site.yaml").write_text(yaml.safe_dump({"clusters": {"own": self.site}}))
        return {
            **os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"),
            "TRIMARAN_SITE": str(self.root / "site.yaml"),
            "TRIMARAN_RECIPES": str(self.root / "recipes"),
        }

    def write(self, **more: Any) -> None:
        """Write the recipe, with some of its keys replaced."""
        path = self.root / "recipes/recipes" / f"{NAME}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({**RECIPE, **more}, sort_keys=False))

    def trimaran(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `trimaran` with `words`."""
        done = tinyapp.call(list(words), self.env())
        assert not check or done.returncode == 0, done.stderr
        return done

    def slurm(self, *words: str) -> str:
        """Run a command of Slurm, and return its output."""
        done = subprocess.run(list(words), env=self.env(), capture_output=True, text=True,
                              check=True, cwd=self.root, timeout=300)
        return done.stdout.strip()

    def submit(self, *words: str, out: Path | None = None) -> Run:
        """Submit the recipe, and return the run."""
        place = out or self.root / f"run-{len(list(self.root.glob('run-*')))}"
        self.trimaran("submit", NAME, "--out", str(place), *words)
        return Run(self, place)


@dataclass
class Run:
    """A run that was submitted to the cluster, and functions to observe it."""

    place: Place
    out: Path

    @property
    def job(self) -> str:
        """The number of the newest job."""
        return (self.out / "job/ids").read_text().split()[-1]

    @property
    def log(self) -> str:
        """The current content of the log."""
        return (self.out / "log.txt").read_text(errors="replace")

    def state(self) -> dict[str, Any]:
        """Return the output of `trimaran status`, called in this process because that is faster."""
        done = CliRunner().invoke(app, ["status", str(self.out), "--json"], env=self.place.env())
        assert done.exit_code == 0, done.output
        [row] = json.loads(done.stdout)
        return dict(row)

    def wait(self, until: Callable[[], bool], seconds: float = 120) -> float:
        """Wait until the condition is true, and return the seconds that this took."""
        begun = time.monotonic()
        while not until():
            assert time.monotonic() - begun < seconds, f"{self.state()}\n{self.log[-3000:]}"
            time.sleep(0.1)
        return time.monotonic() - begun

    def step(self) -> int:
        """Return the last step in the metrics log."""
        lines = self.metrics()
        return max((int(line["metadata"].get("step", 0)) for line in lines), default=0)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the complete lines of the metrics log."""
        found = []
        with suppress(FileNotFoundError):
            for line in (self.out / "metrics.jsonl").read_text().splitlines():
                with suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def reach(self, step: int) -> None:
        """Wait until the run has reached this step."""
        self.wait(lambda: self.step() >= step)

    def ended(self) -> bool:
        """Return whether no job of the run is queued or running."""
        return self.state()["state"] not in (
            "pending", "configuring", "running", "completing", "requeued"
        )

    def finish(self, seconds: float = 180) -> dict[str, Any]:
        """Wait for the end of the run, and return its final state."""
        self.wait(self.ended, seconds)
        return self.state()

    def resume(self) -> dict[str, Any]:
        """Resume the run, wait for its end, and return its final state."""
        self.place.trimaran("resume", str(self.out))
        return self.finish()

    def links(self) -> list[job_chain.Link]:
        """Return the links of the run; a link is one start of the run by Slurm."""
        return job_chain.read(self.out)

    def newest(self) -> Path:
        """Return the path of the newest checkpoint."""
        return max((self.out / "checkpoints").glob("step-*.npz"))

    def weights(self) -> Mapping[str, Any]:
        """Return key -> array of the newest checkpoint, without states of random generators."""
        with np.load(self.newest()) as file:
            tree = json.loads(file["state.json"])["parts"]
            return {
                place: file[str(number)] for place, number in _arrays(tree)
                if "random" not in place
            }

    def check_whole(self, undisturbed: Run) -> None:
        """Check that metrics and weights equal those of the undisturbed run.

        Weights and momentum must be bitwise equal. The running statistics of batch normalization
        are averaged over the ranks at each checkpoint, so an additional checkpoint changes them by
        rounding.
        """
        self.check_metrics()
        assert self.newest().name == undisturbed.newest().name
        assert self.losses() == undisturbed.losses()
        mine, theirs = self.weights(), undisturbed.weights()
        assert len(theirs) > 100
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            if "running_" in name:
                np.testing.assert_allclose(value, theirs[name], rtol=1e-5, err_msg=name)
            else:
                np.testing.assert_array_equal(value, theirs[name], err_msg=name)

    def check_metrics(self) -> None:
        """Check that no line of the metrics log is repeated and no checkpoint is damaged."""
        lines = [(line["key"], line["metadata"]["step"]) for line in self.metrics()
                 if "step" in line["metadata"] and line["event_type"] == "POINT_IN_TIME"]
        counted = Counter(lines)
        assert [line for line, times in counted.items() if times > 1] == []
        assert not list(self.out.glob("checkpoints/*.corrupt"))

    def losses(self) -> list[tuple[int, float]]:
        """Return the (step, training loss) pairs of the metrics log."""
        return [(line["metadata"]["step"], line["value"]) for line in self.metrics()
                if line["key"] == "train_loss"]


def _arrays(tree: Any, place: str = "") -> Iterator[tuple[str, int]]:
    """Yield the key path of each array in the state of a checkpoint, and the array's number.

    The number is the name of the array in the checkpoint file.
    """
    if isinstance(tree, dict):
        if "$array" in tree:
            yield place, tree["$array"]
        for name, branch in tree.items():
            yield from _arrays(branch, f"{place}.{name}")
    elif isinstance(tree, list):
        for number, branch in enumerate(tree):
            yield from _arrays(branch, f"{place}.{number}")


def ranks(run: Run) -> dict[int, int]:
    """Return rank -> process ID of its Python interpreter."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes().split(b"\0")
            if b"resnet_imagenet" not in words or b"--out=/out" not in words:
                continue
            if not Path(os.fsdecode(words[0])).name.startswith("python"):
                continue
            entries = (place / "environ").read_bytes().split(b"\0")
            env = dict(entry.partition(b"=")[::2] for entry in entries)
            if env.get(b"SLURM_JOB_ID", b"").decode() == run.job:
                found[int(env[b"SLURM_PROCID"])] = int(place.name)
    return found


def lose(node: str, folder: Path) -> None:
    """Kill all processes of a node: its slurmd, its job steps and their child processes."""
    log = str(folder / f"slurmd-{node}.log")
    for process in psutil.process_iter(["name", "cmdline"]):
        with suppress(psutil.Error, OSError):
            if not process.info["name"].startswith("slurm"):
                continue
            opened = {
                str(fd.readlink()) for fd in Path(f"/proc/{process.pid}/fd").iterdir()
            }
            if log in opened:  # slurmd or one of its slurmstepd processes
                for one in (*process.children(recursive=True), process):
                    with suppress(psutil.Error):
                        one.kill()


def revive(node: str, folder: Path) -> None:
    """Restart a node with empty temporary folders, as after a reboot."""
    for own in (*folder.glob(f"spool-{node}/pmix*"), *folder.glob(f"tmp-{node}/*")):
        shutil.rmtree(own)
    cluster.run([cluster.find("slurmd"), "-f", folder / "slurm.conf", "-N", node], folder)


def small_disk(folder: Path, size_mb: int) -> Callable[[], None]:
    """Mount a file system of `size_mb` MiB at `folder`; return a function that unmounts it.

    The ext4 image is mounted without root through FUSE, by the fuse2fs of `make apptainer`.
    """
    program = next(paths.cache("apptainer").glob("*/usr/bin/fuse2fs"))
    image = folder.with_suffix(".img")
    image.write_bytes(b"")
    os.truncate(image, size_mb << 20)
    subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-E", f"root_owner={os.getuid()}:{os.getgid()}",
                    str(image)], check=True)
    folder.mkdir()
    subprocess.run([str(program), "-o", "fakeroot", str(image), str(folder)], check=True)

    def end() -> None:
        subprocess.run([shutil.which("fusermount3") or "fusermount3", "-u", "-z", str(folder)],
                       check=False)

    return end
