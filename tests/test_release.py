"""Test the scripts of the release workflow: `release_plan.py` and `release_digests.py`.

The first lists the images to build. The second adds the images that the jobs of the release have
pushed, with their digests, to `containers/digests.yaml`.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from trimaran.images import definition
from trimaran.provenance import digests

SCRIPTS = Path(__file__).parents[1] / "scripts"


def load(name: str) -> ModuleType:
    """Return `scripts/<name>.py` as a module."""
    path = SCRIPTS / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plan() -> ModuleType:
    return load("release_plan")


@pytest.fixture
def merge(checkout: Path) -> ModuleType:
    digests.project_path().write_text(digests.dump(digests.Digests()))
    return load("release_digests")


def pushed(image: str, form: digests.Form, number: int = 1) -> digests.Publication:
    """Return the record that `trimaran push` would write; its digests are derived from `number`."""
    digest = f"sha256:{number:064x}"
    return digests.Publication(
        image=image, form=form, reference=f"ghcr.io/owner/trimaran/{image}:0.1.0-{form}",
        digest=digest, manifest=digest, size=number, content=f"{number:064x}",
    )


def file_of(path: Path, *published: digests.Publication) -> str:
    """Write the `digests.yaml` of one job, and return its path."""
    path.write_text(digests.dump(digests.Digests(published=published)))
    return str(path)


def test_the_plan_has_every_image_once_for_each_architecture(plan: ModuleType) -> None:
    found = plan.plan(None, amd=True)
    planned = [(one["image"], one["architecture"]) for rows in found.values() for one in rows]
    assert sorted(planned) == sorted(
        (name, architecture) for name in definition.names()
        for architecture in definition.chain(definition.load(name))[0].architectures)
    frameworks = {(one["image"], one["architecture"]) for one in found["frameworks"]}
    assert {(one["framework"], one["architecture"]) for one in found["apps"]} <= frameworks
    runners = {one["runner"] for one in found["apps"] if one["architecture"] == "arm64"}
    assert runners == {"ubuntu-24.04-arm"}


def test_images_for_amd_are_planned_when_asked_for(plan: ModuleType) -> None:
    def planned(only: str | None, amd: bool) -> list[str]:
        found = plan.plan(only, amd=amd)
        return [entry["image"] for entries in found.values() for entry in entries]

    images = map(definition.load, definition.names())
    for_amd = {image.name for image in images if definition.chain(image)[0].gpu == "amd"}
    assert set(planned(None, False)) == set(definition.names()) - for_amd
    for name in for_amd:
        assert name in planned(name, False)


def test_the_plan_of_one_image_and_of_an_unknown_one(
    plan: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan.main(["--only", "resnet-imagenet-torch-cpu"]) == 0
    lines = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["images"] == "torch-cpu resnet-imagenet-torch-cpu"
    assert [(one["image"], one["architecture"]) for one in json.loads(lines["frameworks"])] == [
        ("torch-cpu", "amd64"), ("torch-cpu", "arm64")]
    assert json.loads(lines["apps"])[0] == {
        "image": "resnet-imagenet-torch-cpu", "framework": "torch-cpu", "architecture": "amd64",
        "runner": "ubuntu-24.04"}
    assert plan.main(["--only", "torch-cqu"]) == 2
    assert "did you mean torch-cpu" in capsys.readouterr().err


def test_what_all_jobs_pushed_is_merged(merge: ModuleType, tmp_path: Path) -> None:
    below = [pushed("torch-cpu", "sif"), pushed("torch-cpu", "oci")]
    app = pushed("resnet-imagenet-torch-cpu", "sif")
    files = [
        file_of(tmp_path / "one.yaml", *below),
        file_of(tmp_path / "two.yaml", *below, app),  # an app's job knows the image below it
    ]
    assert merge.main(files) == 0
    assert len(digests.known()) == 3
    assert digests.with_digest("resnet-imagenet-torch-cpu", "sif", app.digest) == app


def test_a_new_push_takes_the_place_of_an_old_one(merge: ModuleType, tmp_path: Path) -> None:
    digests.record(pushed("torch-cpu", "sif", 1), digests.project_path())
    assert merge.main([file_of(tmp_path / "new.yaml", pushed("torch-cpu", "sif", 2))]) == 0
    assert digests.known() == (pushed("torch-cpu", "sif", 2),)


def test_a_file_with_faults_is_named(
    merge: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("schema: 1\npublished: [{image: torch-cpu}]\n")
    assert merge.main([str(bad)]) == 2
    assert "bad.yaml:2" in capsys.readouterr().err
    assert digests.known() == ()
