"""Test that an environment of the host engine is complete or missing, and is made only once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

import wheels
from commandline import command
from trimaran import locks, paths
from trimaran.engines import host
from trimaran.engines.host import Host
from trimaran.images import definition, wheelhouse
from trimaran.inventory import cache_usage
from trimaran.reporting import Silent

TINY = Path(__file__).parents[1] / "images" / "tiny" / "image.yaml"
PROGRAM = f"""
import sys
from contextlib import nullcontext
from pathlib import Path
from trimaran.cli.terminal import Terminal
from trimaran.engines import host
from trimaran.engines.host import Host
from trimaran.images import definition, wheelhouse

wheelhouse.fetch = lambda *words, **more: []
wheelhouse.view = lambda *words: nullcontext(Path(sys.argv[1]))
image = definition.read(Path({str(TINY)!r}))
print(Host().build(image, base=None, offline=True, reporter=Terminal()).reference)
"""
MODULES = 200
MADE = "part-*/*/lib/python*/site-packages/*/module*.py"


@pytest.fixture
def view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let every build use a wheelhouse (folder of wheels) with one package; return its path."""
    folder = tmp_path / "view"
    wheels.write(folder / "wheels", "one", modules=9, script=True)
    monkeypatch.setattr(wheelhouse, "fetch", lambda *words, **more: [])
    monkeypatch.setattr(wheelhouse, "view", lambda *words: nullcontext(folder))
    return folder


@pytest.fixture
def long(view: Path) -> Path:
    """Return the wheelhouse with two more large packages.

    They make it large enough that two processes unpack its wheels in parallel.
    """
    for name in ("two", "three"):
        wheels.write(view / "wheels", name, modules=MODULES)
    return view


def build(reporter: Silent | None = None) -> Path:
    built = Host().build(
        definition.read(TINY), base=None, offline=True, reporter=reporter or Silent()
    )
    return Path(built.reference)


def start(view: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(view)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def modules(place: Path) -> int:
    return len(list(place.glob("lib/python*/site-packages/*/module*.py")))


def test_an_environment_has_its_packages_and_its_scripts_run(view: Path) -> None:
    place = build()
    said = subprocess.run(
        [place / "bin/python", "-c", "import one.module7; print(one.module7.NUMBER)"],
        capture_output=True, text=True, check=True,
    )
    assert said.stdout == "7\n"
    assert (place / "bin/one").read_text().startswith(f"#!{place}/bin/python\n")
    assert Host().find(definition.read(TINY)) is not None


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_stopped_build_leaves_no_process_and_the_next_one_makes_it_whole(
    long: Path, signum: signal.Signals
) -> None:
    with start(long) as tool:
        until(lambda: list(paths.cache("host").glob(MADE)))
        children = psutil.Process(tool.pid).children(recursive=True)
        os.kill(tool.pid, signum)
        tool.communicate()
    assert tool.returncode != 0
    assert not [path for path in paths.cache("host").iterdir() if "part-" not in path.name]
    place = build()
    assert modules(place) == 2 * MODULES + 9
    psutil.wait_procs(children, timeout=10)
    assert not [child for child in children if child.is_running()]
    assert modules(place) == 2 * MODULES + 9
    left = list(paths.cache("host").glob("part-*"))
    assert all(locks.left_over(path) for path in left)
    assert len(left) == (0 if signum == signal.SIGINT else 1)


def test_two_builds_at_once_make_one_environment_and_the_second_waits(long: Path) -> None:
    with start(long) as first, start(long) as second:
        said = [tool.communicate(timeout=60) for tool in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], said
    assert said[0][0] == said[1][0]
    assert modules(Path(said[0][0].strip())) == 2 * MODULES + 9
    waited = [error for _, error in said if "waiting for process" in error]
    assert len(waited) == 1
    assert f"process {first.pid}" in waited[0] or f"process {second.pid}" in waited[0]


@pytest.mark.parametrize("what", ["cut", "empty", "removed", "link", "script", "list"])
def test_a_damaged_environment_is_named_set_aside_and_made_anew(view: Path, what: str) -> None:
    place = build()
    file = next(place.glob("lib/python*/site-packages/one/module7.py"))
    if what == "script":
        file = place / "bin/one"
    elif what == "list":
        file = place / ".complete"
    text = file.read_text()
    if what in ("removed", "link"):
        file.unlink()
    if what == "link":
        file.symlink_to("module8.py")
    elif what in ("cut", "script", "list"):
        file.write_text(text[:-2])
    elif what == "empty":
        file.write_text("")
    assert Host().find(definition.read(TINY)) is None
    assert str(file) in str(Host().damage(definition.read(TINY)))
    told = Silent()
    assert build(told) == place
    assert file.read_text() == text
    assert str(file) in told.warnings[0]
    assert f"{place.name}.damaged" in told.warnings[0]
    assert place.with_name(f"{place.name}.damaged").is_dir()


def test_what_a_killed_build_left_is_listed_at_once(
    checkout: Path, view: Path
) -> None:
    (checkout / "containers/frameworks").mkdir()
    with locks.scratch(paths.cache("host"), "part-") as part:
        assert cache_usage.find() == []
        part.rename(part.with_name("part-0"))
    part.with_name("part-0").mkdir(exist_ok=True)
    locks.path_of(part.with_name("part-0")).touch()
    assert [(holding.name, holding.state) for holding in cache_usage.find()] == [
        ("part-0", "left over")
    ]


FAULTS = """
import resource
bytearray(2**26)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    bytearray(2**26)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize("library", [None, Path("/usr/lib/libtcmalloc_minimal.so.4")])
def test_without_tcmalloc_glibc_keeps_what_is_freed_for_the_next_step(
    view: Path, monkeypatch: pytest.MonkeyPatch, library: Path | None
) -> None:
    """Without tcmalloc, glibc is set to keep freed memory instead of returning it to the kernel.

    Memory that glibc has returned to the kernel costs page faults when it is used again.
    """
    monkeypatch.setattr(host, "tcmalloc", lambda: library)
    build()
    built = Host().find(definition.read(TINY))
    assert built is not None
    env = command(Host(), built, []).env
    assert env.get("LD_PRELOAD") == (str(library) if library else None)
    assert (env.keys() >= host.GLIBC_TUNABLES.keys()) is (library is None)
    own = command(Host(), built, [], env={"MALLOC_MMAP_MAX_": "9"}).env
    assert own["MALLOC_MMAP_MAX_"] == "9"


def test_memory_that_is_kept_comes_without_page_faults() -> None:
    def faults(env: dict[str, str]) -> int:
        words = [sys.executable, "-c", FAULTS]
        return int(subprocess.run(words, env=env, capture_output=True, check=True).stdout)

    assert faults(host.GLIBC_TUNABLES) * 10 < faults({})
