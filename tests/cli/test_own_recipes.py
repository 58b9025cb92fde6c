"""A user's own recipes, targets, data sets, apps and images, in a folder beside Trimaran's."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import datasets
import tinyapp
from refusals import refused
from trimaran import cli, paths, site_file
from trimaran.data import contracts
from trimaran.errors import TrimaranError
from trimaran.images import definition, render
from trimaran.recipes import library, targets

ROOT = paths.repository()
OWN_RECIPE = "hello/desk-smoke"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Create a user's folder with an app and its image, a data set, a target and a recipe."""
    folder = tmp_path / "mine"
    for part in ("recipes/targets", "recipes/data"):
        (folder / part).mkdir(parents=True)
    shutil.copy(ROOT / "recipes/targets/cpu-2core.yaml", folder / "recipes/targets/desk.yaml")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv(paths.OWN, str(folder))
        tinyapp.write(folder, tmp_path / "sources")
    tinyapp.write_recipe(folder, name=OWN_RECIPE, target="desk")
    (folder / "recipes/hello/cpu-smoke.yaml").unlink()
    return folder


def ask(*words: str | Path) -> str:
    done = CliRunner().invoke(cli.app, list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(("kind", "name"), [
    ("recipes", OWN_RECIPE), ("targets", "desk"), ("data", "small"), ("images", "hello-tiny"),
])
def test_what_is_in_the_folder_is_listed_and_shown_beside_the_rest(
    own: Path, kind: str, name: str
) -> None:
    listed = {row["name"] for row in json.loads(ask("list", kind, "--json"))}
    assert name not in listed
    with_own = json.loads(ask("list", kind, "--json", "--recipes", own))
    assert {name} <= {row["name"] for row in with_own} - listed
    assert listed <= {row["name"] for row in with_own}
    assert json.loads(ask("show", kind, name, "--recipes", own))["schema"] == 1


def test_a_run_of_an_own_recipe_is_planned_with_its_own_image_and_data(own: Path) -> None:
    script = ask("run", OWN_RECIPE, "--dry-run", "--engine", "host", "--recipes", own)
    assert "trimaran data get small" in script
    assert "trimaran build hello-tiny" in script


def test_the_site_file_names_such_folders_from_where_it_lies(own: Path) -> None:
    site = own.parent / "site.yaml"
    site.write_text("recipes: [mine]\n")
    assert site_file.load(site).recipes == (own,)
    assert OWN_RECIPE in ask("list", "recipes", "--json", "--site", site)


def test_several_folders_are_read_and_the_same_one_only_once(own: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "recipes/targets").mkdir(parents=True)
    shutil.copy(ROOT / "recipes/targets/cpu-2core.yaml", other / "recipes/targets/lab.yaml")
    paths.use_own([own, other, own, ROOT], os.environ)
    assert {"cpu-2core", "desk", "lab"} <= set(targets.names())


@pytest.mark.parametrize(("ours", "load"), [
    ("recipes/targets/cpu-2core.yaml", lambda: targets.load("desk")),
    ("recipes/data/fashion-mnist.yaml", lambda: contracts.load("small")),
    ("recipes/resnet-imagenet/cpu-quickstart.yaml", lambda: library.load(OWN_RECIPE)),
    ("containers/frameworks/torch-cpu/image.yaml", lambda: definition.load("hello-tiny")),
    ("apps/trainkit/pyproject.toml", lambda: definition.package_folder("hello")),
])
def test_a_name_that_is_ours_too_is_an_error_that_names_both_files(
    own: Path, ours: str, load: object
) -> None:
    (own / ours).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / ours, own / ours)
    paths.use_own([own], os.environ)
    with refused("definition-ambiguous") as caught:
        load()  # type: ignore[operator]
    assert str(ROOT / ours) in caught.value.message
    assert str(own / ours) in caught.value.message


def test_an_image_of_ours_is_not_replaced_by_an_own_app_image_of_its_name(own: Path) -> None:
    shutil.copytree(own / "containers/apps/hello-tiny", own / "containers/apps/torch-cpu")
    paths.use_own([own], os.environ)
    with refused("definition-ambiguous", "'torch-cpu'"):
        definition.load("torch-cpu")


@pytest.mark.parametrize(("folder", "named", "way_out"), [
    ("nowhere", "nowhere", None), ("mine/apps", "recipes/", None),
    ("mine/recipes", "recipes/", "mine"), ("mi:ne", "':'", None),
])
def test_a_folder_without_recipes_is_refused(
    own: Path, folder: str, named: str, way_out: str | None
) -> None:
    with pytest.raises(TrimaranError, match=named) as caught:
        ask("list", "recipes", "--recipes", own.parent / folder)
    assert str(own.parent / folder) in caught.value.message
    assert way_out is None or str(own.parent / way_out) in str(caught.value.hint)


def test_own_images_are_rendered_where_they_lie(own: Path) -> None:
    (own / "containers/apps/hello-tiny/image.def").unlink()
    ask("render", "hello-tiny", "--recipes", own)
    render.check(definition.load("hello-tiny"))


def test_a_bundle_takes_target_and_contract_from_the_own_folder(own: Path) -> None:
    paths.use_own([own], os.environ)
    assert targets.file_of(library.load(OWN_RECIPE).recipe.target).is_relative_to(own)
    assert contracts.file_of("small").is_relative_to(own)


def test_samples_are_those_of_the_own_contract(own: Path) -> None:
    paths.use_own([own], os.environ)
    splits = contracts.load("small").splits
    assert {name: split.samples for name, split in splits.items()} == dict(datasets.COUNTS)
