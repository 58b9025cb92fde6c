"""Self-test of the collectives images: two ranks measure all operations with small messages."""

# ruff: noqa: S101, T201 - a self-test uses assert, and prints what it tested
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

APP = ["-m", "collectives"]
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", sys.executable]
TORCHRUN = [
    sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
]


def check_help() -> None:
    """Check that each subcommand of the app prints its options with --help."""
    for verb in ("measure", "qualify", "plot"):
        text = subprocess.run([sys.executable, *APP, verb, "--help"], check=True,
                              capture_output=True, text=True)
        assert "--out" in text.stdout, f"{verb} --help lacks --out"


def check_library(library: str, launcher: list[str]) -> None:
    """Measure the operations of `library` on two ranks on CPUs; a wrong result ends the test."""
    root = ["--allow-run-as-root"] if os.geteuid() == 0 and launcher is MPIRUN else []
    with tempfile.TemporaryDirectory() as out:
        words = [
            launcher[0], *root, *launcher[1:], *APP, "measure", f"--library={library}",
            f"--out={out}", "--device=cpu", "--max-bytes=4KiB",
        ]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        points = json.loads((Path(out) / "collectives.json").read_text())["points"]
    operations = {point["operation"] for point in points}
    assert "all-reduce" in operations, f"{library}: all-reduce is missing: {operations}"
    print(f"{library}: {len(points)} sizes of {len(operations)} operations, all results correct")


if __name__ == "__main__":
    check_help()
    check_library("mpi", MPIRUN)
    check_library("torch", TORCHRUN)
    check_library("horovod", MPIRUN)
    print("self-test passed")
