"""Set TF_CONFIG, with which TensorFlow connects the processes of a job, under any launcher.

TensorFlow reads the addresses of all processes, and the role of this process, from the environment
variable TF_CONFIG (https://www.tensorflow.org/guide/distributed_training). No launcher sets this
variable. Therefore all ranks connect to rank 0, as in torch.distributed
(`trainkit.ranks.rendezvous`): each rank reports the address at which the other ranks reach it, and
rank 0 returns the list of all addresses. This works with Slurm, PBS, LSF, Open MPI and MPICH, whose
variables contain rank and world size, but list the nodes in different formats or not at all.

If the user has set TF_CONFIG, the value of the user is checked and used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from trainkit.exits import ArgumentError, PeerError
from trainkit.ranks import Ranks, rendezvous

VARIABLE = "TF_CONFIG"
ROLES = ("chief", "ps", "worker", "evaluator")
"""The roles of processes in TF_CONFIG; "ps" is a parameter server."""

PATIENCE = 120.0
"""Seconds within which all ranks must load their images and libraries, and connect to rank 0."""

SILENCE = 5.0
"""Seconds after which rank 0 ignores a program that connected to its port and sends nothing."""

KEY = "trainkit.tensorflow.cluster"
"""First word of each message from a rank, which other programs do not send. The word is not
secret."""


@dataclass(frozen=True)
class Task:
    """The role of this process in a cluster of TensorFlow.

    Attributes:
        cluster: role -> the addresses HOST:PORT of its processes.
        role: role of this process, one of `ROLES`.
        index: number of this process among the processes with its role.
        connections: on rank 0, the connections to ranks 1, 2, ...; on any other rank, the
            connection to rank 0.
    """

    cluster: Mapping[str, Sequence[str]]
    role: str
    index: int
    connections: Sequence[Connection] = ()

    @property
    def config(self) -> str:
        """The value of TF_CONFIG for this process."""
        return json.dumps({
            "cluster": {role: list(hosts) for role, hosts in self.cluster.items()},
            "task": {"type": self.role, "index": self.index},
        })


def join(ranks: Ranks, roles: Sequence[str], *, connected: bool = False) -> Task:
    """Return the task of this process, and set TF_CONFIG. All ranks must call this function.

    Args:
        ranks: rank and world size of this process.
        roles: role of each rank, one of `ROLES`.
        connected: whether each rank stays connected with rank 0; the connection breaks when one of
            the two ranks ends.

    Raises:
        ArgumentError: the user's TF_CONFIG is invalid, or the address of rank 0 is missing.
        PeerError: a rank did not connect within `PATIENCE` seconds.
    """
    task = _task(ranks, roles, os.environ.get(VARIABLE), connected)
    os.environ[VARIABLE] = task.config
    return task


def _task(ranks: Ranks, roles: Sequence[str], given: str | None, connected: bool) -> Task:
    """Return the task of this process; `given` is the user's TF_CONFIG."""
    task = parse(given) if given else None
    if task is not None:
        _check_roles(task, roles)
        if not connected:
            return task
        main = task.cluster["chief"][0].rpartition(":")[0]
        os.environ.setdefault("MASTER_ADDR", main.strip("[]"))
    hosts, connections = _meet(ranks)
    if task is not None:
        return dataclasses.replace(task, connections=connections)
    cluster: dict[str, list[str]] = {}
    for role, host in zip(roles, hosts, strict=True):
        cluster.setdefault(role, []).append(host)
    role = roles[ranks.rank]
    index = list(roles[: ranks.rank]).count(role)
    return Task(cluster, role, index, connections if connected else ())


