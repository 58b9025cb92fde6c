"""A fault stops `make site` with file, line and reason, and the previous site remains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimaran import paths

ROOT = paths.repository()
RUN = "site/results/resnet-imagenet/cpu-quickstart/2026-11-23-epyc-avx2-2core-seed17.json"


def build(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/build_site.py"), "build"], capture_output=True,
        text=True, check=False, env={**os.environ, "TRIMARAN_ROOT": str(checkout)},
    )


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (RUN, '"exit_status": 0', '"exit_status": 1', ": run.exit_status: Input should be 0"),
        (RUN, '"measured": 90.5', '"measured": 12.5', "val_top1: the outcome PASS"),
        ("recipes/resnet-imagenet/cpu-quickstart.yaml", "purpose: quickstart", "purpose: quick",
         ":8: purpose: Input should be 'quickstart', 'smoke'"),
    ],
)
def test_what_does_not_validate_stops_the_build(
    checkout: Path, built: Path, name: str, old: str, new: str, said: str
) -> None:
    for source in (RUN, "recipes/resnet-imagenet/cpu-quickstart.yaml",
                   "apps/resnet-imagenet/options.json", "site/published.yaml",
                   "site/results/without-hash.sha256"):
        (checkout / source).parent.mkdir(parents=True, exist_ok=True)
        (checkout / source).write_bytes((ROOT / source).read_bytes())
    path = checkout / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    before = (built / "index.html").stat().st_mtime_ns
    done = build(checkout)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{path}:"), done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert (built / "index.html").stat().st_mtime_ns == before


def test_evidence_that_is_no_json_stops_it(checkout: Path) -> None:
    path = checkout / RUN
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"run": 1})[:-1])
    done = build(checkout)
    assert done.returncode == 2
    assert f"{path}:1: Expecting" in done.stderr
