"""Test that `benchmarks/gpu_check.py` measures the PyTorch apps of this checkout on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks/gpu_check.py"


def test_parity_and_rates_are_measured_in_an_empty_environment(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--device", "cpu", "--minutes", "3", "--only", "parity",
         "--only", "resnet_rate", "--to", file],
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}, cwd=tmp_path, check=False,
        capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert found["device"] == "cpu"
    parts = found["parts"]
    assert {one["status"] for one in parts.values()} == {"passed"}
    assert [one["value"] for one in parts["parity"]["results"]] == [0, 0, 0]
    assert parts["resnet_rate"]["results"][-1]["value"] > 0
    assert list(tmp_path.iterdir()) == [file]
