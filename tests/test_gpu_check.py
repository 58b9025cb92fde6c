"""`benchmarks/gpu_check.py`: valid evidence, a time limit, and parts that fail independently."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trimaran import paths

ROOT = paths.repository()
QUICK = """
import time
def measure(device, until, report):
    report("one", 1.5, "s")
"""
BROKEN = "def measure(device, until, report):\n    raise RuntimeError('no such kernel')\n"
ENDLESS = QUICK + "    time.sleep(600)\n"
ABSENT = (
    "from gpuparts import NotHereError\n"
    "def measure(device, until, report):\n    raise NotHereError('DALI is not installed')\n"
)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the GPU check with invented parts instead of the real ones.

    Its argument `sources` maps the name of each part to the source code of its Python module.
    """
    for folder in (ROOT / "benchmarks", ROOT / "apps/trainkit/src"):
        monkeypatch.syspath_prepend(folder)
    parent, package = (importlib.import_module(f"gpuparts{one}") for one in (".parent", ""))

    def run(sources: dict[str, str], minutes: float = 1.0) -> tuple[bool, dict[str, Any]]:
        copy = tmp_path / "gpuparts"
        copy.mkdir()
        for name in ("__init__.py", "child.py", "stand_ins.py"):
            (copy / name).write_bytes((ROOT / "benchmarks/gpuparts" / name).read_bytes())
        for name, source in sources.items():
            (copy / f"{name}.py").write_text(source)
        parts = tuple(package.Part(name, name, 1, 5) for name in sources)
        monkeypatch.setattr(parent, "PARTS", parts)
        file = tmp_path / "found.json"
        one = parent.Check("cpu", minutes, time.monotonic(), file, str(tmp_path))
        written = []
        write = one.write

        def watched() -> None:
            write()
            written.append(json.loads(file.read_text()))

        one.write = watched
        good = one.run(list(sources))
        assert len(written) > len(sources)
        return good, json.loads(file.read_text())["parts"]

    return run


def test_a_part_that_fails_leaves_the_others_alone(check: Any) -> None:
    good, parts = check({"broken": BROKEN, "absent": ABSENT, "quick": QUICK})
    assert not good
    assert parts["broken"]["status"] == "failed"
    assert "no such kernel" in parts["broken"]["reason"]
    assert (parts["absent"]["status"], parts["absent"]["reason"]) == (
        "not here", "DALI is not installed")
    assert parts["quick"]["status"] == "passed"
    assert parts["quick"]["results"] == [{"name": "one", "value": 1.5, "unit": "s"}]


def test_a_part_that_is_absent_is_no_failure(check: Any) -> None:
    assert check({"absent": ABSENT})[0]


def test_the_time_is_kept_and_results_before_its_end_count(check: Any) -> None:
    began = time.monotonic()
    good, parts = check({"endless": ENDLESS, "quick": QUICK}, minutes=0.3)
    assert time.monotonic() - began < 18 + 10
    assert good
    assert parts["endless"]["status"] == "cut short"
    assert parts["endless"]["results"]
    assert parts["quick"]["status"] == "not run"
    assert "remained" in parts["quick"]["reason"]


def test_the_evidence_is_valid_after_a_kill(tmp_path: Path) -> None:
    copy = tmp_path / "gpuparts"
    copy.mkdir()
    for name in ("__init__.py", "child.py", "stand_ins.py"):
        (copy / name).write_bytes((ROOT / "benchmarks/gpuparts" / name).read_bytes())
    source = QUICK.replace("    report", "    while True:\n        report")
    (copy / "ceiling.py").write_text(source)
    file = tmp_path / "found.json"
    run = (
        "import sys, time; from pathlib import Path; from gpuparts.parent import Check; "
        f"Check('cpu', 1, time.monotonic(), Path({str(file)!r}), {str(tmp_path)!r})"
        ".run(['ceiling'])"
    )
    folders = (ROOT / "benchmarks", ROOT / "apps/trainkit/src")
    variables = {"PYTHONPATH": ":".join(map(str, folders)), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", run], env=variables,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as check:
        until = time.monotonic() + 30
        while time.monotonic() < until and not (file.exists() and '"value"' in file.read_text()):
            time.sleep(0.05)
        check.kill()
    part = json.loads(file.read_text())["parts"]["ceiling"]
    assert part["status"] == "running"
    assert part["results"][0]["value"] == 1.5


def test_a_wrong_option_writes_nothing(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks/gpu_check.py", "--to", tmp_path / "no/file"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not a file in an existing folder" in done.stderr
    assert not (tmp_path / "no").exists()


def test_minutes_out_of_range_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    package = importlib.import_module("gpuparts")
    assert package.minutes("1440") == 1440
    for text in ("1441", "0", "eight"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"1440.*'{text}'"):
            package.minutes(text)


def test_packages_that_a_bare_pytorch_lacks_can_be_imported() -> None:
    code = (
        "from gpuparts import stand_ins\n"
        "stand_ins.PACKAGES = ('missing.inner', 'json')\n"
        "assert stand_ins.install() == ['missing.inner']\n"
        "assert stand_ins.is_missing('missing.inner') and not stand_ins.is_missing('json')\n"
        "from missing.inner import decorator, types\n"
        "assert stand_ins.is_missing('missing.inner')\n"
        "@decorator\n"
        "def one(): return 1\n"
        "@decorator(types.FLOAT, batch=2)\n"
        "def two(): return 2\n"
        "assert one() == 1\n"
        "import json\n"
        "assert json.loads('3') == 3\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env=os.environ | {"PYTHONPATH": str(paths.repository() / "benchmarks")})
    assert done.returncode == 0, done.stderr
