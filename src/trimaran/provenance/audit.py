"""Known vulnerabilities of an image's Python packages, from PyPI's advisory database by pip-audit.

An answer that could not be had is an error, never "no vulnerabilities".
"""

from __future__ import annotations

import importlib.util
import os
import ssl
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version
from pydantic import BaseModel

from trimaran import process
from trimaran.errors import RunError, UsageError
from trimaran.images import definition, lock
from trimaran.images.definition import Image
from trimaran.parsing import parse_json

TIMEOUT = 15
"""Seconds that the service may take for one answer."""


class _Advisory(BaseModel):
    id: str
    aliases: tuple[str, ...]
    fix_versions: tuple[str, ...]


class _Dependency(BaseModel):
    name: str
    version: str = "unknown"
    skip_reason: str | None = None
    vulns: tuple[_Advisory, ...] = ()


class _Answer(BaseModel):
    """What pip-audit prints."""

    dependencies: tuple[_Dependency, ...]


@dataclass(frozen=True)
class Vulnerability:
    """One advisory that applies to a locked package.

    Attributes:
        names: its identifier and its other names (CVE, GHSA, PYSEC).
        fixed: versions that have it no more.
    """

    package: str
    version: str
    names: tuple[str, ...]
    fixed: tuple[str, ...]


@dataclass(frozen=True)
class Audit:
    """What the service said.

    Attributes:
        checked: how many packages it knows.
        skipped: package -> why nothing is known of it.
    """

    checked: int
    skipped: dict[str, str]
    vulnerabilities: tuple[Vulnerability, ...]


def audit(image: Image) -> Audit:
    """Ask for the known vulnerabilities of the packages in the lock of `image`.

    Raises:
        UsageError: pip-audit is not installed.
        RunError: the service cannot be reached, or knows none of the packages.
    """
    if importlib.util.find_spec("pip_audit") is None:
        raise UsageError(
            "pip-audit is not installed",
            hint=f"{sys.executable} -m pip install 'pip-audit>=2.9'",
        )
    with tempfile.TemporaryDirectory(prefix="trimaran-audit-") as folder:
        pins = Path(folder) / "requirements.txt"
        pins.write_text(requirements(image), encoding="utf-8")
        result = process.run([
            sys.executable, "-m", "pip_audit", "--requirement", str(pins), "--no-deps",
            "--disable-pip", "--format", "json", "--progress-spinner", "off",
            "--timeout", str(TIMEOUT),
            "--cache-dir", str(Path(folder) / "cache"),  # no earlier answers
        ], env=_system_certificates() | os.environ)
    return read(result)


def _system_certificates() -> dict[str, str]:
    """Return the variable by which pip-audit uses the system's certificates, not its own copy."""
    places = ssl.get_default_verify_paths()
    place = places.cafile or places.capath
    return {} if place is None else {"REQUESTS_CA_BUNDLE": place}


def requirements(image: Image) -> str:
    """Return the exact versions that the locks of `image` have for its Python, one a line.

    A version with a local part ("2.13.0+cpu") is asked for without it, as advisories are.
    """
    python = definition.interpreter(image).version
    return "".join(
        f"{entry.name}=={Version(entry.version).public}\n"
        for file in map(definition.wheels_lock, definition.chain(image)) if file
        for entry in lock.read(file) if entry.applies_to(python)
    )


def read(result: process.Result) -> Audit:
    """Return what pip-audit printed.

    Raises:
        RunError: it printed no answer, or one about no package at all.
    """
    try:
        dependencies = _Answer.model_validate(parse_json(result.stdout)).dependencies
    except ValueError as error:  # pydantic's error is one
        said = [line for line in result.stderr.splitlines() if line.strip()]
        raise RunError(
            "no answer from the vulnerability service, so nothing is known:"
            f" {said[-1] if said else f'pip-audit ended with status {result.returncode}'}",
            hint="it needs https://pypi.org; a proxy is taken from https_proxy or the site file",
        ) from error
    skipped = {d.name: d.skip_reason for d in dependencies if d.skip_reason is not None}
    checked = len(dependencies) - len(skipped)
    if not checked:
        reason = next(iter(skipped.values()), "the lock has none")
        raise RunError(
            f"the vulnerability service knows none of the {len(dependencies)} packages: {reason}"
        )
    return Audit(checked, skipped, tuple(
        Vulnerability(one.name, one.version, (found.id, *found.aliases), found.fix_versions)
        for one in dependencies for found in one.vulns
    ))
