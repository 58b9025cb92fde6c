"""Create a checkout with a small app that needs no framework; a complete run takes seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import datasets
from samples import GOOD
from trimaran import paths
from trimaran.engines.image_contents import File
from trimaran.images import definition, render

Trimaran = Callable[..., subprocess.CompletedProcess[str]]
"""The type of a function that runs `trimaran` with its arguments."""

APP_IMAGE = "hello-tiny"
RECIPE = "hello/cpu-smoke"

# This app trains nothing; it prints what it can import, and writes the files of a report.
MAIN = '''
import argparse, importlib.util, json, os, pathlib, time

parser = argparse.ArgumentParser()
parser.add_argument("verb")
parser.add_argument("--data", type=pathlib.Path)
parser.add_argument("--out", type=pathlib.Path)
parser.add_argument("--initial", type=pathlib.Path)
parser.add_argument("--resume")
parser.add_argument("--find", default="")
parser.add_argument("--sleep", type=float, default=0)
parser.add_argument("--synthetic", action="store_true")
parser.add_argument("--seed", type=int)
parser.add_argument("--max-steps", type=int)
options = parser.parse_args()
splits = {"train": {"samples": 4}, "test": {"samples": 4}}
if not options.synthetic:
    splits = json.loads((options.data / "dataset.json").read_text())["splits"]
for name in filter(None, options.find.split(",")):
    found = importlib.util.find_spec(name)
    print("found", name, found.origin if found else None)
if options.initial:
    print("begins with", options.initial.read_text())
print("mounted", os.path.isdir("/mnt/site") and os.listdir("/mnt/site"), flush=True)
time.sleep(0 if options.resume else options.sleep)
counts = {name: split["samples"] for name, split in splits.items()}
lines = [("run_start", None, {}), ("train_samples", counts["train"], {}),
         ("eval_samples", counts["test"], {})]
scores = {"eval_accuracy": 0.95, "eval_accuracy_top5": 1.0, "eval_loss": 0.5}
for step in (1, 2):
    where = {"step": step, "epoch_num": step}
    for key, value in {"train_loss": 1.0, "throughput": 100.0, **scores}.items():
        lines.append((key, value, where))
lines.append(("run_stop", None, {"status": "success", "step": 2}))
if options.max_steps:
    (options.out / "checkpoints").mkdir(exist_ok=True)
    (options.out / f"checkpoints/step-{options.max_steps:08d}.npz").write_text("weights")
with (options.out / "metrics.jsonl").open("w") as log:
    for key, value, where in lines:
        log.write(json.dumps({"time_ms": 1, "key": key, "value": value, "metadata": where}))
        log.write(chr(10))
result = {"status": "success", "steps": 2,
          "evaluation": dict(zip(("top1", "top5", "loss"), scores.values()))}
(options.out / "result.json").write_text(json.dumps(result))
'''

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "hello"
version = "0.1.0"
description = "A greeting."

[tool.hatch.build]
dev-mode-dirs = ["src"]

[tool.hatch.build.targets.wheel]
packages = ["src/hello"]
"""

CARD = """\
schema: 1
title: A greeting
framework: torch
module: hello
verbs: {train: greet}
data: {kinds: [class], sets: one}
metrics:
  val_top1: {key: eval_accuracy, unit: "%", factor: 100, better: higher, most: 100, result: top1}
neutral_options: [seed]
"""

IMAGE = {
    "schema": 1, "summary": "A greeting", "description": "A greeting.", "version": "0.1.0",
    "licenses": "MIT", "framework": "tiny", "files": {"selftest.py": "/opt/trimaran/hello.py"},
    "test": "/opt/trimaran/hello.py", "help": "A greeting.\n",
    "app": {"packages": ["hello"]},
}