def parse(text: str) -> Task:
    """Return the task that `text`, the value of TF_CONFIG, describes.

    Raises:
        ArgumentError: the text is not valid JSON, or its task is not in its cluster.
    """
    try:
        content = json.loads(text)
        cluster = {
            role: _addresses(role, hosts) for role, hosts in dict(content["cluster"]).items()
        }
        role, index = content["task"]["type"], content["task"]["index"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"{VARIABLE} is not a cluster with a task ({type(error).__name__}: {error}): unset it, "
            "so that it is made from the launcher's variables, or set it to JSON such as "
            '{"cluster": {"worker": ["HOST:PORT"]}, "task": {"type": "worker", "index": 0}}',
            code="launcher-invalid",
        ) from error
    known = isinstance(index, int) and isinstance(role, str) and not isinstance(index, bool)
    if not known or not 0 <= index < len(cluster.get(role, ())):
        there = ", ".join(f"{name} 0..{len(hosts) - 1}" for name, hosts in cluster.items())
        raise ArgumentError(
            f"{VARIABLE}: the task {role} {index} is not in its cluster ({there})",
            code="launcher-invalid",
        )
    return Task(cluster, role, index)


def _check_roles(task: Task, roles: Sequence[str]) -> None:
    """Raise ArgumentError if the user's TF_CONFIG does not have the roles of the strategy.

    Raises:
        ArgumentError: TF_CONFIG and the strategy have different numbers of processes with a role.
    """
    given = Counter({role: len(hosts) for role, hosts in task.cluster.items()})
    if set(roles) == {"worker"}:  # TensorFlow accepts the first worker as "chief"
        given["worker"] += given.pop("chief", 0)
    if given != (wanted := Counter(roles)):
        raise ArgumentError(
            f"{VARIABLE} has the processes {_counted(given)}, but the strategy needs "
            f"{_counted(wanted)}: unset it, so that it is made from the launcher's variables",
            code="launcher-invalid",
        )


def _counted(roles: Counter[str]) -> str:
    return ", ".join(f"{count} {role}" for role, count in sorted(roles.items()))


