"""A run over TCP on a cluster with a faster fabric cannot pass a throughput expectation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from finished import DATA, SIF, launch
from refusals import refused
from samples import CARD, GOOD, write_outcome
from trimaran.errors import RunError
from trimaran.evidence import writing
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.recipe import Recipe
from trimaran.report import report, run_evidence
from trimaran.run import carriers, run_directory
from trimaran.run.carriers import FabricRecord
from trimaran.run.site_settings import SiteSettings
from trimaran.site_file import FabricName
from trimaran.verdict import run_verdict
from trimaran.verdict.metrics import UNNAMED, Event, Verdict, judge_metrics

SOCKET = " 4 Using network Socket\n"
IB = " 4 Using network IB\n 2 NET/IB : Using [0]mlx5_0:1/IB\n"
GLOO = ' 1 "backend": "gloo"\n'
RECIPE = Recipe.model_validate({**GOOD, "expected": [
    {"metric": "val_top1", "unit": "%", "at": "end", "value": 90.0, "lower": -0.01, "source": "a"},
    {"metric": "throughput", "unit": "img/s", "at": "end", "value": 1000.0, "lower": -0.1,
     "source": "a"},
]})


def judged(fabric: FabricRecord | None, speed: float = 1000.0, **more: Any) -> Verdict:
    events = [Event(time_ms=1, key=key, value=value, metadata={"epoch_num": 2})
              for key, value in (("eval_accuracy", 0.95), ("throughput", speed))]
    return judge_metrics(RECIPE, CARD, events, **{"changed": [], "unlike": [], **more},
                         fabric=fabric)


@pytest.mark.parametrize(("wanted", "log", "outcome"), [
    ("infiniband", SOCKET, "FAIL"), ("slingshot", GLOO, "FAIL"), ("roce", IB + SOCKET, "FAIL"),
    ("infiniband", IB, "PASS"), ("ethernet", SOCKET, "PASS"), ("ethernet", "", "PASS"),
    ("efa", " 4 Using network OFI\n 4 NET/OFI Selected provider is tcp\n", "FAIL"),
    ("efa", " 4 Using network OFI\n 4 NET/OFI Selected provider is efa\n", "PASS"),
])
def test_throughput_over_tcp_fails_and_accuracy_does_not(
    wanted: FabricName, log: str, outcome: str
) -> None:
    verdict = judged(carriers.parse(wanted, log))
    assert verdict.outcome == outcome
    accuracy, speed = verdict.rows[:2]
    assert (accuracy.outcome, accuracy.fault) == ("PASS", None)
    assert (speed.outcome, speed.fault is not None) == (outcome, outcome == "FAIL")


def test_cause_and_remedy_are_named() -> None:
    verdict = judged(carriers.parse("infiniband", GLOO))
    [note] = verdict.notes
    assert verdict.rows[1].fault == note
    for words in ("Gloo sent over TCP", "InfiniBand", "Horovod", "fabric: ethernet"):
        assert words in note
    assert any(note in sentence for sentence in report.sentences(verdict))


@pytest.mark.parametrize("log", [
    "",  # the log was lost, or `env` of the site file has NCCL_DEBUG: WARN
    " 1 Using network TCPX\n",
    IB + ' 1 "backend": "mpi"\n',  # no line of the library that averaged the gradients
])
def test_a_throughput_over_an_unknown_network_has_no_reference(log: str) -> None:
    verdict = judged(carriers.parse("infiniband", log))
    assert verdict.outcome == "NO REFERENCE"
    assert [row.outcome for row in verdict.rows[:2]] == ["PASS", "NO REFERENCE"]
    [reason] = verdict.reasons
    assert "InfiniBand, but the logs do not show" in reason
    assert any(reason in sentence for sentence in report.sentences(verdict))
    assert judged(None).outcome == "PASS"


def test_a_throughput_of_several_nodes_without_a_named_fabric_has_a_note() -> None:
    verdict = judged(None, several_nodes=True)
    assert (verdict.outcome, verdict.notes) == ("PASS", [UNNAMED])
    assert judged(carriers.parse("infiniband", IB), several_nodes=True).notes == []


def test_an_unknown_network_does_not_concern_accuracy() -> None:
    only = RECIPE.model_copy(update={"expected": RECIPE.expected[:1]})
    events = [Event(time_ms=1, key="eval_accuracy", value=0.95, metadata={"epoch_num": 2})]
    verdict = judge_metrics(only, CARD, events, changed=[], unlike=[],
                            fabric=carriers.parse("infiniband", ""))
    assert (verdict.outcome, verdict.reasons) == ("PASS", [])


@pytest.mark.parametrize("more", [{"changed": ["seed"]}, {"unlike": ["4 cores"]}])
def test_what_has_no_reference_has_none_over_tcp_either(more: dict[str, object]) -> None:
    verdict = judged(carriers.parse("infiniband", SOCKET), **more)
    assert (verdict.rows[1].outcome, verdict.rows[1].fault) == ("NO REFERENCE", None)


def finish(directory: Path, recipe: RecipeFile, log: str | None) -> None:
    """Make the directory of a finished run of a job on a cluster with InfiniBand."""
    site = SiteSettings(fabric="infiniband")
    spec = launch(recipe, {}, SIF, site=site)
    record = run_directory.start(directory, recipe, {}, SIF, [DATA], spec, site=site)
    [use] = recipe.recipe.data.values()
    write_outcome(directory, 0.95, counts=use.samples)
    if log is not None:
        (directory / carriers.LOG).write_text(log)
    run_directory.finish(directory, record, "completed", 0)


def test_the_networks_stand_in_run_json_report_and_evidence(
    recipe: RecipeFile, own_place: Path
) -> None:
    run = own_place / "run"
    finish(run, recipe, IB)
    record, verdict = report.write(run)
    expected = {"wanted": "infiniband", "backend": None, "carried": [
        {"library": "NCCL", "transport": "IB", "interface": "mlx5_0", "kind": "fast", "lines": 4},
    ]}
    assert json.loads((run / "run.json").read_text())["fabric"] == expected
    for name in ("report.md", "report.html"):
        text = (run / name).read_text().replace("\\", "")
        assert "InfiniBand in the site file; used: NCCL: IB on mlx5_0" in text
    file = own_place / "evidence.json"
    writing.write(run, record, verdict, file)
    found = json.loads(file.read_text())
    assert found["run"]["fabric"] == expected
    run_evidence.RunEvidence.model_validate(found)
    again, same = report.write(run)
    assert (again.fabric, same.outcome) == (record.fabric, verdict.outcome)
    found["run"]["site"]["fabric"] = None
    with pytest.raises(ValidationError, match="does not name infiniband"):
        run_evidence.RunEvidence.model_validate(found)


def test_run_json_is_written_once_and_that_of_another_user_never(
    recipe: RecipeFile, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = own_place / "run"
    finish(run, recipe, IB)
    before = (run / "run.json").read_bytes()
    with monkeypatch.context() as other:
        other.setattr(os, "getuid", lambda: (run / "run.json").stat().st_uid + 1)
        report.write(run)
    assert (run / "run.json").read_bytes() == before
    assert "NCCL: IB" in (run / "report.md").read_text()
    report.write(run)
    written = (run / "run.json").stat()
    assert (run / "run.json").read_bytes() != before
    report.write(run)
    assert (run / "run.json").stat().st_ino == written.st_ino


def test_evidence_with_a_fault_agrees_with_its_networks(
    recipe: RecipeFile, own_place: Path
) -> None:
    run = own_place / "run"
    finish(run, recipe, SOCKET)
    record, verdict = report.write(run)
    slow = carriers.fault(record.fabric)
    assert slow is not None
    row = verdict.rows[0].model_copy(update={"fault": slow, "outcome": "FAIL"})
    failed = verdict.model_copy(update={"rows": [row], "outcome": "FAIL"})
    file = own_place / "evidence.json"
    writing.write(run, record, failed, file)
    found = json.loads(file.read_text())
    run_evidence.RunEvidence.model_validate(found)
    found["verdict"]["rows"][0]["outcome"] = found["verdict"]["outcome"] = "PASS"
    with pytest.raises(ValidationError, match="contradicts"):
        run_evidence.RunEvidence.model_validate(found)
    found["verdict"]["rows"][0]["outcome"] = found["verdict"]["outcome"] = "FAIL"
    found["run"]["fabric"]["carried"][0]["kind"] = "fast"
    with pytest.raises(ValidationError, match="do not show the fault"):
        run_evidence.RunEvidence.model_validate(found)


@pytest.mark.parametrize("damage", ["changed", "lost", "hidden"])
def test_a_log_that_is_not_the_one_of_the_run_is_damage(
    recipe: RecipeFile, own_place: Path, damage: str
) -> None:
    run = own_place / "run"
    finish(run, recipe, SOCKET)
    if damage == "changed":
        (run / carriers.LOG).write_text(IB)
    elif damage == "lost":
        (run / carriers.LOG).unlink()
    else:
        record = json.loads((run / "run.json").read_text())
        record["site"]["fabric"] = None
        (run / "run.json").write_text(json.dumps(record))
    with refused("run-inconsistent", kind=RunError) as caught:
        run_verdict.judge(run)
    assert carriers.LOG in caught.value.message


def test_a_run_without_the_log_has_an_unknown_network(recipe: RecipeFile, own_place: Path) -> None:
    finish(own_place / "run", recipe, None)
    record, verdict = report.write(own_place / "run")
    assert record.fabric == FabricRecord(wanted="infiniband")
    assert verdict.outcome == "PASS", "the recipe expects no throughput"
    assert "not shown by the logs" in (own_place / "run/report.md").read_text()
