"""Tests of TF_CONFIG: its value for each rank, and the check of a value that the user has set."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client, wait

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainkit.exits import ArgumentError, PeerError
from trainkit.ranks import Ranks
from trainkit.tensorflow import cluster
from trainkit.testing.refusals import refused

ROLES = ["chief", "ps", "worker", "worker"]
VALID = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """The address and a free port of this machine, at which the ranks of a job connect."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.delenv(cluster.VARIABLE, raising=False)
    return "127.0.0.1", port


def joined(
    roles: list[str], given: str | None = None, *, connected: bool = False
) -> list[cluster.Task]:
    """Run each rank as a thread; return the role of each rank in the cluster of TensorFlow."""

    def one(rank: int) -> cluster.Task:
        ranks = Ranks("test", rank, len(roles), rank, len(roles))
        return cluster._task(ranks, roles, given, connected)

    with ThreadPoolExecutor(len(roles)) as pool:
        return list(pool.map(one, range(len(roles))))


def connected(address: tuple[str, int]) -> socket.socket:
    """Return a connection to a server that may not have started yet."""
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            time.sleep(0.01)


def test_all_ranks_get_the_same_cluster_and_their_own_task(address: tuple[str, int]) -> None:
    tasks = joined(ROLES)
    assert [(task.role, task.index) for task in tasks] == [
        ("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1)
    ]
    (found,) = {json.dumps(task.cluster) for task in tasks}
    hosts = [host for role in json.loads(found).values() for host in role]
    assert len(set(hosts)) == len(ROLES)
    for task in tasks:
        assert cluster.parse(task.config).cluster == task.cluster
        assert task.connections == ()


SERVED = {"cluster": {"chief": ["127.0.0.1:1"], "ps": ["b:1"], "worker": ["c:1", "d:1"]},
          "task": {"type": "worker", "index": 1}}


@pytest.mark.parametrize("given", [None, json.dumps(SERVED)])
def test_ranks_keep_their_connections_with_rank_0(
    address: tuple[str, int], given: str | None
) -> None:
    """A rank receives what rank 0 sends; if it closes its connection, rank 0 detects this.

    The test runs without and with a TF_CONFIG of the user.
    """
    main, *others = joined(ROLES, given, connected=True)
    for rank, task in enumerate(others, 1):
        (connection,) = task.connections
        main.connections[rank - 1].send_bytes(str(rank).encode())
        assert connection.recv_bytes() == str(rank).encode()
        connection.close()
        assert wait(main.connections[rank - 1:], timeout=5) == [main.connections[rank - 1]]
        with pytest.raises(EOFError):
            main.connections[rank - 1].recv_bytes()
        main.connections[rank - 1].close()


def test_a_stranger_at_the_port_disturbs_nobody(address: tuple[str, int]) -> None:
    def stranger() -> None:
        for word in (b"GET / HTTP/1.0\r\n\r\n", b""):
            with connected(address) as other:
                other.send(word)
        for message in (b"not JSON", b"3", b'["another", 1, "a:1"]',
                        json.dumps([cluster.KEY, 7, "a:1"]).encode(),
                        json.dumps([cluster.KEY, [1], "a:1"]).encode()):
            with Client(address) as connection:
                connection.send_bytes(message)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: cluster._collect(address, 2, 1))
        stranger()
        reported = cluster._report(address, 1, 2)
        hosts, (connection,) = done.result(30)
    with connection, reported[1]:
        assert hosts == reported[0] == ["127.0.0.1:1", "127.0.0.1:2"]


def test_a_silent_stranger_does_not_hold_up_the_ranks(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "SILENCE", 0.2)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: cluster._collect(address, 2, 1))
        with connected(address):
            hosts, mine = cluster._report(address, 1, 2)
        found, (other,) = done.result(30)
    with mine, other:
        assert hosts == found


def test_a_rank_that_does_not_come_is_named(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 0.2)
    with refused(PeerError, "rank-lost", "ranks 1, 2 "):
        cluster._meet(Ranks("test", 0, 3, 0, 3))
    with refused(PeerError, "rank-lost", str(address[1])):
        cluster._meet(Ranks("test", 1, 3, 1, 3))


def test_a_taken_port_is_named(address: tuple[str, int]) -> None:
    with socket.socket() as other:
        other.bind(address)
        other.listen()
        with refused(ArgumentError, "launcher-invalid", "MASTER_PORT", str(address[1])):
            cluster._meet(Ranks("test", 0, 2, 0, 2))


@pytest.mark.parametrize("text", [
    "{", "[]", "3", "{}", '{"cluster": {}}', '{"cluster": {"worker": []}, "task": {}}',
    json.dumps(VALID | {"cluster": {"worker": ["a"]}}),
    json.dumps(VALID | {"cluster": {"worker": ["a:1", "b:70000"]}}),
    json.dumps(VALID | {"cluster": {"worker": ["a:1", 2]}}),
    json.dumps(VALID | {"cluster": {"boss": ["a:1"]}}),
    json.dumps(VALID | {"task": {"type": "worker", "index": 2}}),
    json.dumps(VALID | {"task": {"type": "worker", "index": -1}}),
    json.dumps(VALID | {"task": {"type": "worker", "index": "1"}}),
    json.dumps(VALID | {"task": {"type": "ps", "index": 0}}),
    json.dumps(VALID | {"task": {"type": [], "index": 0}}),
])
def test_an_invalid_tf_config_is_refused(text: str) -> None:
    with refused(ArgumentError, "launcher-invalid", "TF_CONFIG"):
        cluster.parse(text)


@pytest.mark.parametrize(("cluster_given", "roles"), [
    (SERVED["cluster"], ["worker"] * 4), (SERVED["cluster"], ["chief", "ps", "ps", "worker"]),
    ({"worker": ["a:1", "b:1"]}, ["chief", "ps", "worker"]),
    (SERVED["cluster"] | {"evaluator": ["e:1"]}, ["chief", "ps", "worker", "worker", "worker"]),
])
def test_a_tf_config_for_another_strategy_is_refused(
    cluster_given: dict[str, list[str]], roles: list[str]
) -> None:
    text = json.dumps({"cluster": cluster_given, "task": {"type": "worker", "index": 0}})
    with refused(ArgumentError, "launcher-invalid", "TF_CONFIG", "unset"):
        cluster._task(Ranks("test", 1, len(roles), 1, len(roles)), roles, text, False)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["cluster", "task", "type", "index", "worker", "chief"]), inner, max_size=3
    ), max_leaves=9,
))
def test_any_json_is_parsed_or_refused(content: object) -> None:
    try:
        task = cluster.parse(json.dumps(content))
    except ArgumentError:
        return
    assert 0 <= task.index < len(task.cluster[task.role])


def test_the_users_tf_config_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"cluster": {"worker": ["a:1", "b:2", "b:3"], "chief": ["a:4"]},
               "task": {"type": "worker", "index": 2}}
    monkeypatch.setenv(cluster.VARIABLE, json.dumps(content))
    assert cluster.user_ranks() == Ranks(cluster.VARIABLE, 3, 4, 1, 2)
    task = cluster.join(Ranks("test", 3, 4, 1, 2), ["chief", "worker", "worker", "worker"])
    assert (task.role, task.index) == ("worker", 2)
    assert json.loads(os.environ[cluster.VARIABLE]) == content
    monkeypatch.delenv(cluster.VARIABLE)
    assert cluster.user_ranks() is None


def test_no_thread_is_left(address: tuple[str, int]) -> None:
    before = threading.active_count()
    joined(["worker", "worker"])
    assert threading.active_count() == before
