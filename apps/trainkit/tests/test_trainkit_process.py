"""Tests of the end and output of a process: exit codes, signals, atomic files, environment.json."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainkit import atomic, exits, provenance
from trainkit.error_codes import CODES
from trainkit.ranks import Ranks, horovod_backend
from trainkit.signals import StopFlag
from trainkit.strategy import Strategy
from trainkit.testing.refusals import assert_reported, refused


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exits.ArgumentError, 2),
        (exits.DataError, 3),
        (exits.DivergedError, 4),
        (exits.NoSpaceError, 74),
        (exits.StoppedError, 75),
    ],
)
def test_each_error_ends_with_its_code_and_no_traceback(
    error: type[exits.AppError], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise error("wrong")

    assert exits.run("app train", main) == code
    assert capsys.readouterr().err == f"app train: error[{error.code}]: wrong\n"


def test_an_error_has_the_code_it_is_given_or_that_of_its_class() -> None:
    assert exits.DataError("wrong", code="split-missing").code == "split-missing"
    for kind in (exits.AppError, *exits.AppError.__subclasses__()):
        assert kind("wrong").code in CODES, kind


@pytest.mark.parametrize("error", [
    exits.PeerError("lost"), OSError(errno.ENAMETOOLONG, "long"), OSError(errno.ENOSPC, "full"),
    OSError(errno.EDQUOT, "full"), KeyboardInterrupt(), PermissionError(errno.EACCES, "denied"),
    ValueError("wrong"),
])
def test_the_exit_code_of_an_error_is_that_of_its_command(error: BaseException) -> None:
    def main() -> None:
        raise error

    code = 1  # of Python, after an exception
    with contextlib.suppress(PermissionError, ValueError):
        code = exits.run("app", main)
    assert exits.exit_code(error) == code


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_wherever_it_is_met(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise OSError(number, os.strerror(number), "metrics.jsonl")

    assert exits.run("app", main) == 74
    assert_reported(capsys.readouterr().err, "disk-full", "metrics.jsonl")


def test_a_name_that_is_too_long_is_a_wrong_argument(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exits.run("app", (tmp_path / ("x" * 300)).mkdir) == 2
    assert_reported(capsys.readouterr().err, "argument-invalid", "x" * 300)


def test_ctrl_c_is_told_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise KeyboardInterrupt

    assert exits.run("app export", main) == 130
    assert capsys.readouterr().err == "app export: error[stopped]: interrupted\n"


def test_other_system_errors_are_defects() -> None:
    def main() -> None:
        raise PermissionError(errno.EACCES, "denied")

    with pytest.raises(PermissionError):
        exits.run("app", main)


def test_success_is_0_and_a_defect_keeps_its_traceback() -> None:
    assert exits.run("app", lambda: None) == 0
    with pytest.raises(ZeroDivisionError):
        exits.run("app", lambda: print(1 / 0))


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP]
)
def test_a_signal_sets_the_flag_and_the_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopFlag() as stop:
        assert not stop
        assert stop.name == "no signal"
        os.kill(os.getpid(), number)
        assert stop
        assert stop.name == number.name
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_ctrl_c_after_a_stop_does_not_wait(first: signal.Signals) -> None:
    """A SIGINT after an earlier SIGINT or SIGTERM raises KeyboardInterrupt at once.

    `trimaran run` sends SIGTERM for the first Ctrl-C, and SIGINT for the second.
    """
    with StopFlag():
        os.kill(os.getpid(), first)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopFlag() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


DEAF = """
import signal, time
from trainkit.signals import StopFlag
with StopFlag():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # of this thread only
    print("ready", flush=True)
    time.sleep(60)
"""
STUBBORN = """
import time
from trainkit.signals import StopFlag
with StopFlag():
    print("ready", flush=True)
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:  # as code that must not raise does
            pass
