"""Any content of any file that the tool reads is accepted, or causes one documented error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

import finished
import hostile
from generator import evidence, published
from samples import CARD_FILE, GOOD
from trimaran import paths, site_file, strict
from trimaran.bundles.pack import Manifest
from trimaran.compare import comparison
from trimaran.compare import explain as comparison_page
from trimaran.data import contracts, dataset_json
from trimaran.errors import UsageError
from trimaran.evidence import check as check_evidence
from trimaran.evidence.content import sealed
from trimaran.images import definition, indexes, lock
from trimaran.provenance import digests
from trimaran.provenance.digests import Publication
from trimaran.provenance.registry import logins
from trimaran.recipes import cards, library, targets
from trimaran.recipes.library import RecipeFile, parse_changes
from trimaran.report import report
from trimaran.report.run_evidence import RunEvidence
from trimaran.run import run_directory
from trimaran.verdict import metrics

REPOSITORY = paths.repository()
HASH = "sha256:" + "a" * 64
BUNDLE = {
    "schema": 1, "folder": "a", "created": "2026-11-22T00:00:00Z", "trimaran": "0.1",
    "apptainer": "1.4", "recipe": {"name": "a/b", "sha256": "a" * 64, "changed": {}},
    "image": {"name": "tiny", "engine": "apptainer", "digest": HASH, "content": "a",
              "inputs": "a" * 64, "built": "2026", "base_name": "a", "base_digest": "a", "size": 5,
              "origin": None, "signature": None},
    "data": {"name": "a", "sha256": "a" * 64, "included": True},
    "git": {"revision": "a", "dirty": False},
}
DATASET = {
    "schema": 1, "name": "a", "format": "webdataset", "classes": ["b", "c"],
    "image": {"channels": 3, "height": None, "width": None, "encoding": "jpg",
              "mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]},
    "splits": {"train": {"samples": 1, "shards": [
        {"file": "a.tar", "samples": 1, "bytes": 1, "sha256": "a" * 64}
    ]}},
    "origin": {"contents": {"a": "a" * 64}, "order_seed": 1, "encoder": "a"},
}
SITE = {
    "schema": 1, "registry": "a.example/b", "ca_bundle": "a.pem", "proxy": "http://a.example:1",
    "signatures": {"required": True, "keys": ["A" * 40]}, "binds": {"/a": "/mnt/a"},
}
PUBLISHED_RUN = REPOSITORY / (
    "site/results/resnet-imagenet/cpu-quickstart/2026-11-23-epyc-avx2-2core-seed17.json"
)
CURVES = [{"metric": "val_top1", "unit": "%", "points": [[1, 0.5, 10.0], [2, 1.0, 90.5]]},
          {"metric": "throughput", "unit": "img/s", "points": [[1, 0.5, 1.0], [2, 1.0, 2.0]]}]
PUBLISHED = Publication(
    image="a", form="sif", reference="a.example/b:c", digest=HASH, manifest=HASH, size=1,
    content="a" * 64,
)
LOGINS = {"auths": {"a.example": {"auth": "YTpi"}}, "credHelpers": {}, "credsStore": None}


def content_of(path: str) -> Any:
    return yaml.safe_load((REPOSITORY / path).read_text())


# What is read as YAML: name of the file in the checkout, sound content, how it is read.
YAML_FILES: dict[str, tuple[str, Any, Callable[[Path], object]]] = {
    "recipe": ("recipes/a/b.yaml", GOOD, lambda path: library.load_copy(path, "a/b", CARD_FILE)),
    "card": (
        "apps/resnet-imagenet/app.yaml", content_of("apps/resnet-imagenet/app.yaml"),
        cards.load_copy,
    ),
    "target": (
        "recipes/targets/t.yaml", content_of("recipes/targets/gtx1080ti-x4.yaml"),
        lambda path: targets.load("t"),
    ),
    "contract": (
        "recipes/data/fashion-mnist.yaml", content_of("recipes/data/fashion-mnist.yaml"),
        lambda path: contracts.load("fashion-mnist"),
    ),
    "licensed contract": (
        "recipes/data/imagenet-2012.yaml", content_of("recipes/data/imagenet-2012.yaml"),
        lambda path: contracts.load("imagenet-2012"),
    ),
    "contract of a text": (
        "recipes/data/gcide.yaml", content_of("recipes/data/gcide.yaml"),
        lambda path: contracts.load("gcide"),
    ),
    "image": (
        "containers/a/image.yaml", content_of("containers/frameworks/torch-cuda12/image.yaml"),
        definition.read,
    ),
    "app image": (
        "containers/a/image.yaml",
        yaml.safe_load(definition.load("resnet-imagenet-torch-cpu").folder.joinpath(
            "image.yaml").read_text()),
        definition.read,
    ),
    "site file": ("site.yaml", SITE, site_file.load),
    "published numbers": (
        published.FILE, content_of(published.FILE), lambda path: published.load()),
    "digests": (
        "digests.yaml", {"schema": 1, "published": [PUBLISHED.model_dump(mode="json")]},
        digests.load,
    ),
}

EVIDENCE = {
    name: json.loads(next((REPOSITORY / evidence.RESULTS / folder).glob("*.json")).read_text())
    for name, folder in (("run", "futuregan/cpu-2core-smoke"), ("benchmark", "benchmarks"),
                         ("image", "images/torch-cpu"))
}


def of_evidence(model: type[strict.Model]) -> Callable[[Path], object]:
    return lambda path: strict.load_json(model, path)


def handed_in(path: Path) -> object:
    """Check a file as `trimaran evidence check` does, and raise an error for its first fault."""
    for fault in check_evidence.check(path, date(2026, 11, 28), ["alice"], frozenset()).faults:
        raise UsageError(fault.text(path), code=fault.code)
    return None


# What is read as JSON, the same way.
JSON_FILES: dict[str, tuple[str, Any, Callable[[Path], object]]] = {
    "data set": ("dataset.json", DATASET, lambda path: dataset_json.read(path.parent)),
    "bundle": ("bundle.json", BUNDLE, lambda path: strict.load_json(Manifest, path)),
    "logins": ("config.json", LOGINS, lambda path: logins._from_file(path, "a.example", "b")),
    "evidence to compare": (
        "evidence.json", json.loads(PUBLISHED_RUN.read_text()) | {"curves": CURVES},
        lambda path: comparison_page.render(*comparison.compare([PUBLISHED_RUN, path])),
    ),
    "evidence that is handed in": ("run.json", sealed(EVIDENCE["run"]), handed_in),
    "evidence of a run": ("run.json", EVIDENCE["run"], of_evidence(RunEvidence)),
    "evidence of a benchmark": (
        "benchmark.json", EVIDENCE["benchmark"], of_evidence(evidence.Benchmark)),
    "evidence of an image": ("image.json", EVIDENCE["image"], of_evidence(evidence.ImageEvidence)),
    "options": (
        "apps/resnet-imagenet/options.json",
        json.loads((REPOSITORY / "apps/resnet-imagenet/options.json").read_text()),
        lambda path: cards.argument_faults("resnet-imagenet", "train", GOOD["args"]),
    ),
}


@pytest.fixture
def place(checkout: Path) -> Path:
    for folder in ("recipes/a", "containers/a", "apps/resnet-imagenet", "site"):
        (checkout / folder).mkdir(parents=True, exist_ok=True)
    return checkout


def check(path: Path, text: str, read: Callable[[Path], object]) -> None:
    path.write_text(text, encoding="utf-8", errors="replace")
    hostile.keeps_the_property(lambda: read(path))


@pytest.mark.parametrize("kind", YAML_FILES)
@settings(hostile.quick, max_examples=25)
@given(text=hostile.yaml_texts)
def test_any_text_as_yaml(place: Path, kind: str, text: str) -> None:
    name, _, read = YAML_FILES[kind]
    check(place / name, text, read)


@pytest.mark.parametrize("kind", YAML_FILES)
@settings(hostile.quick, max_examples=25)
@given(seed=hostile.places, value=hostile.values, key=hostile.more_keys)
def test_any_value_in_a_sound_yaml_file(
    place: Path, kind: str, seed: int, value: object, key: str | None
) -> None:
    name, sound, read = YAML_FILES[kind]
    check(place / name, yaml.safe_dump(hostile.spoil(sound, seed, value, key)), read)


@pytest.mark.parametrize("kind", JSON_FILES)
@settings(hostile.quick, max_examples=25)
@given(text=hostile.json_texts)
def test_any_text_as_json(place: Path, kind: str, text: str) -> None:
    name, _, read = JSON_FILES[kind]
    check(place / name, text, read)


@pytest.mark.parametrize("kind", JSON_FILES)
@settings(hostile.quick, max_examples=25)
@given(seed=hostile.places, value=hostile.json_values, key=hostile.more_keys)
def test_any_value_in_a_sound_json_file(
    place: Path, kind: str, seed: int, value: object, key: str | None
) -> None:
    name, sound, read = JSON_FILES[kind]
    check(place / name, json.dumps(hostile.spoil(sound, seed, value, key)), read)


@pytest.mark.parametrize("kind", [*YAML_FILES, *JSON_FILES])
def test_what_is_spoiled_was_sound_but_for_the_files_that_it_names(
    place: Path, kind: str
) -> None:
    name, sound, read = {**YAML_FILES, **JSON_FILES}[kind]
    # YAML does not read all numbers of JSON: 1e-09 is a text.
    text = yaml.safe_dump(sound) if name.endswith(".yaml") else json.dumps(sound, default=str)
    (place / name).write_text(text)
    error = hostile.refusal(lambda: read(place / name))
    assert error is None or "files: " in error.message


def test_a_run_with_any_value_in_its_record_is_one_error(
    recipe: RecipeFile, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    finished.finish(directory, recipe)
    sound = json.loads((directory / "run.json").read_text())

    @hostile.quick
    @given(seed=hostile.places, value=hostile.json_values, key=hostile.more_keys)
    def spoiled(seed: int, value: object, key: str | None) -> None:
        content = json.dumps(hostile.spoil(sound, seed, value, key))
        check(directory / "run.json", content, lambda path: run_directory.load(directory))

    spoiled()
    for text in hostile.JSON:
        check(directory / "run.json", text, lambda path: run_directory.load(directory))
    shutil.rmtree(directory)


def test_a_report_of_any_record_is_one_or_one_error(
    recipe: RecipeFile, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    finished.finish(directory, recipe)
    (directory / "environment.json").write_text('{"packages": {"a": "1"}, "threads": [1]}')
    sound = json.loads((directory / "run.json").read_text())

    @hostile.quick
    @given(seed=hostile.places, value=hostile.json_values | hostile.MOMENTS, key=hostile.more_keys)
    def spoiled(seed: int, value: object, key: str | None) -> None:
        content = json.dumps(hostile.spoil(sound, seed, value, key))
        check(directory / "run.json", content, lambda path: report.write(directory))

    spoiled()
    shutil.rmtree(directory)


def test_a_report_of_any_metrics_is_one_or_one_error(
    recipe: RecipeFile, tmp_path: Path
) -> None:
    """Any damaged metrics result in a report or in one documented error.

    The metrics have no hash in run.json, as in runs of older versions.
    """
    directory = tmp_path / "run"
    record = finished.finish(directory, recipe)
    run_directory._write(directory, record.model_copy(update={"files": {}, "seconds": 9.0}))
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    more = ("training_seconds", "data_wait_fraction", "eval_start", "eval_stop")
    added = [{**lines[5], "key": key, "value": 1.5} for key in more]
    sound = {"lines": [*lines[:-1], *added, lines[-1]]}

    @hostile.quick
    @given(seed=hostile.places, value=hostile.json_values, key=hostile.more_keys)
    def spoiled(seed: int, value: object, key: str | None) -> None:
        found = hostile.spoil(sound, seed, value, key)["lines"]
        told = found if isinstance(found, list) else []
        text = "".join(f"{json.dumps(line)}\n" for line in told)
        check(directory / "metrics.jsonl", text, lambda path: report.write(directory))

    spoiled()
    shutil.rmtree(directory)


@hostile.quick
@given(text=hostile.json_texts, value=hostile.json_values)
def test_metrics_of_any_kind_are_one_error(tmp_path: Path, text: str, value: object) -> None:
    event = json.dumps({"time_ms": 1, "key": "a", "value": value, "metadata": {"step": value}})
    check(tmp_path / "metrics.jsonl", f"{event}\n{text}\n{event}\n", metrics.read_events)


@hostile.quick
@given(text=hostile.lock_texts)
def test_locks_of_any_kind_are_one_error(tmp_path: Path, text: str) -> None:
    check(tmp_path / "requirements.lock", text, lock.read)
    check(tmp_path / "debian.lock", text, lock.read_debian)


@hostile.quick
@given(text=hostile.json_texts, value=hostile.json_values)
def test_pages_of_an_index_are_files_or_a_reason(text: str, value: object) -> None:
    entry = {"filename": value, "url": value, "hashes": value, "size": value}
    for page in (text, json.dumps({"files": [entry]}), json.dumps({"files": value})):
        for parse in (indexes._parse_json, indexes._parse_html):
            try:
                parse(page, "https://a.example/simple/a/")
            except ValueError as error:
                indexes._reason(error)


@hostile.quick
@given(name=hostile.names, text=hostile.yaml_texts)
def test_a_change_is_a_value_or_one_error(name: str, text: str) -> None:
    hostile.keeps_the_property(lambda: parse_changes([f"{name}={text}"]))


@hostile.quick
@given(name=hostile.names)
def test_an_unknown_name_is_one_error(name: str) -> None:
    loaders = (definition.load, library.load, targets.load, contracts.load, site_file.fingerprint)
    for load in loaders:
        error = hostile.refusal(lambda load=load: load(name))  # type: ignore[misc]
        assert error is not None
        assert error.exit_code == 2
