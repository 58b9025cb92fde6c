"""Write the evidence of a test suite: date, host, revision and outcomes."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from trimaran.hostfacts import host_facts


def evidence(root: Path, script: str, words: Sequence[str], **found: Any) -> str:
    """Return the evidence of `python scripts/SCRIPT WORDS` in the checkout `root` as JSON.

    `found` are further keys, which contain the results.
    """
    host = host_facts().model_dump(include={"processor", "cores", "memory_gib", "kernel", "os"})
    document = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M +0000"),
        "command": shlex.join(["python", f"scripts/{script}", *words]),
        "revision": revision(root),
        "host": host,
        **found,
    }
    return json.dumps(document, indent=2) + "\n"


def revision(root: Path) -> str:
    """Return the commit of `root`, followed by `+` if there are uncommitted changes."""
    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=True,  # noqa: S607
        )
        return done.stdout.strip()

    return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