def user_ranks() -> Ranks | None:
    """Return the `Ranks` of this process from the user's TF_CONFIG, or None if it is not set.

    The ranks are counted in the order of `ROLES`. TF_CONFIG does not describe nodes; all processes
    with the same host address count as processes of one node.

    Raises:
        ArgumentError: TF_CONFIG is invalid.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    task = parse(given)
    every = [(role, n) for role in ROLES for n in range(len(task.cluster.get(role, ())))]
    hosts = [task.cluster[role][n].rpartition(":")[0] for role, n in every]
    rank = every.index((task.role, task.index))
    return Ranks(
        VARIABLE, rank, len(every), hosts[:rank].count(hosts[rank]), hosts.count(hosts[rank])
    )


def _addresses(role: str, hosts: Any) -> list[str]:
    """Check `hosts`, the addresses of the processes with a role, and return them as a list.

    Raises:
        ValueError: the role is unknown, or an address is not HOST:PORT.
    """
    if role not in ROLES:
        raise ValueError(f"'{role}' is none of the roles {', '.join(ROLES)}")
    if not isinstance(hosts, list) or not hosts:
        raise ValueError(f"'{role}' has no list of addresses")
    for host in hosts:
        name, colon, port = host.rpartition(":") if isinstance(host, str) else ("", "", "")
        if not (name and colon and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ValueError(f"'{role}': {host!r} is not HOST:PORT")
    return list(hosts)


def _meet(ranks: Ranks) -> tuple[list[str], list[Connection]]:
    """Return the addresses of all ranks, and the connections of this rank; see `Task`."""
    address = rendezvous(ranks)
    with _free_port() as port:
        if ranks.rank == 0:
            several = ranks.local_size < ranks.size
            return _collect(address, ranks.size, port, everywhere=several)
        hosts, connection = _report(address, ranks.rank, port)
        return hosts, [connection]


def _collect(
    address: tuple[str, int], size: int, port: int, *, everywhere: bool = False
) -> tuple[list[str], list[Connection]]:
    """Return all ranks' addresses, and the connections to the other ranks; call this on rank 0.

    The addresses are sent to all other ranks. If `everywhere` is true, rank 0 accepts connections
    on all network devices of its node.
    """
    hosts: dict[int, str] = {0: f"{address[0]}:{port}"}
    connections: dict[int, Connection] = {}
    try:
        # The name of a node may be that of its loopback device, which other nodes do not reach.
        host = "" if everywhere else address[0]
        listener = Listener((host, address[1]), backlog=size)
    except OSError as error:
        raise ArgumentError(
            f"rank 0 cannot listen at {address[0]}:{address[1]} ({error.strerror}): set "
            "MASTER_ADDR to a name of the node of rank 0, and MASTER_PORT to a free port",
            code="launcher-invalid",
        ) from error
    limit = time.monotonic() + PATIENCE
    with listener:
        # The class has no method for a limit.
        _limit(listener._listener._socket, min(SILENCE, PATIENCE))  # type: ignore[attr-defined]
        while len(hosts) < size:
            if time.monotonic() > limit:
                missing = [str(rank) for rank in range(size) if rank not in hosts]
                raise PeerError(
                    f"ranks {', '.join(missing)} did not connect to rank 0 at "
                    f"{address[0]}:{address[1]} within {PATIENCE:.0f} s: see the messages of these "
                    "ranks, and check that their nodes reach this address"
                )
            try:
                connection = listener.accept()
                with _socket(connection) as own:
                    _limit(own, min(SILENCE, PATIENCE))
                    key, rank, host = json.loads(connection.recv_bytes(1 << 12))
                    _limit(own, 0)
                    _keep_alive(own)
            except (OSError, EOFError, ValueError, TypeError):
                continue  # no connection within `SILENCE` seconds, or one of another program
            if key == KEY and rank in range(1, size) and isinstance(host, str):
                hosts[rank], connections[rank] = host, connection
    found = [hosts[rank] for rank in range(size)]
    for rank, connection in connections.items():
        try:
            connection.send_bytes(json.dumps(found).encode())
        except OSError as error:
            raise PeerError(f"rank {rank} ended during the start; see its own message") from error
    return found, [connections[rank] for rank in range(1, size)]


def _report(address: tuple[str, int], rank: int, port: int) -> tuple[list[str], Connection]:
    """Report this rank's address to rank 0; return all ranks' addresses, and the connection."""
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            connection = Client(address)
            with _socket(connection) as own:
                host = own.getsockname()[0]  # the address by which this node reaches rank 0
                _keep_alive(own)
            connection.send_bytes(json.dumps([KEY, rank, f"{host}:{port}"]).encode())
            return json.loads(connection.recv_bytes()), connection
        except (OSError, EOFError, ValueError) as error:
            if time.monotonic() > limit:
                raise PeerError(
                    f"rank 0 cannot be reached at {address[0]}:{address[1]} ({error}): see its own "
                    "message, and check MASTER_ADDR and MASTER_PORT"
                ) from error
            time.sleep(0.2)


def _socket(connection: Connection) -> socket.socket:
    """Return a socket object with a duplicate of the file descriptor of a connection.

    The caller must close the object; the connection stays open.
    """
    return socket.socket(fileno=os.dup(connection.fileno()))


def _keep_alive(one: socket.socket) -> None:
    """Configure a socket to detect within about 25 s that the node at the other end has failed."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        one.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _limit(one: socket.socket, seconds: float) -> None:
    """Limit each wait for data from a socket to `seconds` seconds; 0 means no limit."""
    whole, rest = divmod(seconds, 1)
    value = struct.pack("ll", int(whole), int(rest * 1e6))  # timeval: seconds, microseconds
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)


@contextlib.contextmanager
def _free_port() -> Iterator[int]:
    """Yield a free port of this node, which stays reserved until the end of the `with` block."""
    with socket.socket() as reserved:
        reserved.bind(("", 0))
        yield reserved.getsockname()[1]
