"""Real Apptainer: builds, offline rebuilds, refusals, isolation and interruptions."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from commandline import command
from refusals import refused
from trimaran import paths
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import BuildError
from trimaran.images import definition, render, wheelhouse
from trimaran.launch.specification import Mount
from trimaran.reporting import Silent

pytestmark = [pytest.mark.engine("apptainer"), pytest.mark.timeout(280)]


@pytest.fixture(scope="module")
def built(tiny: definition.Image, engine_cache: Path) -> Iterator[BuiltImage]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))
        yield Apptainer().build(tiny, base=None, offline=False, reporter=Silent())


@pytest.fixture(autouse=True)
def same_cache(own_place: Path, engine_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))


def apptainer(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Apptainer().executable, "--quiet", *words], capture_output=True, text=True, env=env,
        check=False, timeout=300,
    )


def run(
    built: BuiltImage, script: str, *, mounts: tuple[Mount, ...], env: dict[str, str],
    extra: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    exact = command(
        Apptainer(), built, ["-c", script], mounts, env, "/out" if mounts else "/"
    )
    return subprocess.run(
        exact.argv, env={**exact.env, **(extra or {})}, capture_output=True, text=True,
        check=False, timeout=300,
    )


def test_the_sif_needs_no_tool_of_ours(built: BuiltImage) -> None:
    assert apptainer("test", built.reference).returncode == 0
    assert "Python 3.11" in apptainer("run", built.reference, "--version").stdout
    assert "arguments go to Python" in apptainer("run-help", built.reference).stdout


def test_labels_say_what_the_base_really_is(built: BuiltImage) -> None:
    labels = apptainer("inspect", "--labels", built.reference).stdout
    assert "org.opencontainers.image.title: tiny" in labels
    assert "org.opencontainers.image.base.digest: sha256:" in labels
    assert str(Path.home()) not in labels


def test_a_built_image_is_found_and_not_built_again(
    built: BuiltImage, tiny: definition.Image
) -> None:
    engine = Apptainer()
    assert engine.find(tiny) == built
    assert engine.build(tiny, base=None, offline=True, reporter=Silent()) == built


def test_a_changed_sif_is_not_taken_for_the_built_one(
    built: BuiltImage, tiny: definition.Image
) -> None:
    sif = Path(built.reference)
    with sif.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
        file.flush()
        assert Apptainer().find(tiny) is None
        file.seek(-1, os.SEEK_END)
        file.write(last)
    assert Apptainer().find(tiny) == built


def test_the_same_lock_builds_again_offline(
    built: BuiltImage, tiny: definition.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # whoever tries the network fails
    packages = "dpkg-query -W; /opt/trimaran/bin/python -c 'import six; print(six.__version__)'"
    before = apptainer("exec", built.reference, "sh", "-c", packages).stdout
    aside = Path(built.reference).with_suffix(".aside")
    Path(built.reference).rename(aside)
    try:
        again = Apptainer().build(tiny, base=None, offline=True, reporter=Silent())
        assert again.inputs == built.inputs
        assert apptainer("exec", again.reference, "sh", "-c", packages).stdout == before
    finally:
        aside.rename(built.reference)
        # the record of the second build would no longer fit the first one's bytes
        record = Path(built.reference).with_name(
            f"tiny-{built.inputs[:12]}.apptainer.json"
        )
        text = record.read_text()
        record.write_text(text.replace(str(again.digest), str(built.digest)))


def test_pip_refuses_a_tampered_wheel_inside_the_build(
    tiny: definition.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheelhouse, "fetch", tampered(wheelhouse.fetch, tmp_path))
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    engine = Apptainer()
    monkeypatch.setattr(engine, "find", lambda image: None)
    monkeypatch.setattr("trimaran.engines.store.records", lambda *words: [])
    with pytest.raises(BuildError, match="DO NOT MATCH THE HASHES"):
        engine.build(tiny, base=None, offline=True, reporter=Silent())


def tampered(fetch, place):
    """Return a fetch function that adds one byte to the last wheel after the check on the host."""
    def tamper(*words, **options):
        items = fetch(*words, **options)
        bad = place / items[-1].filename
        bad.write_bytes(items[-1].kept.read_bytes() + b"x")

        class Tampered:
            folder, filename, kept = items[-1].folder, items[-1].filename, bad

        return [*items[:-1], Tampered()]

    return tamper


def test_nothing_of_the_host_is_seen_inside(built: BuiltImage, tmp_path: Path) -> None:
    home = tmp_path / "home"
    local = home / ".local/lib/python3.11/site-packages"
    local.mkdir(parents=True)
    (local / "leaked.py").write_text("")
    (tmp_path / "out").mkdir()
    script = (
        "import os, importlib.util as u;"
        "print(sorted(k for k in os.environ if 'HOST' in k), u.find_spec('leaked'),"
        f" os.path.exists({str(home)!r}), os.environ['TINY'])"
    )
    done = run(
        built, script, mounts=(Mount(str(tmp_path / "out"), "/out", writable=True),), env={},
        extra={"HOSTVAR": "1", "HOME": str(home), "PYTHONPATH": str(local)},
    )
    assert done.stdout.strip() == "[] None False from the image", done.stderr


def test_values_reach_the_container_unchanged(built: BuiltImage) -> None:
    value = "a,b=c 'single' \"double\"\nsecond line $HOME `id` \\ ü"
    done = run(
        built, "import os; print(ascii(os.environ['ODD']))", mounts=(), env={"ODD": value}
    )
    assert done.stdout.strip() == ascii(value), done.stderr


def test_only_out_can_be_written(built: BuiltImage, tmp_path: Path) -> None:
    odd = tmp_path / "da,ta with odd name"
    odd.mkdir()
    (odd / "file").write_text("content")
    (tmp_path / "out").mkdir()
    script = """
