"""Try each command on the page of a recipe as far as possible without an image."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from generator import commands, sources
from generator.recipe_status import RecipeStatus
from trimaran import cli
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import USERNS, Apptainer
from trimaran.run import inputs, launch_spec
from trimaran.run.launch_spec import Places

READ = sources.read()
STANDINGS = READ.standings


def words(text: str, place: Path, variables: Mapping[str, str]) -> list[str]:
    """Return the words that a shell passes to the last command of `text`, without executing it."""
    *_, command = text.replace("\\\n", " ").splitlines()
    shell = "".join(f"{key}={shlex.quote(value)}\n" for key, value in variables.items())
    script = f'{shell}env() {{ printf "%s\\n" "$@"; }}\nenv {command}'
    done = subprocess.run(["sh", "-e"], input=script, cwd=place, text=True, capture_output=True,
                          check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", STANDINGS)
def test_apptainer_alone_gets_the_words_of_a_run(name: str, own_place: Path) -> None:
    one = STANDINGS[name]
    recipe = one.file.recipe
    initial = own_place / "first.npz" if recipe.initial else None
    if initial and recipe.initial and recipe.initial.weights:
        initial = initial.with_suffix(Path(commands._first(one)).suffix)
    named = {key: "DATA" if len(recipe.data) == 1 else f"DATA{number}"
             for number, key in enumerate(recipe.data, start=1)}
    variables = {variable: str(own_place / key) for key, variable in named.items()}
    variables |= {"SIF": "/images/a.sif", "INITIAL": str(initial)}
    found = words(commands.plain(one), own_place, variables)

    folders = {key: own_place / key for key in recipe.data}
    engine = Apptainer("apptainer")
    built = BuiltImage(recipe.image.name, "apptainer", "/images/a.sif", None, "", 0)
    places = Places(
        inputs.mounts(recipe, folders), str(own_place / "run"), inputs.initial_mounts(initial)
    )
    exact = launch_spec.command(commands.launch(one, engine.node(built), places))
    given = [f"{key}={value}" for key, value in exact.env.items() if key.startswith("APPTAINERENV")]
    wanted = [*given, *exact.argv]
    own = [word for word in found if word not in ("--nv", "--rocm")]
    assert own == [word for word in wanted if word not in (USERNS, "--nv", "--rocm")]
    assert ("--nv" in found) == recipe.image.name.rpartition("-")[2].startswith("cuda")
    assert ("srun" in found) == (recipe.launcher == "srun")


@pytest.mark.parametrize("name", STANDINGS)
def test_what_is_needed_before_is_named(name: str) -> None:
    one = STANDINGS[name]
    text = commands.plain(one)
    recipe = one.file.recipe
    assert f"trimaran build {recipe.image.name} --engine apptainer" in text
    for data in recipe.data:
        assert f"trimaran data get {data}" in text
    assert len(max(text.splitlines(), key=len)) <= 140


def tried(command: str, one: RecipeStatus, place: Path) -> str:
    """Return the output of a `trimaran` command with --dry-run."""
    found = re.search(r"trimaran ([^)]*)", command)
    assert found
    own = shlex.split(found[1])
    if "--initial" in own:
        first = place / Path(own[-1]).name
        first.touch()
        own[-1] = str(first)
    done = CliRunner().invoke(cli.app, [*own, "--dry-run"])
    assert done.exit_code == 0, (command, done.output, done.exception)
    return done.output


@pytest.mark.parametrize("name", STANDINGS)
def test_each_recipe_is_run_and_submitted_dry(name: str, own_place: Path) -> None:
    one = STANDINGS[name]
    script = tried(commands.submit(one), one, own_place)
    assert f"#SBATCH --job-name={name}" in script
    here = commands.run(one)
    assert (here is None) == (not one.starts_here)
    if here is not None:
        said = tried(f"{here} --engine host", one, own_place)
        for key, value in one.file.recipe.args.items():
            word = f"--{key}={value}" if not isinstance(value, bool) else f"--{key}"
            assert shlex.quote(word) in said or f"--no-{key}" in said
