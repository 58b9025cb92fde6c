"""The architecture of a job's nodes determines the image, and images for others are refused."""

from __future__ import annotations

import platform
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

import bundles
from jobplaces import Place, write_program
from refusals import refused
from trimaran.bundles import pack
from trimaran.cluster import slurm, submission
from trimaran.engines import store
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import BuildError, RunError, UsageError
from trimaran.images import content_hash, definition
from trimaran.provenance import digests
from trimaran.provenance.digests import Publication
from trimaran.recipes import library
from trimaran.reporting import Silent
from trimaran.run import pipeline
from trimaran.run.image import check_pin, prepare_image
from trimaran.run.request import Request
from trimaran.site_file import Cluster

TWO_NODES, GRACE = "resnet-imagenet/cpu-2node-smoke", "resnet-imagenet/gh200x4-scaling@8"
ONE_GRACE = "resnet-imagenet/gh200x4-scaling@1"
"""A recipe that `run` would start on this machine, too."""
POWER, PASCAL = "resnet-imagenet/summit-v100x6-throughput", "resnet-imagenet/gtx1080ti-x4-scaling@4"
ARM = Cluster(architecture="arm64")


@pytest.fixture(autouse=True)
def on_amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine be a login node with an x86-64 processor."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def request(name: str) -> Request:
    return Request(library.load(name), Apptainer("apptainer"), {}, queued=True)


@pytest.mark.parametrize(("name", "cluster", "machine"), [
    (TWO_NODES, Cluster(), "x86_64"), (TWO_NODES, ARM, "aarch64"), (GRACE, Cluster(), "aarch64"),
    (ONE_GRACE, Cluster(), "aarch64"),
])
def test_the_site_file_and_else_the_target_determine_the_image(
    name: str, cluster: Cluster, machine: str, own_place: Path
) -> None:
    text = submission.preview(request(name), cluster)
    assert f"\nimage_machine={machine}\n" in text
    first = next(line for line in text.splitlines() if line.startswith("# first: image"))
    assert (" --arch arm64" in first) is (machine == "aarch64")


def test_an_image_that_does_not_exist_for_the_nodes_is_refused_with_the_reason() -> None:
    wanted = request(PASCAL)
    reason = definition.chain(wanted.image)[0].lacks["arm64"]
    with refused("architecture-unsupported", reason, kind=UsageError):
        submission.check(wanted, ARM)


def test_nodes_that_no_image_supports_are_refused() -> None:
    with refused("architecture-unsupported", "ppc64le", kind=UsageError) as caught:
        submission.check(request(POWER), Cluster())
    assert "amd64" in str(caught.value.hint)


