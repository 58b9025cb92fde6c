"""Publish an image with a real registry; a user with an empty cache runs it without a build."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import tinyapp
from registries import DockerRegistry, running
from trimaran import architectures, paths
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.podman import STORAGE
from trimaran.files import sha256
from trimaran.provenance.registry.manifests import INDEXES

pytestmark = [
    pytest.mark.engine("registry"), pytest.mark.engine("apptainer"), pytest.mark.timeout(400),
]
PUBLISH = ("publish", tinyapp.APP_IMAGE, "--form", "sif", "--no-sign")


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    with running(tmp_path_factory.mktemp("harbour")) as server:
        yield server


class Project:
    """A checkout with a small app, the cache of its engineer, and a registry.

    Attributes:
        root: the checkout, with the file of digests of the project.
        env: the environment of `trimaran`.
    """

    def __init__(self, root: Path, env: dict[str, str]) -> None:
        self.root = root
        self.env = env

    def call(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        done = tinyapp.call(list(words), {**self.env, **more})
        assert "Traceback" not in done.stderr
        return done

    def publish(self, *words: str) -> subprocess.CompletedProcess[str]:
        native = architectures.native()
        return self.call(*PUBLISH, "--arch", native, "--sbom", str(self.root / "sbom"), *words)

    @property
    def published(self) -> list[dict[str, str]]:
        file = self.root / "containers/digests.yaml"
        found: list[dict[str, str]] = yaml.safe_load(file.read_text())["published"]
        return found


@pytest.fixture
def project(
    place: Path, engine_cache: Path, harbour: DockerRegistry, tmp_path: Path
) -> Project:
    root = tmp_path / "project"
    shutil.copytree(place, root)
    shutil.copy(paths.repository() / "containers/licences.yaml", root / "containers")
    home = tmp_path / "home"
    home.mkdir()
    namespace = f"{harbour.host}/{tmp_path.name.lower().replace('_', '-')}"  # empty in each test
    return Project(root, {
        **tinyapp.environment(root, engine_cache), "HOME": str(home), "no_proxy": "localhost",
        "TRIMARAN_REGISTRY": namespace, "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    })


def test_a_fresh_user_gets_a_verdict_without_a_build(project: Project, tmp_path: Path) -> None:
    done = project.publish("--pin")
    assert done.returncode == 0, done.stderr
    [one] = project.published
    assert one["architecture"] == architectures.native()
    assert one["reference"].endswith(f"-{one['architecture']}-sif")
    assert done.stdout.strip() == f"{one['reference']}@{one['manifest']}"
    assert len(list((project.root / "sbom").glob("*.cdx.json"))) == 1
    recipe = yaml.safe_load((project.root / f"recipes/{tinyapp.RECIPE}.yaml").read_text())
    assert recipe["image"]["digest"] == {one["architecture"]: one["digest"]}

    away = {"TRIMARAN_CACHE": str(tmp_path / "away"), "TRIMARAN_REGISTRY": ""}
    pulled = project.call("pull", "--all-of", tinyapp.RECIPE, "--engine", "apptainer", **away)
    assert pulled.returncode == 0, pulled.stderr
    assert pulled.stdout.split()[1] == one["digest"]
    shutil.copytree(Path(project.env["TRIMARAN_CACHE"]) / "data", tmp_path / "away/data")
    ran = project.call(
        "run", tinyapp.RECIPE, "--engine", "apptainer", "--offline", "--out", str(tmp_path / "run"),
        **away)
    assert ran.returncode == 0, ran.stderr
    assert "PASS" in ran.stdout
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["image"]["digest"] == one["digest"]
    assert list((tmp_path / "away").glob("wheelhouse*")) == [], "nothing was built"


def test_apptainer_alone_pulls_by_the_version_and_by_the_content(
    project: Project, tmp_path: Path
) -> None:
    assert project.publish().returncode == 0
    [one] = project.published
    place = one["reference"].rpartition(":")[0]
    for number, tag in enumerate((one["reference"].rpartition(":")[2], one["release"])):
        sif = tmp_path / f"{number}.sif"
        subprocess.run(
            [Apptainer().executable, "--quiet", "pull", "--no-https", str(sif),
             f"oras://{place}:{tag}"],
            check=True, timeout=300, env={**os.environ, "APPTAINER_CACHEDIR": str(tmp_path / "c")},
        )
        assert f"sha256:{sha256(sif)}" == one["digest"]


def test_a_publication_can_be_repeated_and_changes_nothing(project: Project) -> None:
    assert project.publish("--name", "no").returncode == 0
    before = project.published
    assert "release" not in before[0]
    again = project.publish()
    assert again.returncode == 0, again.stderr
    assert "pushing" not in again.stderr
    [after] = project.published
    assert {**before[0], "release": after["release"]} == after
    assert project.publish("--name", "only").returncode == 0


def test_what_is_in_the_registry_is_tested_and_not_built(
    project: Project, tmp_path: Path
) -> None:
    assert project.publish("--name", "no").returncode == 0
    [one] = project.published
    shutil.copytree(Path(project.env["TRIMARAN_CACHE"]) / "data", tmp_path / "other/data")
    project.env["TRIMARAN_CACHE"] = str(tmp_path / "other")
    again = project.publish()
    assert again.returncode == 0, again.stderr
    assert "pulling" in again.stderr
    assert project.published[0]["digest"] == one["digest"]


def test_what_is_in_the_registry_without_a_record_or_signature_is_not_published(
    project: Project, tmp_path: Path
) -> None:
    assert project.publish("--name", "no").returncode == 0
    (project.root / "containers/digests.yaml").unlink()
    project.env["TRIMARAN_CACHE"] = str(tmp_path / "other")
    again = project.publish()
    assert again.returncode == 3
    assert "[origin-unknown]" in again.stderr
    assert "pulling" not in again.stderr
    assert not (project.root / "containers/digests.yaml").exists()


def test_other_bytes_never_take_a_tag_that_is_made_from_the_content(project: Project) -> None:
    assert project.publish().returncode == 0
    [one] = project.published
    cache = Path(project.env["TRIMARAN_CACHE"])
    other = project.root.parent / "cache"
    shutil.copytree(cache, other, symlinks=True)
    for file in (other / "images").glob(f"{tinyapp.APP_IMAGE}-*"):
        file.unlink()
    project.env["TRIMARAN_CACHE"] = str(other)
    built = project.call("build", tinyapp.APP_IMAGE, "--engine", "apptainer",
                         SOURCE_DATE_EPOCH="1577836800")
    assert built.returncode == 0, built.stderr
    pushed = project.call("push", tinyapp.APP_IMAGE, "--engine", "apptainer")
    assert pushed.returncode == 3
    assert "[tag-taken]" in pushed.stderr
    assert one["digest"] in pushed.stderr
    assert not (project.root.parent / "state/trimaran/digests.yaml").exists()


def test_an_image_that_fails_its_training_is_not_pushed(project: Project) -> None:
    tinyapp.write_recipe(project.root, expected=[{
        "metric": "val_top1", "unit": "%", "at": "end", "value": 99, "lower": -0.01,
        "source": "a test"}])
    done = project.publish()
    assert done.returncode == 3
    assert "[smoke-failed]" in done.stderr
    assert not (project.root / "containers/digests.yaml").exists()
    pulled = project.call("pull", tinyapp.APP_IMAGE, "--engine", "apptainer",
                          TRIMARAN_CACHE=str(project.root.parent / "away"))
    assert "[image-unpublished]" in pulled.stderr


def test_an_index_without_the_architecture_names_those_it_has(project: Project) -> None:
    native = architectures.native()
    other = {"amd64": "arm64", "arm64": "amd64"}[native]
    assert project.publish().returncode == 0
    [one] = project.published
    away = {"TRIMARAN_CACHE": str(project.root.parent / "away")}
    words = ("pull", tinyapp.APP_IMAGE, "--engine", "apptainer", "--arch", other)
    absent = project.call(*words, **away)
    assert absent.returncode == 3
    assert "[architecture-unpublished]" in absent.stderr
    assert f"it has images for {native}" in " ".join(absent.stderr.split())
    wrong = project.call(*words, "--digest", one["digest"], **away)
    assert "[architecture-mismatch]" in wrong.stderr
    assert native in wrong.stderr
    assert other in wrong.stderr
    (project.root / "containers/digests.yaml").unlink()  # so that only the file itself shows it
    unknown = project.call(*words, "--digest", one["digest"], **away)
    assert "[architecture-mismatch]" in unknown.stderr
    assert list((project.root.parent / "away/images").glob("*.sif")) == []


@pytest.mark.long
@pytest.mark.engine("arm64")
@pytest.mark.timeout(3600)
def test_both_architectures_have_one_name(project: Project, tmp_path: Path) -> None:
    assert project.publish("--name", "no").returncode == 0
    alone = project.call(*PUBLISH, "--arch", "arm64", "--name", "only")
    assert "[image-unpublished]" in alone.stderr, "arm64 is not published yet"
    both = project.call(*PUBLISH, "--sbom", str(tmp_path / "sbom"), "--pin")
    assert both.returncode == 0, both.stderr
    digests = {one["architecture"]: one["digest"] for one in project.published}
    assert sorted(digests) == ["amd64", "arm64"]
    [release] = {one["release"] for one in project.published}
    recipe = yaml.safe_load((project.root / f"recipes/{tinyapp.RECIPE}.yaml").read_text())
    assert recipe["image"]["digest"] == digests
    place = project.published[0]["reference"].rpartition(":")[0]
    index = subprocess.run(
        ["curl", "--silent", "--fail", "--header", f"Accept: {INDEXES[0]}",
         f"http://{place.replace('/', '/v2/', 1)}/manifests/{release}"],
        check=True, capture_output=True, timeout=60,
    ).stdout
    assert [one["platform"]["architecture"] for one in json.loads(index)["manifests"]] == [
        "amd64", "arm64"]
    for architecture, digest in digests.items():
        away = {"TRIMARAN_CACHE": str(tmp_path / architecture)}
        words = ("pull", "--all-of", tinyapp.RECIPE, "--engine", "apptainer")
        pulled = project.call(*words, "--arch", architecture, **away)
        assert pulled.returncode == 0, pulled.stderr
        assert pulled.stdout.split()[1] == digest
        by_index = project.call(
            "pull", tinyapp.APP_IMAGE, "--engine", "apptainer", "--arch", architecture, "--digest",
            f"sha256:{hashlib.sha256(index).hexdigest()}", TRIMARAN_CACHE=str(tmp_path / "index"))
        assert by_index.stdout.split()[1] == digest


@pytest.mark.long
@pytest.mark.engine("podman")
def test_both_formats_are_published_and_the_oci_image_runs_a_recipe_that_pins_the_sif(
    project: Project, tmp_path: Path
) -> None:
    # The user's own storage: podman's lies under the home that the logins are not in.
    project.env["HOME"] = str(Path(f"~{os.environ['USER']}").expanduser())
    native = architectures.native()
    done = project.call("publish", tinyapp.APP_IMAGE, "--no-sign", "--arch", native, "--pin",
                        "--sbom", str(tmp_path / "sbom"))
    assert done.returncode == 0, done.stderr
    digests = {one["form"]: one["digest"] for one in project.published}
    ran = project.call("run", tinyapp.RECIPE, "--engine", "podman", "--out", str(tmp_path / "run"))
    assert ran.returncode == 0, ran.stderr
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["image"]["digest"] == digests["oci"] != digests["sif"]
    oci = next(one for one in project.published if one["form"] == "oci")
    place = oci["reference"].rpartition(":")[0]
    subprocess.run(
        ["podman", *STORAGE, "pull", "--tls-verify=false", f"{place}:{oci['release']}"],
        check=True, capture_output=True, timeout=300,
    )
