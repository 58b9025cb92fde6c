"""Test `trimaran submit` with several recipes: refused combinations of options, and output."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from refusals import refused
from trimaran import cli
from trimaran.cli.submissions import Ways, folders
from trimaran.errors import UsageError
from trimaran.recipes import library

ONE = "resnet-imagenet/cpu-quickstart"
CYCLIC = [f"resnet-imagenet/skx8160-2s-cyclic{part}-convergence" for part in (1, 2, 3)]


def ways(*, together: bool = False, chain: bool = False, **words: str) -> Ways:
    return Ways(nodes=words.get("nodes"), seeds=words.get("seeds"), together=together,
                chain=chain, form=words.get("form"))


@pytest.mark.parametrize(
    ("chosen", "recipes"),
    [
        (ways(), [ONE, ONE]),
        (ways(together=True, chain=True), CYCLIC),
        (ways(together=True, nodes="2"), CYCLIC),
        (ways(chain=True, form="docker"), CYCLIC),
        (ways(seeds="1,2"), [ONE]),
        (ways(chain=True, seeds="1,2"), CYCLIC),
    ],
)
def test_options_that_exclude_each_other_are_refused(chosen: Ways, recipes: list[str]) -> None:
    with refused("arguments-conflict"):
        chosen.check(recipes)


def test_each_recipe_is_trained_with_each_seed() -> None:
    trainings = ways(together=True, seeds="3,1").trainings([ONE], {"epochs": 2})
    assert [changes for _, changes in trainings] == [
        {"epochs": 2, "seed": 3}, {"epochs": 2, "seed": 1}]
    with refused("arguments-conflict", "--set seed"):
        ways(together=True, seeds="1,2").trainings([ONE], {"seed": 3})


@pytest.mark.parametrize("seeds", ["", "1,,2", "-1", "1.5", "x", "9" * 40, "٣", "1;2"])
def test_a_seed_that_is_no_number_is_refused(seeds: str) -> None:
    with refused("argument-invalid", seeds):
        ways(together=True, seeds=seeds).trainings([ONE], {})


def test_a_data_set_belongs_to_the_recipes_that_read_it() -> None:
    files = [library.load(name) for name in (ONE, CYCLIC[0])]
    [own], [other] = (list(file.recipe.data) for file in files)
    words = [f"{own}=/a", f"{other}=/b"]
    assert [folders(file, files, words) for file in files] == [
        {own: Path("/a")}, {other: Path("/b")}]


@pytest.mark.usefixtures("own_place")
@pytest.mark.parametrize(
    ("words", "scripts"),
    [([ONE, "--together", "--seeds", "1,2,3,4"], 5), ([*CYCLIC, "--chain"], 3)],
)
def test_all_scripts_are_printed_each_with_its_place(words: list[str], scripts: int) -> None:
    done = CliRunner().invoke(cli.app, ["submit", *words, "--dry-run"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines.count("#!/bin/sh") == scripts
    places = [line for line in lines if line.startswith("# file: ")]
    assert len(set(places)) == scripts
    assert not list(Path().glob("runs/**/*.json"))


@pytest.mark.parametrize("command", ["report", "resume", "logs"])
@pytest.mark.parametrize("kind", ["together", "chain"])
def test_a_command_for_one_run_names_the_runs_of_a_folder(
    command: str, kind: str, tmp_path: Path
) -> None:
    (tmp_path / f"{kind}.json").write_text('{"runs": ["1-a", "2-b"]}')
    result = CliRunner().invoke(cli.app, [command, str(tmp_path)])
    assert isinstance(result.exception, UsageError)
    assert result.exception.code == "argument-invalid"
    assert result.exception.hint is not None
    assert str(tmp_path / "2-b") in result.exception.hint


@pytest.mark.parametrize(("form", "dry_run", "code"), [
    ("podman", True, "argument-invalid"), ("docker", False, "arguments-conflict"),
])
def test_a_form_is_known_and_only_printed(form: str, dry_run: bool, code: str) -> None:
    with refused(code, form):
        ways(form=form).check([ONE], dry_run=dry_run)
