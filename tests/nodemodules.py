"""Packages of npm that tests use: those of a `package-lock.json`, installed once for a user."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from trimaran import paths

CACHE = paths.cache("node")  # of the user: read before a test has a cache of its own


def installed(lock: Path) -> Path:
    """Return the folder of the user's cache with what `lock` names, installed first if it is not.

    It has `node_modules/`; nothing of the packages is executed.
    """
    folder = CACHE / hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="part-", dir=folder.parent) as part:
            _install(lock, Path(part) / "made")
            (Path(part) / "made").rename(folder)
    return folder


def _install(lock: Path, folder: Path) -> None:
    folder.mkdir()
    for name in ("package.json", lock.name):
        shutil.copy(lock.parent / name, folder)
    done = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder,
        env={**os.environ, "npm_config_cache": str(folder / "downloads")},
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder / "downloads", ignore_errors=True)
