"""Install the npm packages of a `package-lock.json` in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from trimaran import paths

CACHE = paths.cache("node")  # the user's cache: evaluated before a test sets its own cache


def installed(lock: Path) -> Path:
    """Return the folder that has `node_modules/` with the packages of `lock`; install them once.

    No script of a package is executed.
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
