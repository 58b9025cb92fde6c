"""Resolve the tool's own packages into requirements/*.lock, with hashes.

`make lock` calls this script. The tool is locked for Python 3.10 to 3.13. The tests of
the apps run in separate environments (PyTorch and DALI come from the image's lock), so
they have a separate lock, for Python 3.11 to 3.13.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = [
    "--universal", "--generate-hashes", "--no-annotate",
    "--no-header", "--upgrade", "--index-url", "https://pypi.org/simple", "--quiet",
]


def lock(output: str, *inputs: str, python: str = "3.10") -> None:
    """Write `requirements/<output>` with uv; `inputs` are input files and options of uv."""
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run(
        [uv, "pip", "compile", *inputs, *OPTIONS, "--python-version", python,
         "--output-file", f"requirements/{output}"],
        cwd=ROOT, check=True, env={"UV_SYSTEM_CERTS": "1", **os.environ, "UV_NO_CONFIG": "1"},
    )


def main() -> None:
    """Write the four locks.

    `dev.lock` and `site.lock` have the versions of `tool.lock` for the packages that they share.
    """
    lock("tool.lock", "pyproject.toml")
    lock("dev.lock", "pyproject.toml", "--group", "dev", "-c", "requirements/tool.lock")
    lock("site.lock", "pyproject.toml", "--group", "site", "-c", "requirements/dev.lock")
    lock("apps-test.lock", "requirements/apps-test.in", python="3.11")


if __name__ == "__main__":
    main()
