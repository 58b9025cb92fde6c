"""Tests of the digests that a publication writes into recipes, and of the images of a recipe."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import tinyapp
from refusals import refused
from samples import GOOD
from trimaran import architectures, publishing
from trimaran.architectures import Architecture
from trimaran.cli import app
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.host import Host
from trimaran.errors import BuildError, UsageError
from trimaran.images import content_hash, definition
from trimaran.provenance import digests
from trimaran.provenance.digests import Publication
from trimaran.publishing import choose, needs, pins, smoke
from trimaran.recipes import library
from trimaran.reporting import Silent
from trimaran.run import pipeline
from trimaran.run.request import Request
from trimaran.site_file import Cluster, Site

DIGESTS: dict[Architecture, str] = {
    "amd64": "sha256:" + "1" * 64, "arm64": "sha256:" + "2" * 64,
}
PLACE = "host.example/team"
"""The registry and namespace in which `record` records images."""

APPTAINER = Apptainer("/opt/apptainer/bin/apptainer")


@pytest.fixture
def project(checkout: Path, tmp_path: Path) -> Path:
    """Return a checkout with the small app, its images and its recipe."""
    tinyapp.write(checkout, tmp_path / "sources")
    return checkout


@pytest.fixture
def on_amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have an x86-64 processor."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def record(architecture: Architecture, form: digests.Form = "sif", **other: str) -> None:
    """Record the small app's image as published by the project."""
    image = definition.on(definition.load(tinyapp.APP_IMAGE), architecture)
    fields = {"digest": DIGESTS[architecture], "content": content_hash.content_of(image), **other}
    tag = f"{fields['content'][:12]}-{architecture}-{form}"
    digests.record(Publication(
        image=image.name, form=form, architecture=architecture, size=1,
        reference=f"host.example/team/{image.name}:{tag}", manifest="sha256:" + "b" * 64, **fields,
    ), digests.project_path())


def recipe_path(project: Path) -> Path:
    return project / f"recipes/{tinyapp.RECIPE}.yaml"


def test_the_digests_of_all_architectures_are_written_and_nothing_else(project: Path) -> None:
    image, path = definition.load(tinyapp.APP_IMAGE), recipe_path(project)
    before = yaml.safe_load(path.read_text())
    record("amd64")
    record("arm64")
    record("amd64", "oci", digest="sha256:" + "3" * 64)
    assert pins.pin(image, PLACE) == [path]
    after = yaml.safe_load(path.read_text())
    assert after["image"] == {"name": image.name, "digest": DIGESTS}
    assert {**after, "image": None} == {**before, "image": None}
    assert pins.pin(image, PLACE) == [], "they are there already"


def test_images_in_another_registry_are_not_pinned(project: Path) -> None:
    record("amd64")
    assert pins.published(definition.load(tinyapp.APP_IMAGE), PLACE) == {"amd64": DIGESTS["amd64"]}
    assert pins.pin(definition.load(tinyapp.APP_IMAGE), "host.example/other") == []


def test_no_recipe_is_changed_if_one_cannot_be(project: Path) -> None:
    tinyapp.write_recipe(project, name="hello/cpu-2core-before-smoke")
    other, path = project / "recipes/hello/cpu-2core-before-smoke.yaml", recipe_path(project)
    first, last = sorted([other, path])
    text = last.read_text()
    last.write_text(text.replace("image:", "image:  # of us", 1))
    before = first.read_text()
    record("amd64")
    with refused("file-invalid", last, kind=UsageError):
        pins.pin(definition.load(tinyapp.APP_IMAGE), PLACE)
    assert first.read_text() == before


def test_an_older_definition_and_other_nodes_are_left_alone(project: Path) -> None:
    before = recipe_path(project).read_text()
    record("amd64", content="0" * 64)
    record("arm64")  # the target's nodes are amd64
    assert pins.pin(definition.load(tinyapp.APP_IMAGE), PLACE) == []
    assert recipe_path(project).read_text() == before


@pytest.mark.parametrize("image", [
    "image: {name: hello-tiny, digest: null}\n",
    "image:\n  name: hello-tiny\n  digest: sha256:" + "0" * 64 + "\n",
    "image:\n  name: hello-tiny\n  digest:\n    arm64: sha256:" + "0" * 64 + "\n\n",
    "image: {name: hello-tiny,\n  digest: null}\n",
])
@pytest.mark.parametrize("last", [False, True])
def test_every_style_keeps_the_comments_around_it(
    project: Path, image: str, last: bool
) -> None:
    rest = {key: value for key, value in yaml.safe_load(recipe_path(project).read_text()).items()
            if key != "image"}
    text = yaml.safe_dump(rest, sort_keys=False)
    path = recipe_path(project)
    path.write_text(f"# above\n{text}{image}" if last else f"# above\n{image}# below\n{text}")
    written = pins.with_digests(path, DIGESTS)
    assert yaml.safe_load(written) == {
        **rest, "image": {"name": "hello-tiny", "digest": DIGESTS}}
    assert written.startswith("# above\n")
    assert ("# below\n" in written) is not last


