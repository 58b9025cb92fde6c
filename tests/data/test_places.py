"""A data set in several formats: `data get` packs each into its own folder; hints explain this."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

import datasets
import tinyapp
from refusals import refused
from shards.kinds import FormatName, ImageFormat
from tinyapp import RECIPE
from trimaran import cli, paths
from trimaran.data import cache, contracts
from trimaran.data.contracts import AnyContract
from trimaran.reporting import Silent

FORMATS: tuple[ImageFormat, ...] = get_args(ImageFormat)


@pytest.fixture
def small(checkout: Path, own_place: Path) -> AnyContract:
    """Return the contract of the small data set; its sources are files on this machine."""
    tinyapp.write(checkout, own_place / "world")
    return contracts.load("small")


def write_recipe(checkout: Path, form: str) -> None:
    use = {"format": form, "samples": dict(datasets.COUNTS)}
    tinyapp.write_recipe(checkout, data={"small": use})


def ask(*words: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(cli.app, list(map(str, words)))
    if code:
        assert done.exception is not None
        return str(done.exception)
    assert done.exception is None, done.output
    return done.stdout.strip()


def test_all_formats_lie_side_by_side_and_are_what_they_say(small: AnyContract) -> None:
    folders = {form: cache.get(small, offline=True, reporter=Silent(), form=form)
               for form in FORMATS}
    assert len(set(folders.values())) == len(FORMATS)
    assert folders["webdataset"] == cache.get(small, offline=True, reporter=Silent())
    for form, folder in folders.items():
        cache.check(small, folder, datasets.COUNTS, form, ["class"])
    assert cache.formats_here(small) == list(FORMATS)
    assert cache.verify(small, reporter=Silent(), workers=1) == []
    assert cache.state(small) == "packed"


def test_the_damaged_one_alone_is_made_again(small: AnyContract) -> None:
    whole = cache.get(small, offline=True, reporter=Silent())
    hurt = cache.get(small, offline=True, reporter=Silent(), form="tfrecord")
    stamp = (whole / "dataset.json").stat().st_mtime_ns
    shard = next(path for path in hurt.iterdir() if path.name.startswith("train"))
    good = shard.read_bytes()
    shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    faults = cache.verify(small, reporter=Silent(), workers=1)
    assert faults
    assert all(str(hurt) in fault for fault in faults)
    assert cache.damaged(small) == ["tfrecord"]
    assert cache.state(small) == "damaged"
    said = ask("data", "verify", "small", code=4)
    assert str(shard) in said
    cache.get(small, offline=True, reporter=Silent(), form="tfrecord")
    assert shard.read_bytes() == good
    assert (whole / "dataset.json").stat().st_mtime_ns == stamp
    assert cache.verify(small, reporter=Silent(), workers=1) == []
    assert cache.damaged(small) == []


def test_get_makes_what_a_recipe_needs(checkout: Path, small: AnyContract) -> None:
    write_recipe(checkout, "recordio")
    said = ask("run", RECIPE, "--dry-run", "--engine", "host")
    assert "# first: data set small: trimaran data get small --format recordio\n" in said
    folder = ask("data", "get", "--for", RECIPE, "--offline")
    assert folder == str(cache.folder(small, "recordio"))
    assert folder == ask("data", "get", "small", "--for", RECIPE)
    assert folder == ask("data", "get", "small", "--format", "recordio")
    assert json.loads(Path(folder, "dataset.json").read_text())["format"] == "recordio"
    said = ask("run", RECIPE, "--dry-run", "--engine", "host")
    assert "data get" not in said
    assert folder in said
    [row] = [row for row in json.loads(ask("data", "list", "--json")) if row["name"] == "small"]
    assert (row["state"], row["formats"]) == ("packed", "recordio")


@pytest.mark.parametrize(("words", "message"), [
    ([], "data get"),
    (["--for", RECIPE, "--format", "lmdb"], "--format and --for"),
    (["nothing", "--for", RECIPE], "reads no data set 'nothing'"),
    (["--for", "resnet-imagenet/nothing"], "unknown recipe"),
    (["nothing"], "unknown data set"),
    (["--for", RECIPE, "--from", "x"], "--from: x does not exist"),
])
def test_mistakes_are_named(
    checkout: Path, small: AnyContract, words: list[str], message: str
) -> None:
    write_recipe(checkout, "lmdb")
    assert message in ask("data", "get", *words, code=2)


def test_a_folder_in_another_format_is_refused_with_the_whole_command(small: AnyContract) -> None:
    folder = cache.get(small, offline=True, reporter=Silent())
    with refused("data-mismatch", folder, "tfrecord") as caught:
        cache.check(small, folder, {}, "tfrecord", ["class"])
    assert "`trimaran data get small --format tfrecord`" in (caught.value.hint or "")


def test_what_a_format_cannot_hold_is_refused_before_anything_is_downloaded() -> None:
    with refused("format-unsuitable", "recordio"):
        cache.get(contracts.load("chestxray14"), offline=True, reporter=Silent(), form="recordio")


@pytest.mark.parametrize(("name", "form", "command"), [
    ("imagenet-2012", "webdataset", "trimaran data get imagenet-2012 --from DIR"),
    ("imagenet-2012", "recordio", "trimaran data get imagenet-2012 --format recordio --from DIR"),
    ("chestxray14", "tfrecord", "trimaran data get chestxray14 --from DIR"),
    ("fashion-mnist", "webdataset", "trimaran data get fashion-mnist"),
    ("fashion-mnist", "hdf5", "trimaran data get fashion-mnist --format hdf5"),
])
def test_the_command_is_whole(name: str, form: FormatName, command: str) -> None:
    assert cache.getting(contracts.load(name), form) == command


@pytest.mark.parametrize(("recipe", "form"), [
    ("resnet-imagenet/p100x1-throughput", "tfrecord"),
    ("resnet-imagenet/gtx1080ti-x4-scaling", "recordio"),
])
def test_a_published_recipe_says_its_own_format_everywhere(
    recipe: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from generator import commands, recipes, sources

    monkeypatch.setenv("TRIMARAN_CACHE", str(tmp_path))
    command = f"trimaran data get imagenet-2012 --format {form} --from DIR"
    found = sources.read().standings
    one = next(one for name, one in found.items() if name.partition("@")[0] == recipe)
    assert f"DATA=$({command})" in commands.plain(one)
    assert command in (commands.first(one) or "")
    assert [row["how"] for row in recipes._data(one)] == [command]
    if one.starts_here:
        assert command in ask("run", one.name, "--dry-run", "--engine", "host")


def test_the_cache_of_an_older_version_is_found(small: AnyContract) -> None:
    """Data in the contract's default format keep the cache folder that older versions used."""
    assert cache.folder(small) == paths.cache("data", "small", "packed")
    assert cache.folder(small, "lmdb") == paths.cache("data", "small", "packed-lmdb")
