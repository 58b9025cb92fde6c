"""Findings about the architecture of nodes and images."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hosts
import sifs
from hosts import caused, facts_of
from refusals import refused
from situations import by_id, situation, with_facts
from trimaran.architectures import Architecture
from trimaran.cluster import submission
from trimaran.doctor import examination, node_architecture
from trimaran.doctor.facts import NodeFacts
from trimaran.doctor.situation import ImageFacts
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import RunError, UsageError
from trimaran.images import definition
from trimaran.recipes import library
from trimaran.recipes.library import RecipeFile
from trimaran.reporting import Silent
from trimaran.run.request import Request
from trimaran.site_file import Cluster, Site

NODES = {"kinds-of-nodes": "Arch=aarch64 AvailableFeatures=a Partitions=grace,both\n"
                           "Arch=x86_64 AvailableFeatures=b Partitions=x,both"}


@pytest.fixture(autouse=True)
def on_amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine be a login node with an x86-64 processor."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def findings(node: NodeFacts, **cluster: Any) -> list[Any]:
    about = situation(node, cluster=Cluster.model_validate(cluster))
    return node_architecture.check(about)


@pytest.mark.parametrize(("cluster", "level"), [
    ({"partition": "grace"}, "fail"), ({"partition": "grace", "architecture": "arm64"}, "ok"),
    ({"partition": "x"}, "ok"), ({"partition": "x", "architecture": "arm64"}, "fail"),
    ({"partition": "both"}, "warn"), ({"partition": "both", "constraint": "b"}, "ok"),
])
def test_nodes_of_a_partition(cluster: dict[str, Any], level: str) -> None:
    found = findings(with_facts(NodeFacts("login"), NODES), **cluster)
    assert by_id(found)["node-architecture"].level == level


def test_the_architectures_are_named() -> None:
    found = findings(with_facts(NodeFacts("login"), NODES), partition="grace")
    cause = caused("node-architecture", found, "fail").cause
    assert "aarch64" in cause
    assert "x86_64" in cause


def test_what_is_not_known_is_no_finding() -> None:
    assert findings(NodeFacts("login"), partition="grace") == []
    assert findings(with_facts(NodeFacts("login"), NODES), partition="none") == []
    assert node_architecture.check(situation(with_facts(NodeFacts("n"), {"machine": "x"}))) == []


def test_a_node_of_a_job() -> None:
    node, login = with_facts(NodeFacts("n"), {"machine": "aarch64"}), NodeFacts("login")
    for cluster, level in ((Cluster(), "fail"), (Cluster(architecture="arm64"), "ok")):
        found = node_architecture.check(situation(node, cluster=cluster, login=login))
        assert by_id(found)["node-architecture"].level == level


def test_the_probe_asks_slurm_once_for_each_kind_of_node(tmp_path: Path) -> None:
    root = hosts.copy("login-slurm", tmp_path)
    lines = "".join(
        f"NodeName={name} Arch={kind} CoresPerSocket=2 AvailableFeatures=(null) OS=Linux 5"
        " Partitions=p \\n"
        for name, kind in (("n1", "aarch64"), ("n2", "aarch64"), ("n3", "x86_64"))
    )
    hosts.program(root, "scontrol", f"printf '{lines}NodeName=down State=DOWN\\n'")
    text = facts_of(root, scheduler="slurm", partition="").text("kinds-of-nodes")
    assert text is not None
    assert text.splitlines() == [
        f"Arch={kind} AvailableFeatures=(null) Partitions=p" for kind in ("aarch64", "x86_64")
    ]


def test_an_image_for_the_login_node_only(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, node = sifs.engine(monkeypatch), NodeFacts("login")
    about = situation(node, cluster=Cluster(architecture="arm64"),
                      image=ImageFacts("tiny", definition=sifs.TINY))
    engine.build(sifs.TINY, base=None, offline=True, reporter=Silent())
    found = caused("image-architecture", node_architecture.check(about))
    assert found.level == "warn"
    assert "--arch arm64" in found.remedy
    monkeypatch.setattr("trimaran.images.emulation.require_processor", lambda _: True)
    other = definition.on(sifs.TINY, "arm64")
    engine.build(other, base=None, offline=True, reporter=Silent())
    assert by_id(node_architecture.check(about))["image-architecture"].level == "ok"


def submit_refuses(file: RecipeFile, cluster: Cluster) -> UsageError:
    """Return the error of `submit` for a recipe."""
    request = Request(file, Apptainer("apptainer"), {}, queued=True)
    with pytest.raises(UsageError) as caught:
        submission.check_recipe(submission.at_home(request, cluster))
    return caught.value


def test_nodes_that_no_image_supports() -> None:
    file, cluster = library.load("resnet-imagenet/summit-v100x6-throughput"), Cluster()
    about = examination.situation(Site(), cluster, file)
    found = caused("node-architecture", node_architecture.check(about), "fail")
    assert found.cause == submit_refuses(file, cluster).message


@pytest.mark.parametrize(("pinned", "cluster", "level"), [
    ("amd64", "arm64", "fail"), ("arm64", "amd64", "fail"), ("arm64", "arm64", None),
])
def test_an_image_that_is_pinned_for_other_nodes_only(
    pinned: Architecture, cluster: Architecture, level: str | None
) -> None:
    file, nodes = library.load("resnet-imagenet/cpu-2node-smoke"), Cluster(architecture=cluster)
    choice = file.recipe.image.model_copy(update={"digest": {pinned: sifs.DIGEST}})
    file = replace(file, recipe=file.recipe.model_copy(update={"image": choice}))
    found = node_architecture.check(examination.situation(Site(), nodes, file))
    if level is None:
        assert found == []
        return
    one = caused("image-architecture", found, level)
    fault = submit_refuses(file, nodes)
    assert fault.code == "architecture-mismatch"
    assert (one.cause, one.remedy) == (fault.message, fault.hint)
    assert [finding.id for finding in found] == ["image-architecture"]


def test_nodes_that_no_image_supports_are_a_finding_on_each_login_node(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other checks read an image that exists, although this machine could not run it."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    test_nodes_that_no_image_supports()


def test_without_a_cluster_the_image_is_that_of_this_machine(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    file = library.load("resnet-imagenet/v100x1-throughput")
    assert examination.situation(Site(), None, file).image is not None
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with refused("architecture-unsupported", "torch-cuda12", "arm64", kind=UsageError):
        examination.situation(Site(), None, file)


def test_submit_refuses_a_partition_of_another_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = with_facts(NodeFacts("login"), NODES)
    monkeypatch.setattr("trimaran.doctor.facts.of_this_host", lambda *_, **__: known)
    file = library.load("resnet-imagenet/cpu-2node-smoke")
    about = examination.situation(Site(), Cluster(partition="grace"), file)
    with refused("node-unsuitable", "node-architecture", "aarch64", "x86_64", kind=RunError):
        examination.refuse([about])


def test_doctor_refuses_an_image_that_does_not_exist_for_the_nodes() -> None:
    file = library.load("resnet-imagenet/gtx1080ti-x4-scaling@4")
    with refused("architecture-unsupported", "arm64", kind=UsageError):
        examination.situation(Site(), Cluster(architecture="arm64"), file)
