"""Test the choice of an engine by name, and that a row in a table is enough to add an engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import barge
from commandline import command
from finished import DATA, launch
from refusals import refused
from samples import GOOD, write_outcome
from trimaran import cli
from trimaran.doctor import machine
from trimaran.doctor.findings import Finding
from trimaran.engines import BuiltImage, image_contents, podman, selection
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import RunError
from trimaran.evidence import writing
from trimaran.images import bases, definition, render, wheelhouse
from trimaran.inventory import cache_usage, catalog
from trimaran.launch.specification import Mount
from trimaran.provenance.registry import forms
from trimaran.recipes import library
from trimaran.recipes.library import RecipeFile
from trimaran.report import report
from trimaran.report.run_evidence import RunEvidence
from trimaran.reporting import Silent
from trimaran.run import pipeline, run_directory
from trimaran.run.additions import VENV_INSIDE
from trimaran.run.record import ImageRecord
from trimaran.run.request import Request

TINY = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")


@pytest.mark.parametrize("name", selection.ENGINES)
def test_an_engine_says_of_itself_what_its_row_does(name: str) -> None:
    engine = selection.every()[name]
    assert engine.name == name
    assert engine.container == (name in selection.containers()) == (engine.form is not None)
    assert engine.container == selection.is_container(name)


def test_auto_is_apptainer_where_it_is_and_else_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.engines.apptainer.program", lambda: "/usr/bin/apptainer")
    assert [selection.select(name).name for name in (None, "", "auto")] == 3 * ["apptainer"]
    monkeypatch.setattr("trimaran.engines.apptainer.program", lambda: None)
    assert selection.select("auto").name == "host"
    with refused("program-missing", "Apptainer"):
        selection.select("apptainer")


def test_a_misspelt_engine_is_refused_with_the_nearest_name() -> None:
    with refused("name-unknown", "podmam") as caught:
        selection.select("podmam")
    assert " podman?" in str(caught.value.hint)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> barge.Barge:
    """Return the example engine `barge`, which is added only by a row in the table of engines."""
    monkeypatch.setitem(selection.ENGINES, "barge", barge.ROW)
    monkeypatch.setattr(bases, "unreachable", lambda image: None)
    monkeypatch.setattr("trimaran.hostfacts.root_lacks_capabilities", lambda: False)
    monkeypatch.setattr(render, "check", lambda image: None)
    monkeypatch.setattr(wheelhouse, "fetch", lambda *words, **more: [])
    monkeypatch.setattr(image_contents, "record", lambda *words: None)
    found = selection.select("barge")
    assert isinstance(found, barge.Barge)
    return found


def build(engine: barge.Barge) -> BuiltImage:
    return engine.build(TINY, base=None, offline=False, reporter=Silent())


def test_a_new_engine_builds_finds_and_lists(engine: barge.Barge) -> None:
    built = build(engine)
    assert engine.find(TINY) == built == engine.find(TINY, built.digest)
    assert build(engine) == built
    [row] = catalog.local_images([TINY])["tiny"]
    assert (row.record.engine, row.state, row.current) == ("barge", "built", True)
    Path(built.reference).write_text("changed")
    assert catalog.local_images([TINY])["tiny"][0].state == "damaged"
    assert built.reference in str(engine.damage(TINY))


def test_a_new_engine_is_looked_at_offered_and_cleared_up_after(engine: barge.Barge) -> None:
    assert Finding(id="engine-barge", level="ok", cause="afloat") in machine.engines()
    assert isinstance(forms.of(engine), forms.Sif)
    assert ImageRecord(
        name="tiny", engine="barge", reference="x", digest="sha256:0", inputs="0"
    ).publishable
    built = build(engine)
    [held] = [held for held in cache_usage.find() if held.kind == "SIF"]
    assert (held.name, held.state) == (Path(built.reference).stem, "superseded")  # tiny is a test's
    held.remove()
    assert not Path(built.reference).exists()


def test_a_dry_run_shows_the_words_of_a_new_engine(engine: barge.Barge) -> None:
    recipe = library.load("resnet-imagenet/cpu-quickstart")
    planned = pipeline.plan(Request(recipe, engine, {}))
    assert planned.command.argv[:2] == ("/opt/barge/bin/barge", "run")
    assert f"--engine {engine.name}" in planned.missing[-1]
    assert "barge" in pipeline.script(planned)


def finish(directory: Path, recipe: RecipeFile, engine: barge.Barge, *more: Mount) -> None:
    """Create the directory of a completed run of `recipe` in an image that `engine` has built."""
    built = build(engine)
    image = ImageRecord(name=recipe.recipe.image.name, engine=built.engine, inputs=built.inputs,
                        reference=built.reference, digest=built.digest)
    spec = launch(recipe, {}, image)
    spec = replace(spec, node=engine.node(built), mounts=(*spec.mounts, *more))
    record = run_directory.start(directory, recipe, {}, image, [DATA], spec)
    write_outcome(directory, 0.95)
    run_directory.finish(directory, record, "completed", 0)


def test_a_run_of_a_new_engine_is_judged_and_evidence(
    engine: barge.Barge, recipe: RecipeFile, tmp_path: Path
) -> None:
    recipe.path.write_text(yaml.safe_dump({**GOOD, "env": {"OMP_NUM_THREADS": "2"}}))
    directory, file = tmp_path / "run", tmp_path / "evidence.json"
    finish(directory, library.load(recipe.name), engine)
    record, judged = report.write(directory)
    assert judged.outcome == "PASS"
    writing.write(directory, record, judged, file)
    found = RunEvidence.model_validate_json(file.read_text())
    assert (found.run.image.engine, found.verdict.outcome) == ("barge", "PASS")
    raft = file.read_text().replace('"engine": "barge"', '"engine": "raft"')
    with pytest.raises(ValueError, match=r"raft.*apptainer, podman, barge"):
        RunEvidence.model_validate_json(raft)


def test_a_run_of_a_new_engine_is_not_judged_if_its_files_disagree(
    engine: barge.Barge, recipe: RecipeFile, tmp_path: Path
) -> None:
    finish(tmp_path / "run", recipe, engine, Mount("/v", VENV_INSIDE))
    with refused("run-inconsistent", ": mounts is ", "/v", kind=RunError):
        report.write(tmp_path / "run")


@pytest.mark.parametrize("name", ["apptainer", "podman", "barge"])
def test_the_row_of_an_engine_names_the_program_that_it_runs(
    engine: barge.Barge, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(podman, "_missing", list)
    monkeypatch.setattr("trimaran.engines.apptainer.program", lambda: "/opt/bin/apptainer")
    argv = command(selection.select(name), build(engine), []).argv
    assert Path(argv[0]).name in selection.row(name).programs


def test_what_an_engine_cannot_is_told_by_what_it_says_of_itself(
    engine: barge.Barge, recipe: RecipeFile, tmp_path: Path
) -> None:
    packed = tmp_path / "data.squashfs"
    packed.write_bytes(b"hsqs")
    with refused("engine-unsuitable", packed, "barge"):
        pipeline.check(Request(
            library.load(recipe.name), engine, {}, folders={"fashion-mnist": packed}
        ))
    assert Apptainer.mounts_images


def test_an_unknown_engine_of_a_record_is_no_container() -> None:
    assert not ImageRecord(
        name="tiny", engine="raft", reference="x", digest="sha256:0", inputs="0"
    ).publishable


def test_the_command_line_takes_it(engine: barge.Barge) -> None:
    words = ["run", "resnet-imagenet/cpu-quickstart", "--engine", "barge", "--dry-run"]
    done = CliRunner().invoke(cli.app, words)
    assert (done.exit_code, "/opt/barge/bin/barge run" in done.output) == (0, True)
    assert "barge" in CliRunner().invoke(cli.app, ["doctor"]).output
    built = build(engine)
    assert Path(built.reference).stem in CliRunner().invoke(cli.app, ["cache", "list"]).output