"""


@pytest.mark.parametrize("program", [DEAF, STUBBORN])
def test_a_third_ctrl_c_ends_a_process_that_does_not_listen(program: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    for _ in range(3):
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        time.sleep(0.1)  # two that are pending count as one
    assert child.wait(10) == 130
    child.stdout.close()


def test_after_the_second_ctrl_c_the_next_one_ends_what_is_left() -> None:
    program = (
        "import os, signal, sys, time\n"
        "from trainkit import exits\n"
        "from trainkit.signals import StopFlag\n"
        "def main():\n"
        "    with StopFlag():\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "code = exits.run('app', main)\n"
        "print(code, flush=True)\n"
        "time.sleep(60)\n"  # a thread that waits for a disk
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "130\n"
    child.send_signal(signal.SIGINT)
    assert child.wait(10) == -signal.SIGINT
    child.stdout.close()


def test_a_path_that_is_no_text_can_be_named() -> None:
    program = (
        "import os, sys\n"
        "from trainkit import exits\n"
        "def main(): raise exits.DataError(os.fsdecode(b'photo \\xff'), code='data-damaged')\n"
        "sys.exit(exits.run('app', main))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 3
    assert done.stderr == b"app: error[data-damaged]: photo \\udcff\n"


def test_atomic_json_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    atomic.write_json(path, {"top1": 0.9})
    with pytest.raises(ValueError, match="JSON"):
        atomic.write_json(path, {"top1": float("inf")})
    assert json.loads(path.read_text()) == {"top1": 0.9}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_new_file_needs_a_free_name_in_a_folder_that_can_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    atomic.check_new(file)
    file.touch()
    for path, code in (
        (file, "file-exists"),
        (tmp_path / "gone" / "file", "file-unwritable"),
        (file / "file", "file-unwritable"),
    ):
        with refused(exits.ArgumentError, code, path):
            atomic.check_new(path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with refused(exits.ArgumentError, "permission-denied", tmp_path / "other"):
        atomic.check_new(tmp_path / "other")


def test_environment_names_versions_threads_allocator_and_cpu() -> None:
    facts = provenance.environment(["trainkit", "no-such-package"], Strategy())
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["packages"] == {"trainkit": "0.1.0", "no-such-package": None}
    assert facts["cpu"]["usable_cores"] == len(os.sched_getaffinity(0))
    assert facts["allocator"] in {"glibc", "tcmalloc", "jemalloc"}
    json.dumps(facts)


@pytest.mark.parametrize(("mapped", "found"), [
    ("7f00 r-xp /usr/lib/libtcmalloc_minimal.so.4\n", "tcmalloc"),
    ("7f00 r-xp /opt/libjemalloc.so.2\n", "jemalloc"),
    ("7f00 r-xp /usr/lib/libc.so.6\n", "glibc"),  # LD_PRELOAD names what is not there
])
def test_the_allocator_is_the_one_that_was_loaded_and_cores_those_that_may_be_used(
    mapped: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "maps").write_text(mapped)
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2 avx512_bf16x\nmodel name : A processor\n")
    monkeypatch.setenv("LD_PRELOAD", "/absent/libtcmalloc.so")
    monkeypatch.setattr(provenance, "Path", lambda path: tmp_path / Path(path).name)
    monkeypatch.setattr(provenance.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7})
    facts = provenance.environment([], Strategy(Ranks("Slurm", 5, 6, 1, 2)))
    assert facts["allocator"] == found
    assert facts["cpu"] == {"model": "A processor", "usable_cores": 3, "flags": ["avx2"]}
    assert facts["strategy"] == {
        "name": "single", "device": "cpu", "backend": None, "launcher": "Slurm", "rank": 5,
        "size": 6, "local_rank": 1, "local_size": 2,
    }
    assert facts["variables"]["LD_PRELOAD"] == "/absent/libtcmalloc.so"


@pytest.mark.parametrize(("content", "model", "flags"), [
    ("Features : fp asimd sve bf16 i8mm\nCPU implementer : 0x41\nCPU part : 0xd4f\n",
     "aarch64 0x41 0xd4f", ["asimd", "sve", "bf16", "i8mm"]),
    ("flags : avx2 avx512_bf16\nmodel name : AMD EPYC\n", "AMD EPYC", []),  # an emulator's host
    ("", "aarch64", []),
])
def test_an_arm_processor_has_its_numbers_and_only_its_own_instruction_sets(
    content: str, model: str, flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(content)
    monkeypatch.setattr(provenance, "Path", lambda path: tmp_path / Path(path).name)
    monkeypatch.setattr(provenance.platform, "machine", lambda: "aarch64")
    assert provenance.cpu_model() == model
    assert provenance.cpu_flags() == flags


@pytest.mark.parametrize(("nccl", "mpi", "gpu", "backend"), [
    (22602, True, True, "nccl"), (22602, True, False, "mpi"), (0, True, True, "mpi"),
    (False, False, True, "gloo"), (22602, False, False, "gloo"),
])
def test_the_backend_of_horovod_is_the_one_that_averages(
    nccl: int, mpi: bool, gpu: bool, backend: str
) -> None:
    hvd = SimpleNamespace(nccl_built=lambda: nccl, mpi_enabled=lambda: mpi)
    assert horovod_backend(hvd, gpu=gpu) == backend


def test_a_single_process_is_the_main_one() -> None:
    assert Strategy().is_main
    assert not Strategy(Ranks(rank=1, size=2)).is_main
    assert not Strategy(Ranks("Slurm", rank=2, size=4, local_rank=0, local_size=2)).is_main
