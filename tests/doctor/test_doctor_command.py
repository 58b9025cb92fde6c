"""Test `trimaran doctor` and `trimaran submit` on the command line."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

import hosts
import situations
from trimaran import cli
from trimaran.doctor import checks, facts, measuring
from trimaran.doctor.facts import NodeFacts
from trimaran.errors import RunError

SMOKE = "resnet-imagenet/cpu-2node-smoke"


def call(*words: str, site: Path | None = None) -> Result:
    env = {"TRIMARAN_SITE": str(site) if site else None, "COLUMNS": "200"}
    return CliRunner().invoke(cli.app, list(words), env=env)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the fake programs of a simulated GPU node at the beginning of PATH."""
    root = hosts.copy("gpu-a100", tmp_path)
    (root / "bin/id").unlink()
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
    return root


def site(tmp_path: Path, **facts: object) -> Path:
    path = tmp_path / "site.yaml"
    path.write_text(yaml.safe_dump({"clusters": {"own": facts}}))
    return path


def test_findings_are_a_table_and_json(host: Path) -> None:
    shown = call("doctor")
    assert shown.exit_code == 0, shown.output
    assert "apptainer version 1.3.6" in shown.output
    done: dict[str, Any] = json.loads(call("doctor", SMOKE, "--json").stdout)
    assert (done["recipe"], done["cluster"]) == (SMOKE, None)
    [node] = done["nodes"]
    assert node["role"] == "login"
    names = [finding["id"] for finding in node["findings"]]
    assert len(names) == len(set(names))
    assert set(names) <= set(checks.FINDINGS)
    assert all(finding["level"] in ("ok", "warn", "fail") for finding in node["findings"])


def test_what_is_broken_has_an_exit_code(host: Path) -> None:
    hosts.program(host, "apptainer", "exit 1")
    done = call("doctor")
    assert done.exit_code == 4
    assert "FAIL" in done.output


@pytest.mark.parametrize(("words", "code"), [
    (["doctor", "no/such-recipe"], "name-unknown"), (["doctor", "--cluster", "x"], "name-unknown"),
    (["doctor", "--nodes", "2"], "argument-invalid"),
    (["doctor", "--measure"], "argument-missing"),
    (["doctor", SMOKE, "--cluster", "own", "--measure"], "argument-missing"),
])
def test_wrong_arguments_are_refused(host: Path, words: list[str], code: str) -> None:
    named = site(host, mpi="pmix") if "own" in words else None
    done = call(*words, site=named)
    assert getattr(done.exception, "code", None) == code


def test_findings_are_shown_also_if_the_measurement_fails(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RunError("the app failed", code="app-failed")

    monkeypatch.setattr(measuring, "here", fail)
    done = call("doctor", SMOKE, "--measure", "--json")
    assert getattr(done.exception, "code", None) == "app-failed"
    assert json.loads(done.stdout)["recipe"] == SMOKE


def test_submit_refuses_what_cannot_work(host: Path, tmp_path: Path) -> None:
    own = site(tmp_path, mpi="pmix_v9")
    hosts.program(host, "squeue", "exit 1")
    done = call("submit", SMOKE, "--offline", site=own)
    assert getattr(done.exception, "code", None) == "node-unsuitable"
    assert "pmi-flavour" in str(done.exception)
    forced = call("submit", SMOKE, "--offline", "--force", site=own)
    assert getattr(forced.exception, "code", None) != "node-unsuitable"
    fine = call("submit", SMOKE, "--offline", site=site(tmp_path, mpi="pmix"))
    assert getattr(fine.exception, "code", None) == getattr(forced.exception, "code", None)
    assert call("submit", SMOKE, "--dry-run", site=own).exit_code == 0


@pytest.mark.parametrize(("partition", "options", "code"), [
    ("x", [], "node-unsuitable"), ("x", ["--force"], "image-missing"),
    ("grace", [], "image-missing"), ("x", ["--set", "no-such=1"], "argument-invalid"),
])
def test_submit_demands_an_image_only_for_the_architecture_of_the_partition(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    partition: str, options: list[str], code: str,
) -> None:
    """The site file says that the nodes are arm64, and no image is here."""
    known = situations.with_facts(NodeFacts("login"), {
        "kinds-of-nodes": "Arch=aarch64 AvailableFeatures=a Partitions=grace\n"
                          "Arch=x86_64 AvailableFeatures=b Partitions=x"})
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(facts, "of_this_host", lambda *_, **__: known)
    own = site(tmp_path, partition=partition, architecture="arm64")
    done = call("submit", SMOKE, "--offline", *options, site=own)
    assert getattr(done.exception, "code", None) == code
    if code == "node-unsuitable":
        assert "node-architecture" in str(done.exception)


def test_submit_names_force_if_the_checks_hang(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "SECONDS", 0.5)
    hosts.program(host, "srun", "sleep 100")
    hosts.program(host, "squeue", "exit 1")
    done = call("submit", SMOKE, "--offline", site=site(tmp_path, mpi="pmix"))
    assert getattr(done.exception, "code", None) == "program-timeout"
    assert "--force" in getattr(done.exception, "hint", "")
