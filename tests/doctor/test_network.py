"""The checks of the group `network`: this machine's interfaces, and simulated fast networks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hosts import caused, facts_of
from situations import by_id, probed, situation, with_facts
from trimaran.doctor import network, network_devices
from trimaran.doctor.facts import NodeFacts
from trimaran.doctor.findings import Finding
from trimaran.doctor.situation import ImageFacts
from trimaran.site_file import Cluster, FabricName

TWO = {"nodes": 2}
GPUS = {"nodes": 2, "tasks_per_node": 4, "gpus_per_task": 1}
WITHOUT = ImageFacts("bare", dict.fromkeys(("verbs", "ucx", "libfabric", "nccl-ofi"), ""))
WITH = ImageFacts("full", dict.fromkeys(("verbs", "ucx", "libfabric", "nccl-ofi"), "1.0"))


@cache
def here() -> NodeFacts:
    return probed()


@cache
def machine(name: str) -> NodeFacts:
    return facts_of(name)


def checked(node: NodeFacts, **more: Any) -> list[Finding]:
    return network.check(situation(node, **more))


def test_quickstart_warns_nowhere_here() -> None:
    assert not [one for one in checked(here()) if one.level != "ok"]


def test_nothing_is_known_in_a_bare_container(tmp_path: Path) -> None:
    empty = facts_of(tmp_path)
    assert checked(empty, resources=GPUS, env={"NCCL_SOCKET_IFNAME": "ib"}) == []
    named = situation(empty, cluster=Cluster(fabric="efa"), login=here())
    assert network.check(named) == []


def test_login_node_is_not_judged() -> None:
    assert checked(machine("omnipath"), cluster=Cluster()) == []


@pytest.mark.parametrize("variable", ["GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE"])
def test_interface_that_this_machine_lacks(variable: str) -> None:
    found = checked(here(), env={variable: "lo,ib77"}, resources={"tasks_per_node": 2})
    cause = caused("interface-names", found, "fail").cause
    assert f"{variable}=lo,ib77: no ib77" in cause
    assert "lo" in cause.partition("(interfaces: ")[2]  # the names that exist
    assert caused("interface-names", checked(here(), env={variable: "ib77"}), "warn")  # one rank
    assert by_id(checked(here(), env={variable: "lo"}))["interface-names"].level == "ok"


def test_interfaces_of_the_site_file() -> None:
    cluster = Cluster.model_validate({"env": {"NCCL_SOCKET_IFNAME": "ib77"}})
    found = checked(here(), cluster=cluster, login=here(), resources=GPUS)
    assert caused("interface-names", found, "fail")
    own = {"NCCL_SOCKET_IFNAME": "lo"}  # the recipe takes precedence
    found = checked(here(), cluster=cluster, login=here(), resources=GPUS, env=own)
    assert by_id(found)["interface-names"].level == "ok"


@pytest.mark.parametrize(("value", "names"), [
    ("eth", ["eth0", "eth1"]), ("=eth", []), ("=eth0,ib0", ["eth0", "ib0"]),
    ("^eth", ["ib0", "lo"]), ("^=eth0", ["eth1", "ib0", "lo"]), ("^e,i,l", []), ("ib0:1", ["ib0"]),
    ("eth2,ib", ["ib0"]), ("", []),
])
def test_syntax_of_nccl(value: str, names: list[str]) -> None:
    assert network_devices.nccl_matches(value, ["eth0", "eth1", "ib0", "lo"]) == names


@pytest.mark.parametrize(("value", "level"), [
    ("mlx5_0:1", "ok"), ("mlx5_0:1,mlx5_9:1", "warn"), ("mlx5_9:1", "fail"), ("all", "ok"),
    ("ib0", "ok"), ("mlx5_*", "ok"), ("mlx5_[0-3]:1", "ok"),
])
def test_devices_of_ucx(value: str, level: str) -> None:
    env = {"UCX_NET_DEVICES": value}
    found = checked(machine("infiniband-nvidia"), env=env, resources=TWO)
    assert by_id(found)["interface-names"].level == level


def test_other_lists_of_names() -> None:
    node = machine("infiniband-nvidia")
    network_of = {"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/8"}
    assert by_id(checked(node, env=network_of))["interface-names"].level == "ok"
    hca = checked(node, env={"NCCL_IB_HCA": "=mlx5_7"}, resources=GPUS)
    assert "NCCL uses TCP (" in caused("interface-names", hca, "warn").cause


def test_only_ethernet_for_several_nodes() -> None:
    cause = caused("fast-network", checked(here(), resources=TWO), "warn").cause
    assert cause.startswith("only interfaces without RDMA")
    fast = by_id(checked(machine("infiniband-lustre"), resources=TWO))["fast-network"]
    assert (fast.level, fast.cause) == (
        "ok", "mlx5_0/1 (infiniband, ACTIVE 200 Gb/sec (4X HDR))")


@pytest.mark.parametrize(("name", "fabrics"), [
    ("infiniband-lustre", {"infiniband"}), ("infiniband-nvidia", {"infiniband", "roce"}),
    ("slingshot-amd", {"slingshot"}), ("efa-nvidia", {"efa"}), ("omnipath", {"omnipath"}),
])
def test_fabrics(name: str, fabrics: set[str]) -> None:
    assert {port.fabric for port in network_devices.ports(machine(name))} == fabrics


def test_ports_that_are_down() -> None:
    assert "mlx5_1/1 (infiniband): DOWN" in caused(
        "port-down", checked(machine("infiniband-lustre"))).cause
    assert "INIT" in caused("port-down", checked(machine("omnipath"))).cause
    assert "cxi1 (slingshot): down" in caused("port-down", checked(machine("slingshot-amd"))).cause
    assert by_id(checked(machine("infiniband-nvidia")))["port-down"].level == "ok"


@pytest.mark.parametrize(("name", "missing"), [
    ("infiniband-nvidia", "verbs for infiniband, verbs for roce"),
    ("slingshot-amd", "libfabric for slingshot, nccl-ofi for slingshot"),
    ("efa-nvidia", "libfabric for efa, verbs for efa, nccl-ofi for efa"),
])
def test_libraries_of_the_image(name: str, missing: str) -> None:
    found = checked(machine(name), image=WITHOUT, resources=GPUS)
    assert caused("network-libraries", found, "warn").cause == f"the image bare lacks {missing}"
    found = checked(machine(name), image=WITH, resources=GPUS)
    assert by_id(found)["network-libraries"].level == "ok"
    unknown = checked(machine(name), image=ImageFacts("unknown"), resources=GPUS)
    assert "network-libraries" not in by_id(unknown)
    one = checked(machine(name), image=WITHOUT)
    assert "network-libraries" not in by_id(one)


def test_mpi_needs_no_plugin_of_nccl() -> None:
    found = checked(machine("slingshot-amd"), image=WITHOUT, resources=TWO)
    assert "nccl-ofi" not in caused("network-libraries", found).cause


def test_device_files() -> None:
    found = checked(machine("infiniband-lustre"), resources=TWO)
    assert "no /dev/infiniband/uverbs*" in caused("network-device-files", found, "warn").cause
    found = checked(machine("efa-nvidia"), resources=TWO)
    assert by_id(found)["network-device-files"].level == "ok"
    closed = with_facts(machine("efa-nvidia"), {"device-file./dev/infiniband/uverbs0": "refused"})
    assert caused("network-device-files", checked(closed, resources=TWO))


def test_gpudirect() -> None:
    node = machine("infiniband-nvidia")
    found = caused("gpudirect", checked(node, resources=GPUS), "warn")
    assert "closed kernel modules, Linux 5.14.0" in found.cause
    loaded = with_facts(node, {"module.nvidia_peermem": "loaded"})
    assert by_id(checked(loaded, resources=GPUS))["gpudirect"].level == "ok"
    opened = {"nvidia-module": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54"}
    buffers = with_facts(node, opened)
    assert by_id(checked(buffers, resources=GPUS))["gpudirect"].level == "ok"
    old = with_facts(node, {**opened, "kernel-release": "5.11.9-1"})
    assert caused("gpudirect", checked(old, resources=GPUS))
    assert "gpudirect" not in by_id(checked(machine("slingshot-amd"), resources=GPUS))


def test_fabric_of_the_site_file() -> None:
    def seen(facts: NodeFacts, fabric: FabricName | None, **more: Any) -> list[Finding]:
        cluster = Cluster(fabric=fabric, fabric_missing=more.pop("missing", "refuse"))
        return network.check(situation(facts, cluster=cluster, login=here(), **more))

    found = caused("fabric", seen(here(), "infiniband", resources=TWO), "fail")
    assert found.cause == "the site file names infiniband, the node has ethernet"
    assert caused("fabric", seen(here(), "efa"), "warn")  # one node
    assert caused("fabric", seen(here(), "efa", resources=TWO, missing="warn"), "warn")
    assert by_id(seen(here(), "ethernet", resources=TWO))["fabric"].level == "ok"
    assert "fabric" not in by_id(seen(here(), None, resources=TWO))
    assert caused("fabric", seen(machine("omnipath"), "omnipath", resources=TWO), "fail")
