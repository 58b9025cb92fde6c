"""Test `extend`: refused arguments, a failure of pip, and the record of the packages."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from refusals import refused
from trimaran.engines import BuiltImage, Command, Setting, extend
from trimaran.errors import BuildError
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.reporting import Silent

TINY = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")
BUILT = BuiltImage("tiny", "apptainer", "tiny.sif", "sha256:" + "a" * 64, "b" * 64, 1)


@dataclass
class Engine:
    """A fake engine, whose containers run a script in place of Python.

    The call `-m venv FOLDER` only creates FOLDER with a folder for packages; all other calls run
    `script`.
    """

    script: str = ""
    built: BuiltImage | None = BUILT
    container: bool = True
    name: str = "apptainer"
    calls: list[tuple[tuple[str, ...], dict[str, str], bool]] = field(default_factory=list)

    def find(self, image: Image) -> BuiltImage | None:
        return self.built

    def damage(self, image: Image) -> str | None:
        return None

    def python(self, built: BuiltImage, words: Sequence[str], setting: Setting) -> Command:
        self.calls.append((tuple(words), dict(setting.env), setting.network))
        script = self.script
        if words[0] == "-m":
            script = f"import os; os.makedirs({words[-1]!r} + '/lib/python3.11/site-packages')"
        return Command((sys.executable, "-c", script, *words), {})


def call(engine: Any, out: Path, *asked: str, **options: Any) -> extend.Record:
    given: dict[str, Any] = {"find_links": [], "offline": False, **options}
    return extend.extend(engine, TINY, asked, out, reporter=Silent(), **given)


@pytest.mark.parametrize(("engine", "asked", "code", "named"), [
    (Engine(container=False, name="host"), "einops", "engine-unsuitable", "host"),
    (Engine(built=None), "einops", "image-missing", "tiny"),
    (Engine(), "--index-url=x", "argument-invalid", "--index-url=x"),
    (Engine(), "./x.whl", "argument-invalid", "./x.whl"),
])
def test_what_cannot_be_is_refused_before_anything_is_made(
    tmp_path: Path, engine: Engine, asked: str, code: str, named: str
) -> None:
    with refused(code, named):
        call(engine, tmp_path / "venv", asked)
    assert not (tmp_path / "venv").exists()
    assert engine.calls == []


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with refused("file-exists", tmp_path / "file"):
        call(Engine(), tmp_path / "file", "einops")
    assert (tmp_path / "file").read_text() == "mine"


def test_pips_reason_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    script = "print('Looking'); print('ERROR: No matching distribution'); raise SystemExit(1)"
    engine = Engine(script)
    with refused("install-failed", "einops") as caught:
        call(engine, tmp_path / "venv", "einops", offline=True)
    assert str(caught.value).splitlines()[1:] == ["ERROR: No matching distribution"]
    assert "--find-links" in str(caught.value.hint)
    assert not (tmp_path / "venv").exists()


def test_what_came_in_is_recorded_with_its_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    wheel = tmp_path / "wheels/b-2-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"wheel")
    install = [
        {"metadata": {"name": "a", "version": "1"}, "download_info": {
            "url": "https://user:word@example.org/a.whl",
            "archive_info": {"hash": "sha256=" + "1" * 64}}},
        {"metadata": {"name": "b", "version": "2"}, "download_info": {
            "url": wheel.as_uri(), "archive_info": {}}},
    ]
    engine = Engine(
        "import sys, pathlib; words = sys.argv[1:]; place = words[words.index('--report') + 1];"
        f"pathlib.Path(place).write_text({json.dumps({'install': install})!r})"
    )
    out = tmp_path / "venv"
    found = call(engine, out, "a", "b>=2", find_links=[wheel.parent])
    own = hashlib.sha256(b"wheel").hexdigest()
    assert [(one.name, one.sha256) for one in found.packages] == [("a", "1" * 64), ("b", own)]
    assert (out / "requirements.lock").read_text() == (
        f"a==1 --hash=sha256:{'1' * 64}\nb==2 --hash=sha256:{own}\n"
    )
    record = (out / "trimaran.json").read_text()
    assert json.loads(record)["digest"] == BUILT.digest
    assert "word" not in record
    assert sorted(path.name for path in out.iterdir()) == [
        "lib", "requirements.lock", "trimaran.json"
    ]
    (_, env, network) = engine.calls[-1]
    assert network
    assert env["PIP_INDEX_URL"].startswith("https://")
    assert str(wheel.parent) in env["PIP_FIND_LINKS"]


def test_offline_no_index_is_asked(tmp_path: Path) -> None:
    engine = Engine("raise SystemExit(1)")
    with pytest.raises(BuildError):
        call(engine, tmp_path / "venv", "a", offline=True)
    words, env, network = engine.calls[-1]
    assert "--no-index" in words
    assert not network
    assert not any(name.startswith("PIP_INDEX") for name in env)
