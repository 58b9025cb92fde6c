"""Run the parts of the GPU check (`gpu_check.py`) one after the other, each in a process.

The evidence file is rewritten after each result, so that it is valid at any time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from gpuparts import PARTS, Document, Part
from gpuparts.child import NOT_HERE
from trainkit.atomic import write_json

GRACE = 5.0
"""Seconds from the time limit of a part of the check until its process is killed."""
FULL_MINUTES = 8.0
"""Duration in minutes of a check on a GPU in which each part may take `Part.share` seconds.

In a shorter or longer check, these time limits are scaled in proportion.
"""
CPU_LEAST, CPU_SHARE = 5.0, 60.0
"""Smallest and largest time limit in seconds for a part of the check on a CPU.

A part is not started if the remaining time minus `GRACE` is below the smallest limit. The
largest limit allows for slow imports.
"""


class Check:
    """A check in progress.

    Args:
        device: "cuda" or "cpu".
        minutes: time limit of the whole check in minutes.
        began: start of the check, in seconds of `time.monotonic`.
        to: path of the evidence file, which is rewritten after each result.
        path: PYTHONPATH of the parts.
    """

    def __init__(self, device: str, minutes: float, began: float, to: Path, path: str) -> None:
        self.device, self.to, self.path = device, to, path
        self.scale = minutes / FULL_MINUTES
        self.until = began + 60 * minutes
        self.document: Document = {
            "kind": "gpu-check", "version": 1, "device": device, "minutes": minutes,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "parts": {},
        }

    @property
    def left(self) -> float:
        """Seconds until the time limit of the whole check."""
        return self.until - time.monotonic()

    def run(self, names: list[str]) -> bool:
        """Run the parts `names` in the order of `PARTS`; return True if no part failed."""
        chosen = [part for part in PARTS if part.name in names]
        for part in chosen:
            self.document["parts"][part.name] = {"status": "not run", "results": []}
        self.write()
        for part in chosen:
            self.run_part(part)
        return all(one["status"] != "failed" for one in self.document["parts"].values())

    def run_part(self, part: Part) -> None:
        """Run one part of the check, unless the remaining time is too short for it."""
        entry = self.document["parts"][part.name]
        least = part.least if self.device == "cuda" else CPU_LEAST
        share = max(least, part.share * self.scale) if self.device == "cuda" else CPU_SHARE
        seconds = min(self.left - GRACE, share)
        if seconds < least:
            entry["reason"] = f"{max(self.left, 0):.0f} s remained, it needs {least + GRACE:.0f} s"
        else:
            print(f"[{self.left:4.0f} s left] {part.title} ({seconds:.0f} s)", flush=True)
            entry["status"] = "running"
            self.write()
            began = time.monotonic()
            entry["status"], entry["reason"] = self.measure(part, seconds, entry["results"])
            entry["seconds"] = round(time.monotonic() - began, 1)
        if entry["status"] != "passed":
            print(f"  {part.name} {entry['status']}: {entry['reason']}", flush=True)
        self.write()

    def measure(self, part: Part, seconds: float, results: list[Document]) -> tuple[str, str]:
        """Run a part in its own process, and add its results to `results`.

        Return the status of the part and the reason for this status.
        """
        command = [sys.executable, "-m", "gpuparts.child", part.name, self.device, str(seconds)]
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
            tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as scratch,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True,
                env=os.environ | {
                    "PYTHONPATH": self.path, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": scratch,
                },
            ) as child,
        ):
            alarm = threading.Timer(seconds + GRACE, child.kill)
            alarm.start()
            try:
                assert child.stdout is not None  # noqa: S101 - a pipe was requested
                for line in child.stdout:
                    results.append(json.loads(line))
                    print(f"  {shown(results[-1])}", flush=True)
                    self.write()
                status = child.wait()
            finally:
                late = not alarm.is_alive()
                alarm.cancel()
                child.kill()
            return judged(status, late, bool(results), last_line(errors))

    def write(self) -> None:
        """Write the evidence file atomically."""
        write_json(self.to, self.document)


def judged(status: int, late: bool, has_results: bool, reason: str) -> tuple[str, str]:
    """Return the status of a part, such as "passed" or "failed", and the reason for this status.

    Args:
        status: exit status of the part's process.
        late: whether the process was stopped at its time limit.
        has_results: whether the part reported at least one result.
        reason: last line that the process wrote to standard error.
    """
    if status == 0:
        return ("passed", "") if has_results else ("failed", "it ended without a result")
    if status == NOT_HERE:
        return "not here", reason
    if late:
        what = "stopped at its time limit"
        return ("cut short", f"{what}; the results so far count") if has_results else (
            "failed", f"{what}, without a result")
    return "failed", f"exit status {status}: {reason}"


def last_line(errors: IO[str]) -> str:
    """Return the last line of a file of messages, shortened to at most 300 characters."""
    errors.seek(0)
    return (errors.read().strip().splitlines() or ["no message"])[-1][:300]


def shown(result: Document) -> str:
    """Return a result of a part as a line of text: name, value, unit and further values."""
    value = result["value"]
    text = f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1000 else (
        f"{value:,.0f}" if isinstance(value, float) else str(value))
    more = ", ".join(
        f"{name} {one:.4g}" if isinstance(one, float) else f"{name} {one}"
        for name, one in result.items() if name not in ("name", "value", "unit")
    )
    return f"{result['name']:<44} {text:>14} {result['unit']:<9} {more}".rstrip()


def table(document: Document) -> str:
    """Return all results as one table, with the goals if the device is an H100."""
    lines = [f"GPU check on {name_of(document)}"]
    for name, entry in document["parts"].items():
        reason = f": {entry['reason']}" if entry.get("reason") else ""
        lines += [f"{name} - {entry['status']}{reason}"]
        lines += [f"  {shown(one)}" for one in entry["results"]]
    if "H100" in name_of(document):
        lines += ["goals on one H100: ResNet-50 >= 3,000 img/s; language model >= 45 % MFU"]
    return "\n".join(lines)


def name_of(document: Document) -> str:
    """Return the name of the device that was measured."""
    found = document["parts"].get("ceiling", {}).get("results", [])
    names = [str(one["value"]) for one in found if one["name"] == "device"]
    return names[0] if names else str(document["device"])