@pytest.fixture
def request_(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """Return a request for arm64, whose image is built for amd64 only."""
    return replace(bundles.request(checkout, tmp_path, monkeypatch), architecture="arm64")


def rebuilt_for_arm64(request: Request) -> store.Record:
    """Change the record of the image as if it had been built for arm64, and return the record."""
    record = store.all_records(bundles.image(), "apptainer")[0]
    record.path.unlink()
    content = content_hash.content_of(request.image)
    record = replace(record, architecture="arm64", content=content)
    store.save(record)
    return record


def test_an_image_for_other_nodes_is_not_built_unasked(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Apptainer, "build", lambda *_, **__: pytest.fail("built"))
    with refused("image-missing", "tiny", "arm64", "only for amd64", kind=BuildError) as caught:
        prepare_image(request_, Silent())
    assert "trimaran build tiny --arch arm64" in str(caught.value.hint)
    monkeypatch.setattr(pipeline, "prepare", lambda *_: pytest.fail("prepared data"))
    with refused("image-missing", "tiny", "arm64", kind=BuildError):
        submission.submit(request_, "ours", Cluster(architecture="arm64"), Silent())


def test_an_image_of_an_older_definition_does_not_count(request_: Request) -> None:
    old = rebuilt_for_arm64(request_)
    store.save(replace(old, content="0" * 64))
    with refused("image-missing", "tiny", "arm64", kind=BuildError) as caught:
        prepare_image(request_, Silent())
    assert "only for" not in caught.value.message


def test_an_image_for_other_nodes_is_bundled(request_: Request, own_place: Path) -> None:
    rebuilt_for_arm64(request_)
    packed = pack.pack(request_, own_place / "b.tar", with_data=False, reporter=Silent())
    assert packed.manifest.image.architecture == "arm64"
    with tarfile.open(packed.path) as tar:
        readme = tar.extractfile("resnet-imagenet-cpu-smoke/README.txt")
        assert readme is not None
        assert b"aarch64" in readme.read()


def pinning(request: Request, digest: object) -> Request:
    """Return the request with `digest` as the value of `image.digest` in its recipe."""
    recipe = request.recipe.recipe
    pinned = recipe.model_copy(update={
        "image": recipe.image.model_copy(update={"digest": digest})})
    return replace(request, recipe=replace(request.recipe, recipe=pinned))


def test_a_pinned_image_for_other_nodes_is_pulled_and_not_built(request_: Request) -> None:
    digest = "sha256:" + "2" * 64
    request = replace(pinning(request_, {"arm64": digest}), offline=True)
    with refused("image-missing", "tiny", "arm64", kind=BuildError) as caught:
        prepare_image(request, Silent())
    assert f"trimaran pull tiny --arch arm64 --digest {digest}" in str(caught.value.hint)
    assert "build" not in str(caught.value.hint)


def test_a_pinned_image_of_another_architecture_is_refused(request_: Request) -> None:
    digest = store.all_records(bundles.image(), "apptainer")[0].digest
    other = pinning(request_, digest)
    with refused("architecture-mismatch", digest, "amd64", "arm64", kind=RunError):
        prepare_image(other, Silent())
    with refused("architecture-mismatch", digest, kind=RunError):
        pipeline.plan(other)
    with refused("architecture-mismatch", digest, kind=RunError):
        submission.check_recipe(other)


def test_a_digest_that_is_published_for_another_architecture_is_refused_before_anything_is_done(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, own = "sha256:" + "3" * 64, request_.image.architecture
    published = [
        Publication(
            image="tiny", form="sif", architecture=one, reference="registry.example/x/tiny:1-sif",
            digest=digest, manifest="sha256:" + "4" * 64, size=1, content="5" * 64)
        for one in (own, "amd64")
    ]
    assert own != "amd64"
    monkeypatch.setattr(digests, "known", lambda: published[:1])
    check_pin(pinning(request_, digest))
    monkeypatch.setattr(digests, "known", lambda: published[1:])
    with refused("architecture-mismatch", digest, "amd64", own, kind=RunError):
        check_pin(pinning(request_, digest))


def test_a_node_of_another_architecture_starts_no_rank(place: Place) -> None:
    write_program(place.root / "bin/uname",
                  '#!/bin/sh\n[ "$*" = -m ] && echo aarch64 || exec /bin/uname "$@"\n')
    code, said = place.run("touch ran")
    assert code == 69
    assert "aarch64" in said
    assert "x86_64" in said
    assert "aarch64" in (place.out / "job/refused.json").read_text()
    assert not (place.out / "ran").exists()


NODES = """NodeName=a1 Arch=x86_64 CoresPerSocket=2 AvailableFeatures=ib,a100 Partitions=main,debug
NodeName=g1 Arch=aarch64 CoresPerSocket=72 AvailableFeatures=ib,gh200 Partitions=main,grace
NodeName=d1 CoresPerSocket=72 AvailableFeatures=(null) Partitions=debug
"""


@pytest.mark.parametrize(("partition", "constraint", "known"), [
    ("main", None, {"x86_64", "aarch64"}), ("debug", None, {"x86_64"}),
    ("grace", None, {"aarch64"}), (None, "gh200", {"aarch64"}), ("main", "ib&a100", {"x86_64"}),
    ("main", "a100|gh200", {"x86_64", "aarch64"}), ("none", None, set()),
])
def test_slurm_tells_the_architecture_of_nodes(
    partition: str | None, constraint: str | None, known: set[str]
) -> None:
    assert slurm.architectures(NODES, partition, constraint) == known