import os
def attempt(path):
    try:
        open(path, "w").close()
        return "written"
    except OSError as error:
        return type(error).__name__ + str(error.errno)
print(open("/data/file").read(), os.getcwd())
print(*(attempt(p) for p in ("/data/file", "/data/new", "/opt/new", "/out/new")))
"""
    mounts = (Mount(str(odd), "/data"), Mount(str(tmp_path / "out"), "/out", writable=True))
    done = run(built, script, mounts=mounts, env={})
    assert done.stdout.splitlines() == [
        "content /out", "OSError30 OSError30 OSError30 written"
    ], done.stderr
    assert (tmp_path / "out/new").exists()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing(
    tiny: definition.Image, engine_cache: Path, tmp_path: Path, signum: signal.Signals
) -> None:
    cache, scratch = tmp_path / "fresh", tmp_path / "scratch"
    scratch.mkdir()
    cache.mkdir()
    for name in ("bases", "wheelhouse", "apptainer"):
        (cache / name).symlink_to((engine_cache / name).resolve())
    code = (
        "import sys; from pathlib import Path; from trimaran.images import definition;"
        "from trimaran.engines.apptainer import Apptainer; from trimaran.reporting import Silent\n"
        "class Loud(Silent):\n"
        "    def detail(self, text): print(text, flush=True)\n"
        "Apptainer().build(definition.read(Path(sys.argv[1])), base=None, offline=True,"
        " reporter=Loud())"
    )
    env = {**os.environ, "TRIMARAN_CACHE": str(cache), "TMPDIR": str(scratch)}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tiny.folder / "image.yaml")], env=env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if "Running post scriptlet" in line:
                break
        time.sleep(1)
        child.send_signal(signum)
        _, errors = child.communicate(timeout=300)
    assert "Interrupted" in errors
    assert list((cache / "images").iterdir()) == []
    assert list(scratch.iterdir()) == []


def test_no_space_is_said_before_the_build(
    tiny: definition.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Apptainer()
    monkeypatch.setattr(engine, "find", lambda image: None)
    monkeypatch.setattr("trimaran.engines.store.records", lambda *words: [])
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with refused("disk-full", " 0 MB ", kind=BuildError):
        engine.build(tiny, base=None, offline=True, reporter=Silent())


def test_a_failed_build_names_the_file_with_its_whole_output(
    tiny: definition.Image, tmp_path: Path
) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(tiny.folder, folder)
    text = (folder / "image.yaml").read_text()
    text = text.replace('{version: "3.11"}', '{version: "3.11", remove: [missing/file]}')
    (folder / "image.yaml").write_text(text)
    broken = definition.read(folder / "image.yaml")
    render.write(broken)
    with refused("program-failed", "building tiny", "missing/file", kind=BuildError) as error:
        Apptainer().build(broken, base=None, offline=False, reporter=Silent())
    [log] = [path for path in paths.cache("logs").iterdir() if str(path) in str(error.value.hint)]
    whole = log.read_text()
    assert "missing/file" in whole
    assert len(whole.splitlines()) > len(error.value.message.splitlines())


def test_a_failing_self_test_keeps_the_image_out(
    built: BuiltImage, tiny: definition.Image, tmp_path: Path
) -> None:
    broken = replace(built, reference=str(tmp_path / "missing.sif"))
    with refused("program-failed", "self-test of tiny", kind=BuildError):
        Apptainer().test(tiny, broken, Silent())
