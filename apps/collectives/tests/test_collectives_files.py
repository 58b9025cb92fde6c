"""Test what a measurement writes and prints.

The tests are about collectives.json and its strict format, the estimate of memory, the tables, the
metrics, and the plots.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from collectives import memory, records, results, tables, timing
from collectives.memory import Demand
from collectives.results import Point, Spread
from trainkit.exits import ArgumentError, DataError
from trainkit.testing.refusals import refused

README = (Path(__file__).parents[1] / "README.md").read_text()
EXAMPLE: dict[str, Any] = json.loads(README.split("```json\n")[1].split("```")[0])
GIB = 1 << 30


def test_the_example_of_the_readme_is_read_and_written_again(tmp_path: Path) -> None:
    found = results.parse(EXAMPLE, "README.md")
    results.write(tmp_path, found)
    assert json.loads((tmp_path / results.NAME).read_text()) == EXAMPLE
    assert results.read(tmp_path) == found
    assert "fitted time" in tables.report(found)


@pytest.mark.parametrize(("place", "value", "named"), [
    (["schema"], 2, "schema"), (["ranks"], "2", "ranks"), (["ranks"], True, "ranks"),
    (["points"], {}, "points"), (["points", 0, "bytes"], 1.5, "points[0].bytes"),
    (["points", 0, "seconds", "min"], None, "points[0].seconds.min"),
    (["left_out"], {"reduce": 1}, "left_out.reduce"), (["hosts", 0], None, "hosts[0]"),
    (["fits", 0, "ranges", 0, "gb_s"], "fast", "fits[0].ranges[0].gb_s"), (["more"], 1, "more"),
    (["fits", 0, "ranges", 0, "gb_s"], 0.0, "fits[0].ranges[0].gb_s"),
    (["fits", 0, "ranges", 0, "from_bytes"], 0, "fits[0].ranges[0]"),
    (["fits", 0, "operation"], "reduce", "fits[0].operation"),
    (["points", 0, "operation"], "gather", "points[0].operation"),
])
def test_another_form_is_refused(place: list[Any], value: object, named: str) -> None:
    document = copy.deepcopy(EXAMPLE)
    inner: Any = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with refused(DataError, "metrics-invalid", named, "file"):
        results.parse(document, "file")


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b"[" * 100_000, b"\xff"])
def test_a_damaged_file_is_refused(content: bytes, tmp_path: Path) -> None:
    with refused(DataError, "metrics-missing", tmp_path):
        results.read(tmp_path)
    (tmp_path / results.NAME).write_bytes(content)
    with refused(DataError, "metrics-invalid", tmp_path):
        results.read(tmp_path)


def point(operation: str, size: int) -> Point:
    return Point(operation, size, size, 1, Spread(1, 2, 3, 4, 5), 2.5, 7.0, 14.0)


def test_classes_of_sizes_are_metrics() -> None:
    assert records.classified(point("all-reduce", 4)) == {"allreduce_latency_4b": 3}
    assert records.classified(point("latency", 4)) == {"latency_4b": 3}
    assert records.classified(point("all-reduce", GIB)) == {"allreduce_busbw_1gib": 14}
    assert records.classified(point("bandwidth", 4 << 20)) == {"bandwidth_4mib": 14}
    for other in (point("bandwidth", 4), point("latency", GIB), point("all-reduce", 64)):
        assert records.classified(other) == {}
    barrier = dataclasses.replace(point("barrier", 0), algbw_gb_s=None, busbw_gb_s=None)
    assert records.classified(barrier) == {"barrier_latency": 3}


def test_the_spread_has_the_quartiles() -> None:
    assert timing.spread([5.0, 1.0, 4.0, 2.0, 3.0]) == Spread(1, 2, 3, 4, 5)
    assert timing.spread([2.0]) == Spread(2, 2, 2, 2, 2)


def test_unsteady_repetitions_are_reported() -> None:
    found = results.parse(EXAMPLE, "README.md")
    assert "warning" not in tables.report(found)
    busy = dataclasses.replace(found, points=[point("all-reduce", 4)])
    assert "1 of 1 points" in tables.report(busy)


def demand(place: str, needed: int, free: int) -> Demand:
    return Demand(place, needed, free, "all-to-all", GIB)


def test_the_ranks_of_a_node_share_its_memory() -> None:
    memory.check([demand("a", 2 * GIB, 4 * GIB), demand("a", 2 * GIB, 4 * GIB)])
    memory.check([demand("a", 3 * GIB, 4 * GIB), demand("b", 3 * GIB, 4 * GIB)])
    with refused(ArgumentError, "memory-insufficient", "all-to-all", "1 GiB", "6 GiB", "4 GiB"):
        memory.check([demand("a", 3 * GIB, 4 * GIB), demand("a", 3 * GIB, 5 * GIB)])


@pytest.mark.parametrize(("name", "recorded"), [
    ("NCCL_NET", True), ("OMPI_MCA_btl", True), ("OMPI_MCA_btl_tcp_if_include", True),
    ("UCX_TLS", True), ("HOROVOD_CYCLE_TIME", True), ("GLOO_SOCKET_IFNAME", True),
    ("MPICH_GPU_SUPPORT_ENABLED", True), ("NCCL_SOCKET_PORT", False),
    ("OMPI_MCA_orte_precondition_transports", False), ("OMPI_MCA_orte_hnp_uri", False),
    ("HOROVOD_GLOO_RENDEZVOUS_ADDR", False), ("NCCL_COMM_ID", False), ("FI_X_AUTH_KEY", False),
    ("PATH", False), ("OMPI_COMM_WORLD_RANK", False),
])
def test_variables_of_the_network_are_recorded_without_addresses_and_keys(
    name: str, recorded: bool
) -> None:
    assert records.selecting({name: "x", "HOME": "/"}) == ({name: "x"} if recorded else {})
