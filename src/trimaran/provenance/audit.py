"""Find known vulnerabilities of an image's Python packages in PyPI's advisories, with pip-audit.

If pip-audit gets no answer, that is an error and never the result "no vulnerabilities".
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
"""Seconds to wait for one answer of the service."""


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
    """The keys of pip-audit's JSON output that Trimaran uses."""

    dependencies: tuple[_Dependency, ...]


@dataclass(frozen=True)
class Vulnerability:
    """One advisory that applies to a locked package.

    Attributes:
        package: name of the package.
        version: its locked version.
        names: identifier of the advisory and its aliases (CVE, GHSA, PYSEC).
        fixed: versions without the vulnerability.
    """

    package: str
    version: str
    names: tuple[str, ...]
    fixed: tuple[str, ...]


@dataclass(frozen=True)
class Audit:
    """The result of a search for known vulnerabilities of the locked packages of an image.

    Attributes:
        checked: number of packages that pip-audit could check.
        skipped: name of a package that pip-audit could not check -> the reason.
        vulnerabilities: all advisories that apply to the checked packages.
    """

    checked: int
    skipped: dict[str, str]
    vulnerabilities: tuple[Vulnerability, ...]


def audit(image: Image) -> Audit:
    """Return the known vulnerabilities of the packages in the lock of `image`.

    Raises:
        UsageError: pip-audit is not installed.
        RunError: The service cannot be reached, or has an answer for none of the packages.
    """
    if importlib.util.find_spec("pip_audit") is None:
        raise UsageError(
            "pip-audit is not installed", code="program-missing",
            hint=f"{sys.executable} -m pip install 'pip-audit>=2.9'",
        )
    with tempfile.TemporaryDirectory(prefix="trimaran-audit-") as folder:
        pins = Path(folder) / "requirements.txt"
        pins.write_text(requirements(image), encoding="utf-8")
        result = process.run([
            sys.executable, "-m", "pip_audit", "--requirement", str(pins), "--no-deps",
            "--disable-pip", "--format", "json", "--progress-spinner", "off",
            "--timeout", str(TIMEOUT),
            "--cache-dir", str(Path(folder) / "cache"),  # empty: no earlier answers
        ], env=_system_certificates() | os.environ)
    return read(result)


def _system_certificates() -> dict[str, str]:
    """Return the environment variable that makes pip-audit use the certificates of the system."""
    places = ssl.get_default_verify_paths()
    place = places.cafile or places.capath
    return {} if place is None else {"REQUESTS_CA_BUNDLE": place}


def requirements(image: Image) -> str:
    """Return a line `name==version` for each package that the locks of `image` pin for its Python.

    Advisories have no local versions, so "2.13.0+cpu" becomes "2.13.0".
    """
    python = definition.interpreter(image).version
    return "".join(
        f"{entry.name}=={Version(entry.version).public}\n"
        for file in map(definition.wheels_lock, definition.chain(image)) if file
        for entry in lock.read(file) if entry.applies_to(python, image.architecture)
    )


def read(result: process.Result) -> Audit:
    """Return the vulnerabilities in pip-audit's JSON output.

    Raises:
        RunError: the output is not such JSON, or no package was checked.
    """
    try:
        dependencies = _Answer.model_validate(parse_json(result.stdout)).dependencies
    except ValueError as error:  # ValidationError is a subclass
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        raise RunError(
            "the vulnerability service gave no answer:"
            f" {lines[-1] if lines else f'pip-audit ended with status {result.returncode}'}",
            code="audit-failed",
            hint="pip-audit needs https://pypi.org; set a proxy by https_proxy or in the site file",
        ) from error
    skipped = {d.name: d.skip_reason for d in dependencies if d.skip_reason is not None}
    checked = len(dependencies) - len(skipped)
    if not checked:
        reason = next(iter(skipped.values()), "the lock has no packages")
        raise RunError(
            f"the vulnerability service has no data about the {len(dependencies)} packages:"
            f" {reason}", code="audit-failed",
        )
    return Audit(checked, skipped, tuple(
        Vulnerability(package.name, package.version, (advisory.id, *advisory.aliases),
                      advisory.fix_versions)
        for package in dependencies for advisory in package.vulns
    ))
