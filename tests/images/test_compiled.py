"""Test what a build stage keeps for the next build, with a stand-in for the compiler."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from trimaran import paths
from trimaran.images import compiled, content_hash, definition

COMPILER = """#!/bin/sh
# A stand-in for a compiler: `-c SOURCE -o OBJECT`, which counts its calls.
echo called >> calls
for word; do case $previous in -o) object=$word ;; -c) source=$word ;; -MF) needs=$word ;; esac
previous=$word; done
[ ! -e fails ] || exit 3
printf half > "$object"
[ ! -e hangs ] || { touch started; sleep 60; }
cat "$source" > "$object"
[ -z "$needs" ] || echo "$object: $source" > "$needs"
"""


class Stage:
    """A folder with a source, a stand-in compiler, and the folder of kept objects."""

    def __init__(self, folder: Path) -> None:
        self.work, self.kept = folder / "source", folder / "kept"
        self.work.mkdir()
        self.kept.mkdir()
        (self.work / "cc").write_text(COMPILER)
        (self.work / "cc").chmod(0o755)
        (self.work / "a.cc").write_text("source of a")

    @property
    def words(self) -> list[str]:
        """The words of a command that runs the stand-in compiler by the launcher, `kept.sh`."""
        script = paths.repository() / "containers/build/kept.sh"
        return ["sh", str(script), "./cc", "-c", "a.cc", "-o", "a.o", "-MF", "a.d"]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a compiler call through `kept.sh`; it names the folder of objects."""
        return {**os.environ, "KEPT": str(self.kept)}

    def compile(self, *more: str) -> int:
        """Compile `a.cc` as in a new container, which has no object files; return the exit status.

        `more` are additional arguments of the compiler.
        """
        for name in ("a.o", "a.d"):
            (self.work / name).unlink(missing_ok=True)
        return subprocess.run([*self.words, *more], cwd=self.work, env=self.environment,
                              check=False).returncode

    @property
    def calls(self) -> int:
        """The number of calls of the compiler."""
        return len((self.work / "calls").read_text().splitlines())

    @property
    def objects(self) -> list[Path]:
        """The tar archives in the folder of kept objects, each with one object file."""
        return list(self.kept.glob("*.tar"))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_an_object_is_compiled_once(stage: Stage) -> None:
    assert stage.compile() == stage.compile() == 0
    assert stage.calls == 1
    assert (stage.work / "a.o").read_text() == "source of a"
    assert (stage.work / "a.d").read_text() == "a.o: a.cc\n"
    assert (stage.work / "a.o").stat().st_mtime >= (stage.work / "a.cc").stat().st_mtime


def test_another_command_or_folder_is_another_object(stage: Stage) -> None:
    stage.compile()
    stage.compile("-O2")
    stage.work = stage.work.rename(stage.work.with_name("elsewhere"))
    stage.compile()
    assert (stage.calls, len(stage.objects)) == (3, 3)


@pytest.mark.parametrize("harm", [b"", b"half", None])
def test_a_damaged_object_is_compiled_again(stage: Stage, harm: bytes | None) -> None:
    stage.compile()
    kept = stage.objects[0]
    content = kept.read_bytes()
    kept.write_bytes(content[:-1] + b"x" if harm is None else harm)
    assert stage.compile() == 0
    assert stage.calls == 2
    assert (stage.work / "a.o").read_text() == "source of a"
    assert stage.objects[0].read_bytes()[:100] == content[:100]


def test_the_product_of_a_killed_compiler_is_never_used(stage: Stage) -> None:
    (stage.work / "hangs").touch()
    with subprocess.Popen(stage.words, cwd=stage.work, env=stage.environment,
                          start_new_session=True) as child:
        while not (stage.work / "started").exists():
            time.sleep(0.01)
        os.killpg(child.pid, signal.SIGKILL)
    assert (stage.work / "a.o").read_text() == "half"
    assert stage.objects == []
    (stage.work / "hangs").unlink()
    assert stage.compile() == 0
    assert (stage.work / "a.o").read_text() == "source of a"


def test_a_failed_command_keeps_nothing_and_its_status(stage: Stage) -> None:
    (stage.work / "fails").touch()
    assert stage.compile() == 3
    assert stage.objects == []


def test_without_the_folder_the_compiler_runs(stage: Stage) -> None:
    stage.kept.rmdir()
    assert stage.compile() == 0
    assert (stage.work / "a.o").read_text() == "source of a"


@pytest.mark.parametrize("name", ["CMakeFiles/CMakeScratch/TryCompile-x/a.o", "cmTC_12.o"])
def test_trials_of_cmake_are_not_kept(stage: Stage, name: str) -> None:
    (stage.work / name).parent.mkdir(parents=True, exist_ok=True)
    words = [*stage.words[:3], "-c", "a.cc", "-o", name]
    subprocess.run(words, cwd=stage.work, env=stage.environment, check=True)
    assert stage.objects == []


TORCH = definition.load("torch-cpu")


def test_everything_that_enters_the_stage_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled.key(TORCH)
    assert first == compiled.key(TORCH)
    build = TORCH.build
    assert build is not None
    others = [
        build.model_copy(update={"environment": {**build.environment, "MORE": "1"}}),
        build.model_copy(update={"sources": build.sources[:-1]}),
        build.model_copy(update={"files": (*build.files, "nccl.sh")}),
    ]
    keys = {compiled.key(TORCH.model_copy(update={"build": other})) for other in others}
    assert len({first, *keys}) == 4
    whole, real = content_hash.content_of(TORCH), content_hash.sha256
    for name in (*definition.locks(TORCH), *build.files):
        monkeypatch.setattr(
            content_hash, "sha256", lambda path, name=name: real(path) + name * (path.name == name)
        )
        assert compiled.key(TORCH) != first
        assert content_hash.content_of(TORCH) != whole, "the image has the same inputs"


def test_what_enters_only_the_image_is_not_in_the_key() -> None:
    changed = {**TORCH.environment, "LANG": "C"}
    other = TORCH.model_copy(update={"help": "another", "environment": changed})
    assert compiled.key(other) == compiled.key(TORCH)


def test_each_base_image_has_its_own_objects() -> None:
    one, other = (compiled.folder(TORCH, f"sha256:{digit * 64}") for digit in "12")
    assert one != other
    assert compiled.is_current(one, [TORCH])
    assert not compiled.is_current(one, [definition.load("torch-cuda12")])
    assert not compiled.is_current(one.with_name(f"torch-cpu-{'0' * 12}-{'1' * 12}"), [TORCH])


def test_what_a_killed_build_left_is_removed_and_objects_stay(tmp_path: Path) -> None:
    place = tmp_path / "objects"
    place.mkdir()
    for name in ("report.json", "part-1", "object.tar"):
        (place / name).touch()
    compiled.prepare(place)
    assert [path.name for path in place.iterdir()] == ["object.tar"]


@pytest.mark.parametrize("text", [
    "", "[]", '{"stage": "other", "faults": ["x"]}', '{"stage": "base", "faults": []}', "\xff",
])
def test_a_report_that_is_none_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    assert compiled.report(tmp_path) is None
