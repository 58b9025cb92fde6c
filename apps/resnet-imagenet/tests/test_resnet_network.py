"""If the network between two ranks is cut, both ranks end soon, and report where they wait.

The two hosts are network namespaces that this test creates; the test cuts the cable between them.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

HOSTS = """
set -eu
export PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
ip link add left type veth peer name right
unshare --net sleep 300 &
other=$!
for _ in 1 2 3 4 5 6 7 8 9; do
    [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ] || break
    sleep 0.2
done
ip link set right netns $other
ip address add 10.99.0.1/24 dev left
ip link set left up
nsenter --target $other --net sh -c \\
    'ip link set lo up; ip address add 10.99.0.2/24 dev right; ip link set right up'
export MASTER_ADDR=10.99.0.1 MASTER_PORT=29500 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1
GLOO_SOCKET_IFNAME=left RANK=0 "$@" >"$OUT.0" 2>&1 &
first=$!
nsenter --target $other --net env GLOO_SOCKET_IFNAME=right RANK=1 "$@" >"$OUT.1" 2>&1 &
second=$!
until grep -q 'step 20/' "$OUT.0"; do
    kill -0 $first
    sleep 0.1
done
ip link set left down
date +%s >"$OUT.cut"
for rank in $first $second; do
    code=0
    wait $rank || code=$?
    echo "$code" >>"$OUT.codes"
done
date +%s >"$OUT.end"
kill $other
"""
WORDS = """
    train --synthetic --model resnet20 --image-size 32 --batch-size-per-rank 8 --steps 4000
    --warmup-steps 1 --log-every 5 --threads 1 --precision fp32 --device cpu --strategy ddp
    --watchdog 10
"""


def can_make_hosts() -> bool:
    try:
        words = ["unshare", "--user", "--map-root-user", "--net", "true"]
        return subprocess.run(words, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not can_make_hosts(), reason="no user namespaces, or no unshare")
def test_a_network_that_is_cut_is_noticed_by_both_sides(tmp_path: Path) -> None:
    out = tmp_path / "run"
    began = time.monotonic()
    subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "--kill-child", "--fork", "sh", "-c",
         HOSTS, "sh", sys.executable, "-m", "resnet_imagenet", *WORDS.split(), "--out", str(out)],
        check=True, timeout=200,
        env=os.environ | {"OUT": str(tmp_path / "said"), "OMP_NUM_THREADS": "1"},
    )
    assert time.monotonic() - began < 200
    cut, end = (int((tmp_path / f"said.{name}").read_text()) for name in ("cut", "end"))
    said = [(tmp_path / f"said.{rank}").read_text() for rank in (0, 1)]
    assert end - cut < 30, said
    codes = (tmp_path / "said.codes").read_text().split()
    assert set(codes) <= {"69"}, said
    told = [line for text in said for line in text.splitlines() if "nothing has moved" in line]
    assert told
    assert re.search(r"ranks? .*(waiting|making a step)", told[0])
