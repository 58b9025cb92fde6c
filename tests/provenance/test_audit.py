"""Tests of the audit of locked packages: answers of pip-audit, and missing answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refusals import refused
from trimaran.cli import app
from trimaran.errors import RunError, UsageError
from trimaran.images import definition
from trimaran.process import Result
from trimaran.provenance import audit

TINY = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")
SAFE = {"name": "six", "version": "1.17.0", "vulns": []}
SKIPPED = {"name": "torch", "skip_reason": "Dependency not found on PyPI"}
HIT = {"name": "jinja2", "version": "2.4.1", "vulns": [
    {"id": "PYSEC-1", "fix_versions": ["2.10.1"], "aliases": ["CVE-1"], "description": "x"}]}


def result(*dependencies: object, stderr: str = "") -> Result:
    return Result((), 0, json.dumps({"dependencies": list(dependencies)}), stderr)


def test_an_answer_is_read() -> None:
    found = audit.read(result(SAFE, SKIPPED, HIT))
    assert found.checked == 2
    assert found.skipped == {"torch": "Dependency not found on PyPI"}
    assert found.vulnerabilities == (
        audit.Vulnerability("jinja2", "2.4.1", ("PYSEC-1", "CVE-1"), ("2.10.1",)),
    )


@pytest.mark.parametrize("stdout", ["", "[]", "{}", "no JSON"])
def test_no_answer_is_an_error_with_the_reason(stdout: str) -> None:
    silent = Result((), 1, stdout, "WARNING: x\nERROR: could not connect\n")
    with refused("audit-failed", "ERROR: could not connect", kind=RunError) as caught:
        audit.read(silent)
    assert caught.value.exit_code == 4


def test_an_answer_about_no_package_is_an_error() -> None:
    with refused("audit-failed", "1 packages", SKIPPED["skip_reason"], kind=RunError):
        audit.read(result(SKIPPED))


def test_exactly_the_locked_versions_are_asked_for() -> None:
    assert audit.requirements(TINY) == "six==1.17.0\n"
    lines = audit.requirements(definition.load("torch-cpu")).splitlines()
    assert len(lines) > 10
    assert all(line.count("==") == 1 and "+" not in line for line in lines)
    assert len({line.partition("==")[0] for line in lines}) == len(lines)  # one Python's


def test_without_a_network_pip_audit_itself_gives_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setattr(definition, "load", lambda name: TINY)
    done = CliRunner().invoke(app, ["audit", "tiny"])
    assert isinstance(done.exception, RunError)
    assert done.exception.code == "audit-failed"
    assert "known vulnerabilities in" not in done.output


def test_without_pip_audit_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused("program-missing", "pip-audit", kind=UsageError) as caught:
        audit.audit(TINY)
    assert "pip install" in str(caught.value.hint)


@pytest.mark.parametrize(("answer", "code", "said"), [
    (result(SAFE), 0, "0 known vulnerabilities in 1 Python packages (0 not checked"),
    (result(SAFE, HIT, SKIPPED), 1, "1 known vulnerabilities in 2 Python packages (1 not checked"),
])
def test_the_exit_code_says_whether_there_are_any(
    monkeypatch: pytest.MonkeyPatch, answer: Result, code: int, said: str
) -> None:
    monkeypatch.setattr(definition, "load", lambda name: TINY)
    monkeypatch.setattr("trimaran.process.run", lambda *words, **options: answer)
    done = CliRunner().invoke(app, ["audit", "tiny"])
    assert done.exit_code == code
    assert said in " ".join(done.output.split())
