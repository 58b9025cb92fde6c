"""Test with strace that an app leaves no file outside --out, and opens no network connection.

The test runs the app with plain Apptainer, without Trimaran's isolation from the host. So the app
can use the home folder, /tmp and the network of the host.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import photos
import tinyapp
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.reporting import Silent

TRAIN = (
    "train --model=resnet20 --image-size=32 --max-steps=2 --batch-size-per-rank=4 --epochs=1 "
    "--warmup-epochs=0 --eval-every=1 --threads=1"
)
VERBS = {
    "train": f"{TRAIN} --data=PACKED --out=OUT",
    "evaluate": "evaluate --data=PACKED --out=OUT --threads=1",
    "predict": "predict --data=PHOTO --out=OUT --threads=1",
    "export": "export --out=OUT --to=OUT/network.onnx --data=PACKED",
    "plot": "plot --out=OUT",
}
CALLS = (
    "execve,clone,clone3,fork,vfork,open,openat,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,"
    "symlink,symlinkat,rename,renameat,renameat2,unlink,unlinkat,rmdir,connect,sendto,sendmsg"
)
OF_THE_SYSTEM = ("/dev/", "/proc/")
"""Folders of devices, shared memory and process settings, where nothing remains after a run."""

CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+)")


@dataclass
class Trace:
    """What strace shows: paths that remain after a run, and internet addresses in its calls."""

    left: set[str] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield process ID and text of each system call in strace's output; join interrupted lines."""
    begun: dict[int, str] = {}
    for line in text.splitlines():
        pid, call = int(line.split()[0]), line.partition(" ")[2].strip()
        if call.endswith("<unfinished ...>"):
            begun[pid] = call.removesuffix("<unfinished ...>")
        elif resumed := re.match(r"<\.\.\. \w+ resumed>", call):
            yield pid, begun.pop(pid, "") + call[resumed.end():]
        else:
            yield pid, call


def read(text: str) -> Trace:
    """Return the files that were created and remained, and the internet addresses, of a trace.

    `text` is the output of strace. Only calls of the container's Python and of the processes that
    it started count.
    """
    found, family = Trace(), set()
    for pid, line in lines(text):
        call = CALL.match(line)
        if call is None:
            continue
        name, words, result = call.groups()
        if name == "execve" and '"/opt/trimaran/bin/python' in words and result == "0":
            family.add(pid)
        if pid not in family:
            continue
        if name in ("clone", "clone3", "fork", "vfork"):
            family.add(int(result))
        elif name in ("connect", "sendto", "sendmsg"):
            found.addresses |= set(re.findall(r"sa_family=AF_INET6?, .*?\}", words))
        elif name != "execve" and not result.startswith("-"):
            note(found.left, name, words)
    return found


def note(left: set[str], name: str, words: str) -> None:
    """Add the paths that a successful system call creates to `left`; discard those it removes."""
    paths = [
        os.path.normpath(os.path.join(folder, path))  # noqa: PTH118 - text of the trace
        for folder, path in re.findall(r'(?:<([^<>]*)>, )?"([^"]*)"', words)
    ]
    if name in ("unlink", "unlinkat", "rmdir"):
        left.discard(paths[0])
    elif name.startswith(("rename", "link", "symlink")):
        left.add(paths[-1])
        if name.startswith("rename"):
            left.discard(paths[0])
    elif not name.startswith("open") or re.search("O_(WRONLY|RDWR|CREAT)", words):
        left.add(paths[0])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a packed data set of images."""
    folder = tmp_path_factory.mktemp("traces")
    photos.folder(folder / "photos")
    done = tinyapp.call(
        ["data", "pack", str(folder / "photos"), "-o", str(folder / "packed")], dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    return folder


def strace(folder: Path) -> list[str]:
    """Copy strace to a folder that the container sees; return the words that run it there.

    Outside of the container, strace would also trace the FUSE program of the SIF, and wait for it.
    """
    program = str(shutil.which("strace"))
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    folder.mkdir(exist_ok=True)
    for file in (program, *re.findall(r"=> (/\S+/(?!libc\.)\S+)", linked)):
        shutil.copy(file, folder)
    return ["env", f"LD_LIBRARY_PATH={folder}", f"{folder}/strace", "-E", "LD_LIBRARY_PATH"]


@pytest.mark.trains
@pytest.mark.engine("apptainer")
@pytest.mark.engine("strace")
@pytest.mark.timeout(1800)  # the image is built, the first time
@pytest.mark.usefixtures("user_cache")
@pytest.mark.parametrize("verb", list(VERBS))  # in this order: the first one trains
def test_a_verb_writes_to_out_alone_and_speaks_to_nobody(verb: str, place: Path) -> None:
    engine = Apptainer()
    built = engine.build(
        definition.load("resnet-imagenet-torch-cpu"), base=None, offline=False, reporter=Silent()
    )
    photo = next((place / "photos/val").rglob("*.jpg"))
    named = {"PACKED": place / "packed", "OUT": place / "out", "PHOTO": photo}
    words = VERBS[verb]
    for name, path in named.items():
        words = words.replace(name, str(path))
    trace = place / f"{verb}.trace"
    done = subprocess.run(
        [engine.executable, "--quiet", "exec", "--bind", str(place), built.reference,
         *strace(place / "tools"), "-f", "-y", "-qq", "--seccomp-bpf", f"--trace={CALLS}",
         "-o", str(trace), "/opt/trimaran/bin/python", "-m", "resnet_imagenet", *words.split()],
        capture_output=True, text=True, check=False, timeout=600, cwd=place,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(trace.read_text(errors="replace"))
    out = str(place / "out")
    outside = {path for path in found.left if not path.startswith((out, *OF_THE_SYSTEM))}
    assert outside == set()
    assert found.addresses == set()


def test_a_trace_is_understood() -> None:
    text = "\n".join([
        '7 openat(AT_FDCWD</>, "/before", O_WRONLY|O_CREAT, 0666) = 3</before>',
        '7 execve("/opt/trimaran/bin/python", ["python"], 0x1 /* 9 vars */) = 0',
        '7 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>',
        '9 openat(AT_FDCWD</>, "/other", O_WRONLY|O_CREAT, 0666) = 3</other>',
        '7 <... clone resumed>, child_tidptr=0x7f) = 8',
        '8 openat(AT_FDCWD</here>, "left", O_WRONLY|O_CREAT, 0666) = 3</here/left>',
        '8 openat(AT_FDCWD</here>, "read", O_RDONLY) = 3</here/read>',
        '8 openat(AT_FDCWD</here>, "/refused", O_RDWR) = -1 EACCES (Permission denied)',
        '8 mkdir("/tmp/gone", 0700) = 0',
        '8 rmdir("/tmp/gone") = 0',
        '8 rename("/here/left", "/here/kept") = 0',
        '8 connect(3<socket:[1]>, {sa_family=AF_UNIX, sun_path="/run/x"}, 110) = -1 ENOENT (No)',
        '8 connect(3<UDP:[1]>, {sa_family=AF_INET, sin_port=htons(53), '
        'sin_addr=inet_addr("10.0.0.1")}, 16) = 0',
    ])
    found = read(text)
    assert found.left == {"/here/kept"}
    assert len(found.addresses) == 1