def test_a_comment_that_would_be_lost_stops_it(project: Path) -> None:
    path = recipe_path(project)
    path.write_text(path.read_text().replace("digest: null", "digest: null  # why"))
    with refused("file-invalid", path):
        pins.with_digests(path, DIGESTS)


def test_the_committed_recipes_can_be_pinned() -> None:
    for path in library.files().values():
        written = yaml.safe_load(pins.with_digests(path, DIGESTS))
        content = yaml.safe_load(path.read_text())
        assert written == {**content, "image": {**content["image"], "digest": DIGESTS}}


TWO_NODES = {"resources": {**GOOD["resources"], "nodes": 2}, "launcher": "srun"}


@pytest.mark.parametrize(("more", "machine", "stated", "wanted"), [
    ({}, "x86_64", None, "amd64"), ({}, "aarch64", None, "arm64"),
    ({}, "x86_64", "arm64", "arm64"), (TWO_NODES, "aarch64", None, "amd64"),
    (TWO_NODES, "x86_64", "arm64", "arm64"),
])
def test_a_recipe_needs_its_image_for_the_machine_that_runs_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], machine: str,
    stated: Architecture | None, wanted: Architecture,
) -> None:
    """The nodes of the target are amd64; only they run a recipe that needs a batch system."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    tinyapp.write_recipe(project, **more)
    [(image, digest)] = needs.of_recipe(tinyapp.RECIPE, stated, APPTAINER)
    assert (image.name, image.architecture, digest) == (tinyapp.APP_IMAGE, wanted, None)
    assert [one.name for one in needs.images_of(tinyapp.RECIPE)] == ["tiny", tinyapp.APP_IMAGE]


@pytest.mark.parametrize(("machine", "site", "words", "wanted"), [
    ("x86_64", Site(), [], "amd64"), ("aarch64", Site(), [], "arm64"),
    ("x86_64", Site(clusters={"a": Cluster(architecture="arm64"), "b": Cluster()}), [], "arm64"),
    ("x86_64", Site(clusters={"a": Cluster(architecture="arm64")}), ["--arch", "amd64"], "amd64"),
])
def test_pull_takes_the_images_that_run_and_submit_need(
    project: Path, monkeypatch: pytest.MonkeyPatch, machine: str, site: Site, words: list[str],
    wanted: Architecture,
) -> None:
    pulled: list[Architecture] = []

    def pull(image: definition.Image, *_: object, **__: object) -> pipeline.BuiltImage:
        pulled.append(image.architecture)
        return pipeline.BuiltImage(image.name, "apptainer", "x.sif", "sha256:1", "0" * 64, 1)

    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(publishing.registry, "pull", pull)
    monkeypatch.setattr(publishing.selection, "select", lambda _: APPTAINER)
    monkeypatch.setattr("trimaran.site_file.load", lambda _: site)
    done = CliRunner().invoke(
        app, ["pull", "--all-of", tinyapp.RECIPE, *words], catch_exceptions=False)
    assert pulled == [wanted]
    told = f"{tinyapp.APP_IMAGE} for {wanted}" in done.stderr
    assert told is (wanted != architectures.native())


@pytest.mark.usefixtures("on_amd64")
def test_the_digest_of_a_recipe_is_that_for_the_architecture(project: Path) -> None:
    tinyapp.write_recipe(project, image={"name": tinyapp.APP_IMAGE, "digest": {
        "amd64": DIGESTS["amd64"]}})
    assert needs.of_recipe(tinyapp.RECIPE, None, APPTAINER)[0][1] == DIGESTS["amd64"]
    with refused("architecture-mismatch", "arm64"):
        needs.of_recipe(tinyapp.RECIPE, "arm64", APPTAINER)


def test_nodes_for_which_no_image_is_made_are_refused(project: Path) -> None:
    target = project / "recipes/targets/cpu-2core.yaml"
    content = yaml.safe_load(target.read_text())
    content["node"] = {**content["node"], "architecture": "ppc64le", "cpu_flags": []}
    target.write_text(yaml.safe_dump(content))
    tinyapp.write_recipe(project, **TWO_NODES)
    with refused("architecture-unsupported", "ppc64le"):
        needs.of_recipe(tinyapp.RECIPE, None, APPTAINER)


def test_images_of_earlier_recipes_are_needed_too(project: Path) -> None:
    tinyapp.write_recipe(project, name="hello/cpu-2core-before-smoke")
    tinyapp.write_recipe(project, initial={"recipe": "hello/cpu-2core-before-smoke", "step": 1})
    names = [name for name, _ in needs.recipes_of(tinyapp.RECIPE)]
    assert names == [tinyapp.RECIPE, "hello/cpu-2core-before-smoke"]
    assert len(needs.of_recipe(tinyapp.RECIPE, None, APPTAINER)) == 1


@pytest.mark.parametrize("name", [
    "resnet-imagenet/gh200x4-scaling@99999", "resnet-imagenet/cpu-quickstart@7",
])
def test_a_point_that_does_not_exist_has_no_images(name: str) -> None:
    with refused("point-unknown", name.partition("@")[0], kind=UsageError):
        needs.images_of(name)


@pytest.mark.parametrize(("point", "wanted"), [("", "arm64"), ("@1", "amd64"), ("@4", "arm64")])
@pytest.mark.usefixtures("on_amd64")
def test_a_series_needs_a_batch_system_if_one_of_its_points_does(
    point: str, wanted: Architecture
) -> None:
    """`run` starts the point with one rank; srun starts the others."""
    [(image, _)] = needs.of_recipe(f"resnet-imagenet/gh200x4-scaling{point}", None, APPTAINER)
    assert image.architecture == wanted


def test_all_architectures_of_the_image_are_published_unless_some_are_named() -> None:
    image = definition.load("tensorflow-cuda")
    assert choose(definition.load("torch-cpu"), []) == ["amd64", "arm64"]
    assert choose(definition.load("torch-cpu"), ["arm64", "arm64"]) == ["arm64"]
    assert choose(image, []) == list(image.architectures)
    for lacking in image.lacks:
        with refused("architecture-unsupported", lacking):
            choose(image, [lacking])


def test_the_training_is_a_smoke_recipe_with_two_ranks() -> None:
    found = smoke.recipe_of(definition.load("resnet-imagenet-torch-cpu"))
    assert found is not None
    assert found.name == "resnet-imagenet/cpu-2core-2ranks-smoke"
    assert smoke.recipe_of(definition.load("torch-cpu")) is None


def test_an_image_above_its_size_limit_is_not_published(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = {"max_megabytes": {architectures.native(): 1}}
    image = definition.load(tinyapp.APP_IMAGE).model_copy(update=limit)
    built = pipeline.BuiltImage(
        image.name, "apptainer", "x.sif", DIGESTS["amd64"], "0" * 64, 2_000_000)
    contents = type("Contents", (), {"largest": lambda self, count: []})()
    monkeypatch.setattr(publishing.registry, "connect", lambda *_, **__: None)
    monkeypatch.setattr(publishing.selection, "select", lambda _: APPTAINER)
    monkeypatch.setattr(publishing, "_tested", lambda *_: built)
    monkeypatch.setattr(publishing.size_limit.image_contents, "of", lambda *_: contents)
    order = publishing.Order("registry.example/x", False, ["sif"], None, str, project, Site())
    with refused("image-too-large", image.name, kind=BuildError):
        publishing.publish(image, [architectures.native()], order, Silent())


def request_for(engine: Any, wanted: Sequence[Architecture]) -> Request:
    recipe = library.load(tinyapp.RECIPE)
    choice = recipe.recipe.image.model_copy(
        update={"digest": {one: DIGESTS[one] for one in wanted}})
    recipe.recipe.__dict__["image"] = choice
    return Request(recipe, engine, {})


def test_a_run_uses_the_digest_for_its_architecture_and_format(project: Path) -> None:
    own = architectures.native()
    other: Architecture = "arm64" if own == "amd64" else "amd64"
    assert request_for(APPTAINER, [own, other]).pinned == DIGESTS[own]
    assert request_for(Host(), [own]).pinned is None
    with refused("architecture-mismatch", own, other, kind=UsageError):
        _ = request_for(APPTAINER, [other]).pinned
    record(own)
    record(own, "oci", digest="sha256:" + "3" * 64)
    podman = type("Podman", (Apptainer,), {"form": "oci"})("/usr/bin/podman")
    assert request_for(podman, [own]).pinned == "sha256:" + "3" * 64