def write(checkout: Path, sources: Path, *, signed_by: list[str] | None = None) -> None:
    """Write app, images, data set and recipe into `checkout`; the data files are in `sources`."""
    tiny = Path(__file__).with_name("images") / "tiny"
    shutil.copytree(tiny, checkout / "containers/frameworks/tiny")
    module = checkout / "apps/hello/src/hello"
    module.mkdir(parents=True)
    (module / "__init__.py").write_text('"""A greeting."""\n')
    (module / "__main__.py").write_text(MAIN)
    (checkout / "apps/hello/pyproject.toml").write_text(PROJECT)
    (checkout / "apps/hello/app.yaml").write_text(CARD)
    (checkout / "apps/hello/README.md").write_text("A greeting.\n")
    folder = checkout / "containers/apps" / APP_IMAGE
    folder.mkdir(parents=True)
    (folder / "image.yaml").write_text(yaml.safe_dump(IMAGE, sort_keys=False))
    (folder / "selftest.py").write_text("import hello\n")
    render.write(definition.load(APP_IMAGE))
    datasets.write(checkout / "recipes/data/small.yaml", datasets.document(sources))
    write_recipe(checkout, signed_by=signed_by)


def write_recipe(
    checkout: Path, *, signed_by: list[str] | None = None, name: str = RECIPE, **more: Any
) -> None:
    """Write the recipe of the app; `signed_by`: the accepted signers of its image."""
    recipe: dict[str, Any] = {
        **GOOD,
        "app": "hello",
        "image": {"name": APP_IMAGE, "digest": None, "signed_by": signed_by or []},
        "data": {"small": {"format": "webdataset", "samples": dict(datasets.COUNTS)}},
        "args": {"find": "six,extra,laidover"},
        **more,
    }
    path = checkout / "recipes" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))


def instead(checkout: Path, app: str, image: str) -> None:
    """Copy the small app to `app`, and its image to `image`, in place of the real app and image."""
    source = paths.repository()
    for target in (source / "recipes/targets").glob("cpu-*.yaml"):
        shutil.copy(target, checkout / "recipes/targets")
    shutil.copytree(checkout / "apps/hello", checkout / "apps" / app)
    card = yaml.safe_load((source / "apps" / app / "app.yaml").read_text())
    (checkout / "apps" / app / "app.yaml").write_text(yaml.safe_dump({**card, "module": "hello"}))
    shutil.copy(source / "containers/licences.yaml", checkout / "containers")
    folder = checkout / "containers/apps" / image
    shutil.copytree(checkout / "containers/apps" / APP_IMAGE, folder)
    tests = checkout / "containers/selftests"
    tests.mkdir()
    shutil.move(folder / "selftest.py", tests)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TRIMARAN_ROOT", str(checkout))
        render.write(definition.load(image))


def build(checkout: Path, sources: Path, cache: Path) -> None:
    """Write a small app, its image definition, data contract and recipe into the empty `checkout`.

    The files of the data set are written into the folder `sources`. Then the image is built with
    Apptainer, and the data set is downloaded and packed; both use the cache folder `cache`.
    """
    for folder in ("recipes/targets", "recipes/data", "containers", "apps"):
        (checkout / folder).mkdir(parents=True)
    target = "recipes/targets/cpu-2core.yaml"
    shutil.copy(paths.repository() / target, checkout / target)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TRIMARAN_ROOT", str(checkout))
        write(checkout, sources)
    for words in (["build", APP_IMAGE, "--engine", "apptainer"], ["data", "get", "small"]):
        done = call(words, environment(checkout, cache))
        assert done.returncode == 0, done.stderr


def call(words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `trimaran` with `words`."""
    return subprocess.run(
        [sys.executable, "-c", "from trimaran.cli import main; main()", *words],
        env={**env, "COLUMNS": "200"}, capture_output=True, text=True, check=False, timeout=1500,
    )


def excessive(files: Mapping[str, File]) -> list[str]:
    """Return the paths of an image that are set-uid, set-gid or world-writable."""
    return [
        path for path, file in files.items()
        if file.type in ("file", "directory") and file.mode & 0o6002
    ]


def environment(checkout: Path, cache: Path, **more: str) -> dict[str, str]:
    """Return the environment in which `trimaran` uses this checkout and this cache."""
    return {**os.environ, "TRIMARAN_ROOT": str(checkout), "TRIMARAN_CACHE": str(cache), **more}
