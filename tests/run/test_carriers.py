"""Test which networks are found in log lines of network libraries, as their projects show them.

The lines are short ones of our own in the formats of: NCCL, github.com/NVIDIA/nccl issues 226, 676,
952 and 1814; aws-ofi-nccl, github.com/aws/aws-ofi-nccl issues 161, 801 and 889; RCCL, LUMI's
documentation; UCX, github.com/openucx/ucx issue 9560 and pull requests 3511, 8699 and 9839. The
lines of UCX 1.13.1 and Open MPI 4.1.4 over TCP are those that Debian 12's packages printed on
2026-11-27 (mpirun -n 2, an all-reduce of mpi4py).
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from trimaran.cluster import script
from trimaran.run import carriers
from trimaran.run.carriers import FabricRecord
from trimaran.site_file import FabricName

IB = """\
n1:7:7 [0] NCCL INFO Bootstrap : Using ib0:10.0.0.1<0>
n1:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.0.1<0>
n1:7:7 [0] NCCL INFO Using network IB
n1:7:9 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
n1:7:9 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/IPC/read
"""
ROCE = """\
n1:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_10:1/RoCE [1]mlx5_11:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
n1:7:7 [0] NCCL INFO Using network IB
"""
SOCKET = """\
n1:7:7 [0] NCCL INFO NET/IB : No device found.
n1:7:7 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
n1:7:7 [0] NCCL INFO Using network Socket
n1:7:9 [0] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/0
"""
OFI = """\
n1:7:7 [0] NCCL INFO NET/OFI Using aws-ofi-nccl 1.6.0
n1:7:7 [0] NCCL INFO NET/OFI Selected Provider is {} (found 4 nics)
n1:7:7 [0] NCCL INFO Using network AWS Libfabric
n1:7:9 [0] NCCL INFO Ring 00 : 7 -> 8 [send] via NET/AWS Libfabric/0
"""
NEW_OFI = """\
n1:7:7 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)
n1:7:7 [0] NCCL INFO Using network Libfabric
"""
RCCL = "n1:7:7 [0] NCCL INFO RCCL version : 2.18.3\n" + OFI.format("cxi")
PLUGIN = "n1:7:7 [0] NCCL INFO Using network IBext_v8\n"
OTHER = "n1:7:7 [0] NCCL INFO Using network GPUDirectTCPX_v7\n"
UCX_TCP = """\
[1795738035.71] [vm:7:0] ucp_worker.c:1763 UCX  INFO  ep_cfg[0]: tag(self/memory0 tcp/lo tcp/eth0)
[1795738035.718295] [vm:7:0]  ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag(tcp/lo tcp/eth0)
"""
UCX_RC = """\
[1.0] [n1:7:0]  wireup.c:825 UCX  INFO  ep_cfg[1]: tag(sysv/memory cma/memory tcp/ib1);
[1.0] [n1:7:0]  wireup.c:825 UCX  INFO  ep_cfg[2]: tag(rc_mlx5/mlx5_0:1 rc_mlx5/mlx5_1:1); rma(rc/x)
"""
UCX_NEW = """\
[1.0] [n1:7:0]  ucp_worker.c:1887 UCX  INFO  0x1 self cfg#0 tag(self/memory cma/memory tcp/eth0)
[1.0] [n1:7:0]  ucp_worker.c:1887 UCX  INFO  0x1 intra-node cfg#1 tag(tcp/lo)
[1.0] [n1:7:0]  ucp_worker.c:1887 UCX  INFO  0x1 inter-node cfg#2 tag(dc_mlx5/mlx5_0:1)
"""
OB1 = """\
[vm:7] select: component ob1 selected
[vm:7] mca: bml: Using self btl for send to [[1,1],0] on node vm
[vm:7] mca: bml: Using vader btl for send to [[1,1],1] on node vm
[vm:7] mca: bml: Using tcp btl for send to [[1,1],2] on node vm2
"""
MTL_TCP = "[vm:7] mtl_ofi_component.c:337: mtl:ofi:prov: tcp;ofi_rxm\n"
MTL_CXI = "[vm:7] mtl_ofi_component.c:337: mtl:ofi:prov: cxi\n"
PSM2 = "[vm:7] select: component cm selected\n[vm:7] select: component psm2 selected\n"
BACKEND = '  "strategy": {{"name": "x", "backend": "{}", "rank": 0}}\n'


def collected(log: bytes, place: Path) -> str:
    """Return the content of `fabric.log` that the script of a job extracts from a log."""
    (place / "log.txt").write_bytes(b"job.sh: job 1, link 1: x\n" + log)
    (place / "functions.sh").write_text(script.functions())
    names = re.findall(r'(?m)^: "\$\{(\w+)\?\}', script.functions())
    source = "".join(f"{name}=''\n" for name in names) + (
        "job=1\nnumber=1\nnodes=2\n. ./functions.sh\ncarriers\n")
    done = subprocess.run(["sh", "-c", source], cwd=place, capture_output=True, text=True,
                          check=True, timeout=60, env={**os.environ, "LC_ALL": "C"})
    assert done.stderr == ""
    return done.stdout


def read(log: str, place: Path, wanted: FabricName = "infiniband") -> FabricRecord:
    return carriers.parse(wanted, collected(log.encode(), place))


@pytest.mark.parametrize(("log", "expected"), [
    (IB, [("NCCL", "IB", "mlx5_0, mlx5_1", "fast")]),
    (ROCE, [("NCCL", "RoCE", "mlx5_10, mlx5_11", "fast")]),
    (SOCKET, [("NCCL", "Socket", "eth0", "tcp")]),
    (OFI.format("cxi"), [("NCCL", "cxi", None, "fast")]),
    (OFI.format("efa"), [("NCCL", "efa", None, "fast")]),
    (OFI.format("tcp;ofi_rxm"), [("NCCL", "tcp;ofi_rxm", None, "tcp")]),
    (OFI.format("sockets"), [("NCCL", "sockets", None, "tcp")]),
    (OFI.format("verbs;ofi_rxm"), [("NCCL", "verbs;ofi_rxm", None, "fast")]),
    (OFI.format("shm"), [("NCCL", "shm", None, "unknown")]),
    (NEW_OFI, [("NCCL", "efa", None, "fast")]),
    (RCCL, [("RCCL", "cxi", None, "fast")]),
    (PLUGIN, [("NCCL", "IBext_v8", None, "fast")]),
    (OTHER, [("NCCL", "GPUDirectTCPX_v7", None, "unknown")]),
    (UCX_TCP, [("UCX", "tcp", "lo", "tcp"), ("UCX", "tcp", "eth0", "tcp")]),
    (UCX_RC, [("UCX", "rc_mlx5", "mlx5_0:1", "fast"), ("UCX", "rc_mlx5", "mlx5_1:1", "fast")]),
    (UCX_NEW, [("UCX", "dc_mlx5", "mlx5_0:1", "fast")]),
    (OB1, [("Open MPI", "tcp", None, "tcp")]),
    (MTL_TCP, [("libfabric", "tcp;ofi_rxm", None, "tcp")]),
    (MTL_CXI, [("libfabric", "cxi", None, "fast")]),
    (PSM2, [("PSM2", "psm2", None, "fast")]),
    (BACKEND.format("gloo"), [("Gloo", "TCP", None, "tcp")]),
    (BACKEND.format("mpi"), []),
    ("", []),
    ("epoch 1, using networks of 3 layers\n", []),
])
def test_the_network_of_each_library_is_read(
    log: str, expected: list[tuple[str, str, str | None, str]], tmp_path: Path
) -> None:
    found = read(log, tmp_path)
    assert [(one.library, one.transport, one.interface, one.kind) for one in found.carried] == \
        expected
    assert all(one.lines > 0 for one in found.carried)


def test_channels_count_more_than_the_choice_and_each_line_is_counted(tmp_path: Path) -> None:
    [one] = read(IB + IB + "n1:7:7 [0] NCCL INFO Using network Socket\n", tmp_path).carried
    assert (one.transport, one.lines) == ("IB", 2)


@pytest.mark.parametrize(("log", "slow"), [
    (IB + SOCKET, ["Socket"]),  # one link of the chain had the card, another had not
    (UCX_RC + UCX_TCP, ["tcp", "tcp"]),
    (OB1 + IB, ["tcp"]),  # nothing is known of what the app used
    (OB1 + IB + BACKEND.format("nccl"), []),  # MPI sent only Horovod's messages
    (UCX_RC + SOCKET + BACKEND.format("mpi"), []),
    (OB1 + IB + BACKEND.format("mpi"), ["tcp"]),
    (IB + BACKEND.format("gloo"), ["TCP"]),
    (BACKEND.format("gloo") + BACKEND.format("nccl") + IB, ["TCP"]),
    (PSM2, []), (OTHER, []), ("", []),
])
def test_tcp_is_named_where_the_gradients_went_over_it(
    log: str, slow: list[str], tmp_path: Path
) -> None:
    found = read(log, tmp_path)
    assert [one.transport for one in found.slow] == slow
    assert (carriers.fault(found) is not None) == bool(slow)
    assert read(log, tmp_path, "ethernet").slow == []


@pytest.mark.parametrize(("log", "known"), [
    (IB, True), (SOCKET, True), (OTHER, False), ("", False), (IB + BACKEND.format("mpi"), False),
])
def test_what_no_log_shows_is_unknown(log: str, known: bool, tmp_path: Path) -> None:
    found = read(log, tmp_path)
    assert found.known == known
    assert (carriers.unseen(found) is None) == known
    assert known or carriers.fault(found) is None
    assert carriers.unseen(read(log, tmp_path, "ethernet")) is None


def test_binary_and_huge_logs_are_read_within_limits(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 40_000
    log = noise + b"\0NCCL INFO Using network Socket\0\n" + b"A" * 20_000_000 + b"\n"
    [one] = carriers.parse("efa", collected(log, tmp_path)).carried
    assert (one.transport, one.lines) == ("Socket", 1)


def test_many_different_texts_are_cut_and_tcp_comes_first(tmp_path: Path) -> None:
    log = "".join(f"ep_cfg[1]: tag(rc_mlx5/mlx5_{number}:1)\n" for number in range(9000))
    text = collected((log + UCX_TCP).encode(), tmp_path)
    assert len(text.splitlines()) <= 2000
    found = carriers.parse("infiniband", text + "  1 ep_cfg[1]: tag(tcp/eth0)\n")
    assert len(found.carried) == carriers.MOST
    assert found.carried[0].kind == "tcp"


@pytest.mark.parametrize("text", [
    "Using network Socket", "x Using network Socket", "99999999999999 Using network Socket",
    " 1 Using network \x1b[31mSocket", " 1 Using network " + "S" * 100, "\0\0", " 1 ",
    " 1 via NET/<b>/0", " 1 mtl:ofi:prov: $(touch owned)", " 1 ep_cfg[1]: tag(\x1b/x)",
])
def test_hostile_lines_show_nothing(text: str) -> None:
    assert carriers.parse("infiniband", text).carried == []


def test_a_log_that_is_missing_or_no_plain_file_shows_nothing(tmp_path: Path) -> None:
    empty = FabricRecord(wanted="roce")
    assert carriers.read(tmp_path, "roce") == empty
    (tmp_path / "other").write_text(" 1 Using network Socket\n")
    (tmp_path / carriers.LOG).symlink_to("other")
    assert carriers.read(tmp_path, "roce") == empty
    (tmp_path / carriers.LOG).unlink()
    os.mkfifo(tmp_path / carriers.LOG)
    assert carriers.read(tmp_path, "roce") == empty
    (tmp_path / carriers.LOG).unlink()
    with (tmp_path / carriers.LOG).open("wb") as file:
        file.truncate(carriers.LIMIT + 1)
    assert carriers.read(tmp_path, "roce") == empty
