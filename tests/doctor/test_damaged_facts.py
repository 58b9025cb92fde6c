"""Damaged facts of a node cause no traceback: the output of a probe may be cut off."""

from __future__ import annotations

import pytest

import hosts
from situations import facts_of, situation, with_facts
from trimaran.doctor import limits, network, places
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


@pytest.mark.parametrize("text", ["", "\n", "x", "-1", "1 2 3 4 5 6 7 8 9", "[never] 0-", "a=b",
                                  "Max open files soon", "PartitionName= MaxTime=1-", "\u00b2"])
def test_damaged_fact(node: NodeFacts, text: str) -> None:
    for key in node.facts:
        cluster = Cluster(fabric="infiniband")
        damaged = situation(with_facts(node, {key: text}), cluster=cluster, login=node, **ABOUT)
        for group in (limits, network, places):
            assert group.check(damaged)
