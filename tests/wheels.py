"""Write small wheels without a build backend."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def write(folder: Path, name: str, *, modules: int = 1, script: bool = False) -> Path:
    """Write a wheel with `modules` modules into `folder`; `script`: with a command."""
    info = f"{name}-1.0.dist-info"
    files = {f"{name}/__init__.py": b""} | {
        f"{name}/module{number}.py": f"NUMBER = {number}\n".encode() for number in range(modules)
    }
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if script:
        entry = f"[console_scripts]\n{name} = {name}:__name__\n"
        files[f"{info}/entry_points.txt"] = entry.encode()
    lines = [
        f"{path},sha256={_digest(content)},{len(content)}" for path, content in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
