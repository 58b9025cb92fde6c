"""`scripts/apptainer.py`: its checks, and its preparations and cleanup around the download."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from trimaran import paths
from trimaran.errors import BuildError


@pytest.fixture
def script() -> ModuleType:
    path = paths.repository() / "scripts/apptainer.py"
    spec = importlib.util.spec_from_file_location("apptainer_script", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_host_without_apt_is_told_so(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script.shutil, "which", lambda name, path=None: None)
    assert script.main([]) == 3
    assert "this host has no apt" in capsys.readouterr().out


def test_a_failed_download_leaves_nothing(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(work: Path) -> list[Path]:
        script.private_apt(work)
        raise BuildError("no network")

    monkeypatch.setattr(script, "download", fail)
    with pytest.raises(BuildError):
        script.assemble(tmp_path / "apptainer")
    assert list((tmp_path / "apptainer").iterdir()) == []


def test_a_prefix_of_this_recipe_is_used_without_a_network(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(script, "download", lambda work: pytest.fail("went to the network"))
    prefix = tmp_path / "0123"
    prefix.mkdir()
    (tmp_path / "current").symlink_to("0123")
    about = {"recipe": script.RECIPE, "packages": ["apptainer_1_amd64"]}
    (prefix / "prefix.json").write_text(json.dumps(about))
    assert script.assemble(tmp_path) == tmp_path / "current"
    (prefix / "prefix.json").write_text(json.dumps({**about, "recipe": script.RECIPE - 1}))
    with pytest.raises(BaseException, match="went to the network"):
        script.assemble(tmp_path)


def test_apt_verifies_signatures_and_shares_nothing_with_the_host(
    script: ModuleType, tmp_path: Path
) -> None:
    config = script.private_apt(tmp_path).read_text()
    assert "AllowUnauthenticated" not in config
    assert "trusted=yes" not in (tmp_path / "etc/sources.list").read_text()
    assert f"signed-by={script.KEYRING}" in (tmp_path / "etc/sources.list").read_text()
    for line in config.splitlines():
        if line.startswith("Dir "):
            assert line == f'Dir "{tmp_path}/";'


def test_what_apptainer_asks_for_at_each_start_is_there_and_uses_the_prefix(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    patched = []
    monkeypatch.setattr(script.shutil, "which", lambda name, path=None: name)
    monkeypatch.setattr(script.process, "run", lambda words, check: patched.append(words[-1]))
    monkeypatch.setattr(Path, "exists", lambda path: True)
    script.point_programs_at(tmp_path, tmp_path / "final")
    for name in ("fuse2fs", "gocryptfs"):
        assert name in script.WANTED
        assert str(tmp_path / "usr/bin" / name) in patched
