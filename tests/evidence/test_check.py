"""Evidence that others hand in: which files are accepted, and which are refused.

A refusal has an error code and, where they are known, the line and the key of the fault.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from finished import SIF, finish, write_recipe
from refusals import refused
from samples import GOOD
from trimaran import architectures, cli, paths
from trimaran.evidence import check, content, writing
from trimaran.evidence.check import Checked
from trimaran.recipes.library import RecipeFile
from trimaran.report import report

TODAY = date(2026, 11, 28)


@pytest.fixture
def file(recipe: RecipeFile, own_place: Path) -> Path:
    """Write the evidence of a run that passes with an accuracy of 95 %, and return its path."""
    record = finish(own_place / "run", recipe, 0.95, image=SIF)
    return writing.add(own_place / "run", record, report.write(own_place / "run")[1])


def called(*words: str) -> Result:
    return CliRunner().invoke(cli.app, list(words))


def judged(path: Path, today: date = TODAY) -> Checked:
    return check.check(path, today, ["alice"], content.listed())


def edit(path: Path, change: Callable[[Any], object], *, seal: bool = True) -> None:
    """Change evidence; with `seal`, update its hash to the new content."""
    whole = json.loads(path.read_text())
    change(whole)
    path.write_text(json.dumps(content.sealed(whole) if seal else whole, indent=2))


def test_what_was_added_is_accepted(file: Path) -> None:
    found = judged(file)
    assert (found.faults, found.notes) == ([], [])
    assert found.version == "current"
    assert not found.stale


def test_the_image_and_the_machines_have_one_architecture(
    recipe: RecipeFile, own_place: Path
) -> None:
    image = SIF.model_copy(update={"architecture": architectures.native()})
    record = finish(own_place / "run", recipe, 0.95, image=image)
    file = writing.add(own_place / "run", record, report.write(own_place / "run")[1])
    found = judged(file)
    assert found.faults == []
    assert found.evidence is not None
    assert found.evidence.run.image.architecture == architectures.native()


def test_all_published_evidence_of_runs_is_accepted() -> None:
    """Only one file of each recipe is checked, to save time; a build of the site reads all."""
    folders = {path.parent for path in check.found([paths.repository() / "site/results"])}
    known = content.listed()
    for folder in sorted(folders):
        found = check.check(min(folder.glob("*.json")), TODAY, [], known)
        assert found.faults == [], found
        assert found.evidence is not None
        assert found.version in ("current", "older")


@pytest.mark.parametrize(("change", "code", "key"), [
    (lambda c: c["run"].update(hostname="n1"), "evidence-invalid", "run.hostname"),
    (lambda c: c["run"]["host"].update(hostname="n1"), "evidence-invalid", "run.host.hostname"),
    (lambda c: c["run"]["image"].pop("digest"), "evidence-invalid", "run.image.digest"),
    (lambda c: c["verdict"]["notes"].append("in /home/bob/run"), "evidence-private",
     "verdict.notes.0"),
    (lambda c: c["verdict"]["notes"].append("by alice"), "evidence-private", "verdict.notes.0"),
    (lambda c: c["verdict"]["notes"].append("on n1.cluster.local"), "evidence-private",
     "verdict.notes.0"),
    (lambda c: c["verdict"]["notes"].append("to 10.0.0.7"), "evidence-private", "verdict.notes.0"),
    (lambda c: c["run"].update(environment={"HOSTNAME": "n1"}), "evidence-private",
     "run.environment.HOSTNAME"),
    (lambda c: c["verdict"]["rows"][0].update(measured=12.0), "evidence-contradicts",
     "verdict.rows.0"),
    (lambda c: c["verdict"].update(outcome="FAIL"), "evidence-contradicts", "verdict"),
    (lambda c: c["verdict"]["rows"][0].update(measured=94.0), "evidence-contradicts", "the file"),
    (lambda c: c["verdict"]["rows"][0].update(low=1.0), "evidence-contradicts", "verdict.rows.0"),
    (lambda c: c["verdict"]["rows"][0].update(metric="val_top9"), "evidence-contradicts",
     "verdict.rows"),
    (lambda c: c["run"]["recipe"].update(changed={"epochs": 99}), "evidence-contradicts",
     "verdict.rows.0.outcome"),
    (lambda c: c["run"].update(ended="2000-01-01T00:00:00Z"), "evidence-contradicts", "the file"),
    (lambda c: (c["run"]["image"].update(architecture="arm64"),
                c["run"]["host"].update(architecture="x86_64")), "evidence-contradicts",
     "the file"),
])
def test_a_fault_is_named_by_code_key_and_line(
    file: Path, change: Callable[[Any], object], code: str, key: str
) -> None:
    edit(file, change)
    first = judged(file).faults[0]
    assert (first.code, first.key) == (code, key), first
    assert first.line is not None
    assert f"{file}:{first.line}: {key}: " in first.text(file)
    last = key.rpartition(".")[2]
    if not last.isdigit() and last != "the file" and code != "evidence-invalid":
        assert f'"{last}"' in file.read_text().splitlines()[first.line - 1]


def test_a_pass_of_a_number_that_is_not_judged_is_refused(
    checkout: Path, own_place: Path
) -> None:
    (expected,) = GOOD["expected"]
    bare = {key: value for key, value in expected.items() if key not in ("lower", "upper", "warn")}
    recipe = write_recipe(checkout, expected=[{**bare, "unjudged": "another framework"}])
    record = finish(own_place / "run", recipe, 0.95, image=SIF)
    path = writing.add(own_place / "run", record, report.write(own_place / "run")[1])
    assert judged(path).faults == []

    def passes(whole: Any) -> None:
        whole["verdict"]["outcome"] = whole["verdict"]["rows"][0]["outcome"] = "PASS"

    edit(path, passes)
    assert any("does not judge" in fault.problem for fault in judged(path).faults)


def test_an_edited_file_is_refused_whatever_the_edit(file: Path) -> None:
    edit(file, lambda c: c["run"]["image"].update(inputs="0" * 64), seal=False)
    [fault] = judged(file).faults
    assert (fault.code, fault.key) == ("evidence-edited", "sha256")


def test_another_layout_of_the_file_is_no_edit(file: Path) -> None:
    whole = json.loads(file.read_text())
    file.write_text(json.dumps(dict(reversed(whole.items()))))
    assert judged(file).faults == []


def test_a_file_whose_hash_was_removed_is_refused(file: Path) -> None:
    edit(file, lambda c: (c.pop("sha256"), c.pop("schema")), seal=False)
    [fault] = judged(file).faults
    assert (fault.code, fault.key) == ("evidence-unhashed", "sha256")


def test_a_listed_older_file_is_accepted_and_its_edit_is_refused(checkout: Path) -> None:
    source = paths.SHARE.parents[2] / "site/results"
    name = "resnet-imagenet/cpu-quickstart/2026-11-23-epyc-avx2-2core-seed17.json"
    folder = checkout / "site/results"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_bytes((source / name).read_bytes())
    (folder / content.LISTED).write_bytes((source / content.LISTED).read_bytes())
    found = judged(folder / name)
    assert found.faults == []
    assert any(content.LISTED in note for note in found.notes)
    (folder / name).write_text((folder / name).read_text().replace('"cores": 2', '"cores": 3'))
    assert [fault.code for fault in judged(folder / name).faults] == ["evidence-unhashed"]


@pytest.mark.parametrize("schema", [2, 0, "1", None, True, [1], 10**50])
def test_an_unknown_schema_is_refused(file: Path, schema: object) -> None:
    edit(file, lambda c: c.update(schema=schema), seal=False)
    [fault] = judged(file).faults
    assert (fault.code, fault.key) == ("evidence-invalid", "schema")


@pytest.mark.parametrize("text", ["[]", "{}", '"run"', "1", '{"benchmark": "x"}'])
def test_json_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    [fault] = judged(tmp_path / "a.json").faults
    assert fault.code == "evidence-invalid"


def test_another_version_of_the_recipe_is_said_and_not_refused(file: Path, checkout: Path) -> None:
    write_recipe(checkout, summary="Another test.")
    found = judged(file)
    assert found.faults == []
    assert found.version == "older"
    assert "older" in found.notes[0]


def test_a_recipe_that_is_not_here_is_said(file: Path, checkout: Path) -> None:
    (checkout / "recipes/resnet-imagenet/cpu-smoke.yaml").unlink()
    found = judged(file)
    assert (found.faults, found.version) == ([], "unknown")
    assert "resnet-imagenet/cpu-smoke" in found.notes[0]


def test_evidence_older_than_a_year_is_said_and_not_refused(file: Path) -> None:
    day = judged(file).evidence
    assert day is not None
    assert not judged(file, day.day + timedelta(365)).stale
    found = judged(file, day.day + timedelta(367))
    assert (found.faults, found.stale) == ([], True)
    assert "stale" in found.notes[0]


def test_a_file_name_with_the_name_of_a_user_is_refused(file: Path, tmp_path: Path) -> None:
    named = tmp_path / "of-alice.json"
    named.write_bytes(file.read_bytes())
    assert [one.code for one in judged(named).faults] == ["evidence-private"]


@pytest.mark.parametrize(("place", "key"), [
    ("resnet-imagenet/cpu-quickstart/{day}-a.json", "run.recipe.name"),
    ("{day}-a.json", "run.recipe.name"),
    ("resnet-imagenet/cpu-smoke/newest.json", "the file"),
    ("resnet-imagenet/cpu-smoke/2020-01-01-a.json", "run.started"),
])
def test_a_file_in_the_wrong_place_is_refused(file: Path, place: str, key: str) -> None:
    found = judged(file).evidence
    assert found is not None
    to = file.parents[2] / place.format(day=found.day)
    to.parent.mkdir(parents=True, exist_ok=True)
    file.rename(to)
    [fault] = judged(to).faults
    assert (fault.code, fault.key) == ("evidence-misplaced", key)


@pytest.mark.parametrize(("raw", "code"), [
    (b"", "file-invalid"), (b"{", "file-invalid"), (b"\xff\xfe\x00", "file-invalid"),
    (b'{"run": "\xff"}', "file-invalid"), (b'{"run": 1, "run": 2}', "file-invalid"),
    (b'{"run": ' + b"[" * 40 + b"]" * 40 + b"}", "file-invalid"),
    (b'{"run": ' + b"[" * 100_000 + b"}", "file-invalid"),
    (b'{"run": ' + b"9" * 5000 + b"}", "file-invalid"),
    (b'{"run": 1e999}', "evidence-unhashed"), (b'{"run": NaN}', "evidence-unhashed"),
    (b'{"run": "\\ud800"}', "file-invalid"), (b'{"run": "\\u0000"}', "file-invalid"),
    (b'{"run": ' + b" " * check.LIMIT + b"1}", "file-too-large"),
])
def test_a_hostile_file_is_one_documented_error(tmp_path: Path, raw: bytes, code: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(raw)
    start = time.monotonic()
    faults = judged(path).faults
    assert faults[0].code == code
    assert time.monotonic() - start < 5


def test_links_and_pipes_are_not_read(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(file)
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("link.json", "pipe.json"):
        assert [fault.code for fault in judged(tmp_path / name).faults] == ["file-not-plain"]
    assert [fault.code for fault in judged(tmp_path / "none.json").faults] == ["file-missing"]


def test_of_many_faults_the_first_are_named(file: Path) -> None:
    edit(file, lambda c: c["verdict"]["notes"].extend(["/home/bob"] * 50))
    faults = judged(file).faults
    assert len(faults) == check.MOST + 1
    assert "30 more" in faults[-1].problem


def test_a_folder_is_its_files_of_runs(file: Path, tmp_path: Path) -> None:
    results = file.parents[2]
    for name in ("benchmarks/2026-01-01-a.json", "images/a/2026-01-01-a.json"):
        (results / name).parent.mkdir(parents=True)
        (results / name).write_text("{}")
    (results / "README.md").touch()
    assert list(check.found([results])) == [file]
    (tmp_path / "empty").mkdir()
    with refused("file-missing", tmp_path / "empty"):
        list(check.found([tmp_path / "empty"]))


def test_the_command_says_all_and_exits_with_two(file: Path) -> None:
    other = file.with_name(file.name.replace(".json", "-2.json"))
    other.write_bytes(file.read_bytes())
    edit(other, lambda c: c.update(curves=[]), seal=False)
    done = called("evidence", "check", str(file.parent))
    assert done.exit_code == 2
    assert f"{file}: accepted: resnet-imagenet/cpu-smoke, PASS" in done.stdout
    assert f"{other}: refused" in done.stdout
    assert "1 of 2 files accepted" in done.stdout
    assert "error[evidence-edited]:" in done.stderr
    done = called("evidence", "check", str(file), str(other), "--json")
    assert done.exit_code == 2
    found = json.loads(done.stdout)
    assert [one["accepted"] for one in found] == [True, False]
    assert found[0]["version"] == "current"
    assert found[1]["faults"][0]["code"] == "evidence-edited"
    assert called("evidence", "check", str(file)).exit_code == 0
