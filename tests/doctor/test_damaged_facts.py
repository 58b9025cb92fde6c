"""Damaged facts of a node, for example in a truncated output of the probe, cause no traceback."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hosts
from hosts import facts_of
from situations import situation, with_facts
from trimaran.doctor import engine, limits, machine, network, places, ranks
from trimaran.doctor.facts import NodeFacts
from trimaran.site_file import Cluster

ABOUT = {"resources": {"nodes": 2, "tasks_per_node": 2, "gpus_per_task": 1},
         "env": {"NCCL_SOCKET_IFNAME": "ib", "UCX_NET_DEVICES": "mlx5_0:1"}}
PARAMETERS = {"place_runs": "/lustre/scratch", "place_data": "/lustre/data"}


@pytest.fixture(scope="module")
def node() -> NodeFacts:
    queues = facts_of("login-slurm", scheduler="slurm").facts["queues"].text
    known = facts_of(hosts.HOSTS / "infiniband-lustre", **PARAMETERS)
    return with_facts(known, {"queues": queues, "asked": "1", "answered": "2"})


TEXTS = ("", "\n", "x", "-1", "1 2 3 4 5 6 7 8 9", "[never] 0-", "a=b", "Max open files soon",
         "PartitionName= MaxTime=1-", "\u00b2", "GPU, ., .", "none pmix_v", "Open MPI")


@pytest.mark.parametrize("host", ["gpu-a100", "amd-mi250x", "cpu-hardened"])
def test_damaged_or_missing_fact_of_a_program(host: str) -> None:
    known = hosts.facts_of(host)
    for recipe in ("resnet-imagenet/v100x8-throughput", "resnet-imagenet/cpu-2node-smoke"):
        about = hosts.situation(known, recipe=recipe, cluster=Cluster(), login=known)
        for key in known.facts:
            less = {name: fact for name, fact in known.facts.items() if name != key}
            damaged = [with_facts(known, {key: text}) for text in TEXTS]
            for one in [*damaged, NodeFacts("n", less)]:
                for group in (engine, machine, ranks):
                    assert group.check(replace(about, facts=one)) is not None


@pytest.mark.parametrize("text", TEXTS)
def test_damaged_fact(node: NodeFacts, text: str) -> None:
    for key in node.facts:
        cluster = Cluster(fabric="infiniband")
        damaged = situation(with_facts(node, {key: text}), cluster=cluster, login=node, **ABOUT)
        for group in (limits, network, places):
            assert group.check(damaged)
