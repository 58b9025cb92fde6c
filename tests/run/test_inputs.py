"""Test recipes with no, one and several data sets: arguments, mounts, record, bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import datasets
from commandline import of_run
from finished import SIF
from refusals import refused
from samples import CARD_FILE, GOOD
from trimaran.bundles import runscript
from trimaran.bundles.runscript import Contents
from trimaran.data import cache, contracts
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.host import Host
from trimaran.recipes import library
from trimaran.reporting import Silent
from trimaran.run import inputs, launch_spec, pipeline, run_directory
from trimaran.run.record import GitRecord
from trimaran.run.request import Request

NAME = "resnet-imagenet/cpu-smoke"
USE = {"format": "webdataset", "samples": dict(datasets.COUNTS)}
APPTAINER = Apptainer("/usr/bin/apptainer")
SYNTHETIC = {"args": {**GOOD["args"], "synthetic": True}}


def write(checkout: Path, names: list[str], sets: str, **more: Any) -> library.RecipeFile:
    """Write the recipe GOOD with the data sets `names`; `sets` is how many the app card permits.

    A data set without a contract gets a copy of the contract of Fashion-MNIST.
    """
    for name in names:
        contract = checkout / f"recipes/data/{name}.yaml"
        if not contract.exists():
            text = contracts.file_of("fashion-mnist").read_text()
            contract.write_text(text.replace("name: fashion-mnist", f"name: {name}"))
    card = checkout / "apps/resnet-imagenet/app.yaml"
    kinds = "kinds: []" if sets == "zero" else "kinds: [class]"
    text = CARD_FILE.path.read_text().replace("{kinds: [class], sets: one}", "{KINDS, sets: SETS}")
    card.write_text(text.replace("KINDS", kinds).replace("SETS", sets))
    path = checkout / f"recipes/{NAME}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({**GOOD, "data": dict.fromkeys(names, USE), **more}))
    return library.load(NAME)


def built() -> BuiltImage:
    return BuiltImage("tiny", "apptainer", "/a.sif", SIF.digest, "ab" * 32, 1)


@pytest.mark.parametrize(("sets", "names", "more", "fits"), [
    ("zero", [], {}, True), ("zero", ["a"], {}, False), ("one", ["a"], {}, True),
    ("one", [], {}, False), ("one", [], SYNTHETIC, True), ("one", ["a", "b"], {}, False),
    ("several", ["a", "b"], {}, True), ("several", [], {}, False), ("several", ["a"], {}, True),
])
def test_a_recipe_has_as_many_data_sets_as_its_app_reads(
    checkout: Path, sets: str, names: list[str], more: dict[str, Any], fits: bool
) -> None:
    if fits:
        write(checkout, names, sets, **more)
        return
    with refused("file-invalid", "data: resnet-imagenet ", f" {sets} "):
        write(checkout, names, sets, **more)


@pytest.mark.parametrize(("names", "argument", "targets"), [
    ([], [], []), (["a"], ["--data=/data"], ["/data"]),
    (["a", "b"], ["--data=/data"], ["/data/a", "/data/b"]),
])
@pytest.mark.usefixtures("tiny_image")
def test_each_is_bound_read_only(
    checkout: Path, names: list[str], argument: list[str], targets: list[str]
) -> None:
    recipe = write(checkout, names, "several" if names else "zero")
    folders = {name: Path("/here", name) for name in names}
    exact = of_run(
        Request(recipe, APPTAINER, {}), built(), folders, Path("/run")
    )
    assert [word for word in exact.argv if word.startswith("--data=")] == argument
    shown = [word for word in exact.argv if "destination=/data" in word]
    assert [word.partition("destination=")[2].split(",")[0] for word in shown] == targets
    assert all("source=/here/" in word and ("ro" in word) for word in shown)


@pytest.mark.usefixtures("tiny_image")
def test_several_images_are_bound_each_at_its_place(checkout: Path, own_place: Path) -> None:
    recipe = write(checkout, ["a", "b"], "several")
    for name in ("a.sqsh", "b.sqsh"):
        (own_place / name).write_bytes(b"hsqs")
    folders = inputs.given(recipe, ["b=b.sqsh", "a=a.sqsh"])
    request = Request(recipe, APPTAINER, {}, folders=folders)
    exact = of_run(request, built(), inputs.places(recipe, folders), Path("/run"))
    shown = [word for word in exact.argv if "destination=/data" in word]
    assert [("image-src=/" in word, f"{name}.sqsh" in word, f"/data/{name}" in word)
            for word, name in zip(shown, "ab", strict=True)] == [(True, True, True)] * 2
    with refused("engine-unsuitable", folders["a"], "host"):
        inputs.check(write(checkout, ["a"], "one"), {"a": folders["a"]}, Host())


def test_the_host_shows_one_folder(checkout: Path) -> None:
    with refused("engine-unsuitable", NAME, "host"):
        pipeline.check(Request(write(checkout, ["a", "b"], "several"), Host(), {}))
    assert launch_spec.data_argument({}, container=False) is None


@pytest.mark.parametrize(("names", "words", "found"), [
    (["a"], ["x"], {"a": "x"}), (["a"], ["a=x"], {"a": "x"}), (["a"], ["b=x"], {"a": "b=x"}),
    (["a", "b"], ["b=x", "a=y"], {"b": "x", "a": "y"}), ([], [], {}),
    (["a", "b"], ["x"], "data-unnamed"), (["fine", "bold"], ["fin=x"], "data-unused"),
    (["a", "b"], ["a=x", "a=y"], "argument-invalid"), ([], ["x"], "data-unused"),
])
def test_the_words_of_data(
    checkout: Path, names: list[str], words: list[str], found: dict[str, str] | str
) -> None:
    recipe = write(checkout, names, "several" if names else "zero")
    if isinstance(found, dict):
        assert inputs.given(recipe, words) == {name: Path(path) for name, path in found.items()}
        return
    with refused(found, f"--data {words[-1]}"):
        inputs.given(recipe, words)


def test_all_are_got_and_told(checkout: Path, own_place: Path) -> None:
    for name in ("a", "b"):
        (own_place / name).mkdir()
        document = datasets.document(own_place / name) | {"name": name}
        datasets.write(checkout / f"recipes/data/{name}.yaml", document)
    recipe = write(checkout, ["a", "b"], "several")
    assert inputs.missing(recipe, {}) == [
        "data set a: trimaran data get a", "data set b: trimaran data get b",
    ]
    found = inputs.prepare(recipe, {}, offline=True, reporter=Silent())
    assert [(one.name, Path(one.path)) for one in found] == [
        (name, cache.folder(contracts.load(name))) for name in ("a", "b")
    ]
    assert inputs.missing(recipe, {}) == []
    card = recipe.card.path
    card.write_text(card.read_text().replace("[class]", "[multi, sequence]"))
    with refused("file-invalid", ": data.a: ", "'class'", " multi, sequence"):
        library.load(NAME)


@pytest.mark.parametrize("names", [[], ["a", "b"]])
@pytest.mark.usefixtures("tiny_image")
def test_a_bundle_shows_them_likewise(checkout: Path, names: list[str]) -> None:
    recipe = write(checkout, names, "several" if names else "zero")
    git = GitRecord(revision=None, dirty=None)
    text = runscript.render(
        Contents(recipe, {}, built(), None, dict.fromkeys(names, "0" * 64), False, git)
    )
    assert ("--data DIR" in text) is bool(names)
    assert text.count("destination=/data/") == len(names)
    for number, name in enumerate(names):
        assert f'data_path_{number}=$(json "$data/{name}")' in text
        assert f'"path": ${{data_path_{number}}}' in text
    assert run_directory.RECIPE in text


def test_what_is_missing_is_got_but_not_in_place_of_what_was_given(
    checkout: Path, own_place: Path
) -> None:
    recipe = write(checkout, ["a"], "one")
    assert inputs.missing(recipe, {}) == ["data set a: trimaran data get a"]
    [missing] = inputs.missing(recipe, inputs.given(recipe, ["nowhere"]))
    assert missing.startswith("--data nowhere: ")
