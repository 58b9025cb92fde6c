"""Run a command on two emulated hosts, whose network has a known delay and a known rate.

    unshare --user --map-root-user --net --mount \
        python tests/two_hosts.py --delay-ms 5 --rate-mbit 80 -- COMMAND...

The hosts are network namespaces. Each has one end of a veth pair; this process forwards the frames
between the other ends after the delay (the kernels of small virtual machines often lack netem), and
tbf of tc limits the rate. COMMAND runs once on each host, with the variables of a launcher: RANK,
WORLD_SIZE, MASTER_ADDR. The exit code is the larger one of both. It needs Linux, iproute2 and user
namespaces, but no root.
"""

from __future__ import annotations

import argparse
import fcntl
import heapq
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

SIOCETHTOOL = 0x8946
OFFLOADS = (0x17, 0x1F, 0x24)
"""ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO (linux/ethtool.h), switched off: a forwarded frame
must have its checksum, and fit into the MTU."""
ETH_P_ALL = 3
HOSTS = ("10.77.0.1", "10.77.0.2")
PORT = "29591"


def sh(*words: str) -> None:
    """Run a command; an error ends this process."""
    subprocess.run(words, check=True)


def whole_frames(device: str) -> None:
    """Switch off the offloads of `device`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in OFFLOADS:
            value = array("I", [command, 0])  # struct ethtool_value
            request = struct.pack("16sP", device.encode(), value.buffer_info()[0])  # struct ifreq
            fcntl.ioctl(control, SIOCETHTOOL, request)


def main() -> int:
    """Run the command on two emulated hosts; forward the Ethernet frames between the hosts.

    Return the larger of the two exit codes.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--delay-ms", type=float, default=5.0, help="one-way delay")
    parser.add_argument("--rate-mbit", type=float, default=80.0, help="rate on the wire, one way")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    sh("mount", "-t", "tmpfs", "none", "/run")  # where ip keeps the names of namespaces
    for number, address in enumerate(HOSTS):
        add_host(number, address, options.rate_mbit)
    forwarding = threading.Thread(target=forward, args=(options.delay_ms / 1000,), daemon=True)
    forwarding.start()
    ranks = [
        subprocess.Popen(["ip", "netns", "exec", f"host{number}", *options.command],
                         env={**os.environ, **variables(number)})
        for number in range(2)
    ]
    return max(abs(rank.wait()) for rank in ranks)


def variables(rank: int) -> dict[str, str]:
    """Return the environment variables with which process `rank` connects to the other process.

    Each variable is also returned with the prefix `APPTAINERENV_`, with which Apptainer sets it in
    containers.
    """
    found = {
        "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": HOSTS[0], "MASTER_PORT": PORT, "GLOO_SOCKET_IFNAME": "eth0",
    }
    return {**found, **{f"APPTAINERENV_{name}": value for name, value in found.items()}}


def add_host(number: int, address: str, rate_mbit: float) -> None:
    """Make a namespace with a network device `eth0`, whose other end is `wire{number}` here."""
    name = f"host{number}"
    sh("ip", "netns", "add", name)
    sh("ip", "link", "add", f"wire{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
    sh("ip", "link", "set", f"wire{number}", "up")
    sh("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
    sh("ip", "-n", name, "link", "set", "lo", "up")
    sh("ip", "netns", "exec", name, sys.executable, __file__, "--prepare")
    sh("ip", "-n", name, "link", "set", "eth0", "up")
    sh("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{rate_mbit}mbit",
       "burst", "4kb", "latency", "500ms")
    whole_frames(f"wire{number}")


def forward(delay: float) -> None:
    """Forward Ethernet frames between the two hosts, each after `delay` seconds."""
    wires = []
    for number in range(2):
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        wire.bind((f"wire{number}", 0))
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
        wires.append(wire)
    poll = select.epoll()
    for wire in wires:
        wire.setblocking(False)
        poll.register(wire, select.EPOLLIN)
    due: list[tuple[float, int, int, bytes]] = []
    count = 0
    while True:
        wait = max(0.0, due[0][0] - time.monotonic()) if due else -1
        for handle, _ in poll.poll(wait):
            number = [wire.fileno() for wire in wires].index(handle)
            for frame in received(wires[number]):
                count += 1
                heapq.heappush(due, (time.monotonic() + delay, count, 1 - number, frame))
        while due and due[0][0] <= time.monotonic():
            _, _, number, frame = heapq.heappop(due)
            wires[number].send(frame)


def received(wire: socket.socket) -> Iterator[bytes]:
    """Yield the Ethernet frames that a host has sent, from its end `wire` of a veth pair."""
    while True:
        try:
            frame, address = wire.recvfrom(65535)
        except BlockingIOError:
            return
        if address[2] != socket.PACKET_OUTGOING:  # not a frame that this process sent
            yield frame


if __name__ == "__main__":
    if sys.argv[1:] == ["--prepare"]:
        whole_frames("eth0")
        # The congestion window of a connection stays open between messages.
        Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").write_text("0", encoding="ascii")
    else:
        sys.exit(main())
