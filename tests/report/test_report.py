"""Tests of reports: verdict, curves, provenance, evidence, and links in a run directory."""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

import datasets
from finished import DATA, SIF, finish, launch, start
from refusals import refused
from samples import GOOD, write_outcome
from trimaran.cli.terminal import show_verdict
from trimaran.errors import RunError, UsageError
from trimaran.evidence import writing
from trimaran.recipes import library
from trimaran.recipes.library import RecipeFile
from trimaran.report import report
from trimaran.reporting import Silent
from trimaran.run import run_directory
from trimaran.run.additions import Extension, Modification


@pytest.mark.parametrize(("accuracy", "outcome"), [(0.95, "PASS"), (0.5, "FAIL")])
def test_the_report_has_verdict_curves_and_provenance(
    recipe: RecipeFile, own_place: Path, accuracy: float, outcome: str
) -> None:
    directory = own_place / "run"
    record = finish(directory, recipe, accuracy)
    _, verdict = report.write(directory)
    assert verdict.outcome == outcome
    markdown = (directory / "report.md").read_text()
    page = (directory / "report.html").read_text()
    for text in (markdown, page):
        assert outcome in text
        assert recipe.sha256 in text
        assert "not in a container: not publishable as evidence" in text
        assert f"{accuracy * 100:.2f} %" in text
    assert page.count('<figure class="chart') == 3
    drawn = ElementTree.parse(directory / "curves.svg")  # noqa: S314 - the tool wrote it
    texts = {element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {recipe.name, "loss", "step"} <= texts
    evidence = json.loads((directory / "verdict.json").read_text())
    assert evidence["verdict"]["outcome"] == outcome
    assert evidence["run"]["command"]["argv"] == record.command.argv


def test_html_of_a_report_escapes_what_a_recipe_says(recipe: RecipeFile, own_place: Path) -> None:
    recipe.path.write_text(yaml.safe_dump({**GOOD, "summary": "<script>alert(1)</script>"}))
    directory = own_place / "run"
    finish(directory, library.load("resnet-imagenet/cpu-smoke"), 0.9)
    report.write(directory)
    page = (directory / "report.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_a_run_that_has_not_completed_is_not_judged(recipe: RecipeFile, own_place: Path) -> None:
    start(own_place / "run", recipe)
    with refused("run-incomplete", own_place / "run", "running", kind=UsageError):
        report.write(own_place / "run")


def test_a_recipe_changed_after_the_run_is_noticed(recipe: RecipeFile, own_place: Path) -> None:
    directory = own_place / "run"
    finish(directory, recipe, 0.5)
    copy = directory / "recipe.yaml"
    copy.write_text(copy.read_text().replace("value: 90", "value: 40"))
    with pytest.raises(UsageError, match=r"recipe\.yaml"):
        report.write(directory)


def test_evidence_names_no_folder_and_no_host(recipe: RecipeFile, own_place: Path) -> None:
    directory, file = own_place / "run", own_place / "results/evidence.json"
    image = SIF.model_copy(update={"reference": f"{own_place}/a.sif"})
    data = DATA.model_copy(update={"path": str(own_place)})
    spec = launch(recipe, {"seed": 3}, image, data)
    node = replace(spec.node, environment={"HOME": str(own_place)})
    record = run_directory.start(
        directory, recipe, {"seed": 3}, image, [data], replace(spec, node=node)
    )
    write_outcome(directory, 0.95)
    run_directory.finish(directory, record, "completed", 0)
    writing.write(directory, *report.write(directory), file)
    text = file.read_text()
    assert str(own_place) not in text
    assert record.host.hostname not in text
    kept = json.loads(text)
    assert kept["run"]["image"]["digest"] == image.digest
    assert kept["run"]["recipe"]["changed"] == {"seed": 3}
    assert kept["verdict"]["outcome"] == "PASS"
    with pytest.raises(UsageError, match=file.name):
        writing.write(directory, *report.write(directory), file)


def test_a_modified_run_says_so_and_is_no_evidence(recipe: RecipeFile, own_place: Path) -> None:
    directory = own_place / "run"
    spec = launch(recipe, {}, SIF, extension=Extension(packages=Path("/my/venv")))
    record = run_directory.start(
        directory, recipe, {}, SIF, [DATA], spec,
        [Modification(kind="venv", path="/my/venv", sha256="ef" * 32)],
    )
    write_outcome(directory, 0.9)
    run_directory.finish(directory, record, "completed", 0)
    judged = report.write(directory)
    written = json.loads((directory / "run.json").read_text())
    assert written["modified"] == [{"kind": "venv", "path": "/my/venv", "sha256": "ef" * 32}]
    said = "the image was modified (venv /my/venv): not publishable as evidence"
    assert said in (directory / "report.md").read_text()
    with refused("run-unpublishable", "venv /my/venv", kind=UsageError):
        writing.write(directory, *judged, own_place / "evidence.json")
    assert not (own_place / "evidence.json").exists()


def test_a_run_outside_a_container_is_no_evidence(recipe: RecipeFile, own_place: Path) -> None:
    directory = own_place / "run"
    finish(directory, recipe, 0.95)
    judged = report.write(directory)
    with refused("run-unpublishable", recipe.name, kind=UsageError):
        writing.write(directory, *judged, own_place / "evidence.json")


def test_a_reference_of_another_image_is_told_wherever_the_verdict_is(
    checkout: Path, own_place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = {"date": "2026-11-01", "host": "a host", "command": "c", "seeds": {1: 90.0},
                "image_digest": "sha256:" + "ab" * 32}
    expected = [{**GOOD["expected"][0], "source": None, "measured": measured}]
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({**GOOD, "expected": expected}))
    finish(own_place / "run", library.load("resnet-imagenet/cpu-smoke"), image=SIF)
    record, verdict = report.write(own_place / "run")
    assert verdict.outcome == "PASS"
    show_verdict(verdict, record.recipe.name, [])
    said = f"reference measured with image sha256:{'ab' * 32}, this run used image {SIF.digest}"
    for text in (
        capsys.readouterr().out,
        *((own_place / "run" / name).read_text()
          for name in ("report.md", "report.html", "verdict.json")),
    ):
        assert said in text


def test_a_run_of_before_there_were_cards_is_judged_by_that_of_the_checkout(
    recipe: RecipeFile, own_place: Path, checkout: Path
) -> None:
    """A run of an older version, without an app card, is judged by the app card of the checkout.

    These versions also wrote only one data set in run.json.
    """
    directory = own_place / "run"
    finish(directory, recipe, 0.95)
    whole = report.write(directory)[1]
    (directory / "app.yaml").unlink()
    record = json.loads((directory / "run.json").read_text())
    del record["recipe"]["card_sha256"]
    record |= {"schema_version": 1, "data": record["data"][0]}
    (directory / "run.json").write_text(json.dumps(record))
    assert report.write(directory)[1] == whole
    (checkout / "apps/resnet-imagenet/app.yaml").unlink()
    with refused("file-missing", "resnet-imagenet/app.yaml", kind=UsageError):
        report.write(directory)


def test_a_run_keeps_the_card_that_it_is_judged_by(
    recipe: RecipeFile, own_place: Path, checkout: Path
) -> None:
    directory, card = own_place / "run", checkout / "apps/resnet-imagenet/app.yaml"
    finish(directory, recipe, 0.95)
    card.write_text(card.read_text().replace("factor: 100", "factor: 1000"))
    record, verdict = report.write(directory)
    assert verdict.outcome == "PASS"
    assert any("app card" in note for note in report.notes(record))
    (directory / "app.yaml").write_text(card.read_text())
    with refused("run-changed", "run/app.yaml"):
        report.write(directory)


def test_what_was_compared_is_said(recipe: RecipeFile, own_place: Path) -> None:
    finish(own_place / "run", recipe)
    _, verdict = report.write(own_place / "run")
    assert verdict.outcome == "PASS"
    said = (own_place / "run/report.md").read_text()
    assert "## Checked before judging" in said
    assert len(verdict.checked) == 4
    for line in verdict.checked:
        assert line in said


def test_changed_arguments_are_a_table(recipe: RecipeFile, own_place: Path) -> None:
    changed: dict[str, Any] = {"epochs": 2, "model": "a|b_c", "nesterov": True}
    finish(own_place / "run", recipe, changed=changed)
    report.write(own_place / "run")
    text = (own_place / "run/report.md").read_text()
    assert "| epochs | 1 | 2 |" in text
    assert r"| model | resnet20 | a\|b\_c |" in text
    assert "| nesterov | the app's default | true |" in text
    page = (own_place / "run/report.html").read_text()
    cells = re.findall(r'data-column="[^"]+">([^<]*)<', page)
    for row in (["epochs", "1", "2"], ["model", "resnet20", "a|b_c"]):
        at = cells.index(row[0])
        assert cells[at : at + 3] == row


def test_a_run_without_curves_has_no_picture(recipe: RecipeFile, own_place: Path) -> None:
    directory = own_place / "run"
    record = start(directory, recipe)
    lines = [{"key": "run_start"}, {"key": "run_stop", "metadata": {"status": "success",
                                                                    "step": 1}}]
    (directory / "metrics.jsonl").write_text(
        "".join(json.dumps({"time_ms": 1, **line}) + "\n" for line in lines)
    )
    (directory / "result.json").write_text('{"status": "success", "steps": 1, "evaluation": null}')
    (directory / "curves.svg").write_text("of an older report")
    run_directory.finish(directory, record, "completed", 0)
    assert report.write(directory)[1].outcome == "FAIL"
    assert not list(directory.glob("curves.*"))
    assert "Curves" not in (directory / "report.md").read_text()


def test_a_flag_in_run_json_makes_no_evidence(recipe: RecipeFile, own_place: Path) -> None:
    directory = own_place / "run"
    finish(directory, recipe)
    text = (directory / "run.json").read_text()
    assert '"publishable": false' in text
    (directory / "run.json").write_text(text.replace('"publishable": false', '"publishable": true'))
    judged = report.write(directory)
    with refused("run-unpublishable", recipe.name, kind=UsageError):
        writing.write(directory, *judged, own_place / "evidence.json")


@pytest.mark.parametrize("known", ["sha256", "earlier", "not"])
def test_data_that_the_contract_does_not_pin_have_no_reference(
    recipe: RecipeFile, own_place: Path, checkout: Path, known: str
) -> None:
    source = Path(__file__).parents[2] / "recipes/data/fashion-mnist.yaml"
    contract = yaml.safe_load(source.read_text())
    contract["packed"] = {"sha256": "00" * 32, "earlier": ["11" * 32]}
    if known != "not":
        contract["packed"][known] = DATA.sha256 if known == "sha256" else [DATA.sha256]
    datasets.write(checkout / "recipes/data/fashion-mnist.yaml", contract)
    finish(own_place / "run", recipe)
    _, verdict = report.write(own_place / "run")
    assert verdict.outcome == ("NO REFERENCE" if known == "not" else "PASS")
    if known == "not":
        [reason] = verdict.reasons
        assert "fashion-mnist" in reason
        assert f"dataset.json {DATA.sha256[:12]}…" in reason


@pytest.mark.parametrize("name", ["verdict.json", "report.md", "report.html", "curves.svg"])
def test_what_a_report_writes_replaces_a_link(
    recipe: RecipeFile, own_place: Path, name: str
) -> None:
    finish(own_place / "run", recipe)
    (own_place / "precious").write_text("precious")
    (own_place / "run" / name).symlink_to(own_place / "precious")
    report.write(own_place / "run")
    assert (own_place / "precious").read_text() == "precious"
    assert not (own_place / "run" / name).is_symlink()


@pytest.mark.parametrize("name", ["run.json", "recipe.yaml", "app.yaml", "metrics.jsonl",
                                  "result.json"])
def test_what_a_report_reads_is_no_link(recipe: RecipeFile, own_place: Path, name: str) -> None:
    finish(own_place / "run", recipe)
    (own_place / "run" / name).rename(own_place / "elsewhere")
    (own_place / "run" / name).symlink_to(own_place / "elsewhere")
    with pytest.raises(UsageError, match=f"{name} is a link"):
        report.write(own_place / "run")
    assert not (own_place / "run/verdict.json").exists()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_run_in_which_this_user_may_not_write_is_judged(
    recipe: RecipeFile, own_place: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    finish(own_place / "run", recipe)
    before = sorted((own_place / "run").iterdir())

    def refuse(path: Path, _: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(report, "write_atomic", refuse)
    reporter = Silent()
    _, verdict, written = report.write_if_allowed(own_place / "run", reporter)
    assert (verdict.outcome, written) == ("PASS", False)
    [warning] = reporter.warnings
    assert os.strerror(number) in warning
    assert sorted((own_place / "run").iterdir()) == before
    number = errno.ENOSPC
    with refused("file-unwritable", own_place / "run", kind=RunError):
        report.write_if_allowed(own_place / "run", reporter)


def test_a_report_that_cannot_be_written_is_named(recipe: RecipeFile, own_place: Path) -> None:
    finish(own_place / "run", recipe)
    (own_place / "run/report.md").mkdir()
    with refused("file-unwritable", own_place / "run", "report.md", kind=RunError):
        report.write(own_place / "run")
