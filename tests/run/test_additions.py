from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from refusals import refused
from samples import GOOD
from trimaran import site_file
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.host import Host
from trimaran.engines.podman import Podman
from trimaran.images import definition
from trimaran.launch.specification import Mount
from trimaran.recipes import library
from trimaran.run import additions, pipeline
from trimaran.run.additions import Extension
from trimaran.run.request import Request

TINY = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")


def ask(
    engine: Any = None, overlay: Path | None = None, venv: Path | None = None
) -> Extension:
    return additions.extension(TINY, engine or Apptainer, overlay=overlay, venv=venv)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    packages = tmp_path / "venv/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    (packages / "extra.py").write_text("x = 1\n")
    return tmp_path / "venv"


def test_nothing_asked_changes_nothing() -> None:
    extension = ask()
    assert extension == Extension()
    assert extension.modifications() == []
    assert extension.mounts() == []
    assert extension.environment({"PYTHONPATH": "/a"}) == {"PYTHONPATH": "/a"}


def test_packages_of_a_venv_come_before_those_of_the_image(venv: Path) -> None:
    extension = ask(venv=venv)
    packages = venv / "lib/python3.11/site-packages"
    assert extension.mounts() == [Mount(str(packages), "/venv")]
    assert extension.environment({"A": "b"}) == {"A": "b", "PYTHONPATH": "/venv"}
    assert extension.environment({"PYTHONPATH": "/own"}) == {"PYTHONPATH": "/venv:/own"}
    (added,) = extension.modifications()
    assert (added.kind, added.path) == ("venv", str(packages))


def test_relative_paths_are_made_absolute(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(venv.parent)
    assert ask(venv=Path("venv")) == ask(venv=venv)


def test_the_hash_of_a_folder_is_of_all_that_is_in_it(venv: Path) -> None:
    folder = venv / "lib/python3.11/site-packages"
    first = additions.tree_sha256(folder)
    assert additions.tree_sha256(folder) == first
    seen = {first}
    (folder / "extra.py").write_text("x = 2\n")
    seen.add(additions.tree_sha256(folder))
    (folder / "extra.py").chmod(0o755)
    seen.add(additions.tree_sha256(folder))
    (folder / "extra.py").rename(folder / "other.py")
    seen.add(additions.tree_sha256(folder))
    (folder / "link").symlink_to("other.py")
    seen.add(additions.tree_sha256(folder))
    (folder / "empty").mkdir()
    seen.add(additions.tree_sha256(folder))
    assert len(seen) == 6


def test_of_an_overlay_folder_the_upper_layer_counts(tmp_path: Path) -> None:
    for name in ("upper", "work"):
        (tmp_path / "overlay" / name).mkdir(parents=True)
    before = ask(overlay=tmp_path / "overlay").modifications()
    (tmp_path / "overlay/work/scratch").write_text("of the kernel")
    assert ask(overlay=tmp_path / "overlay").modifications() == before
    (tmp_path / "overlay/upper/file").write_text("new")
    assert ask(overlay=tmp_path / "overlay").modifications() != before


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_said(venv: Path) -> None:
    (venv / "lib/python3.11/site-packages/extra.py").chmod(0)
    with refused("file-unreadable", "extra.py"):
        ask(venv=venv).modifications()


def test_wrong_folders_and_engines_are_refused(tmp_path: Path, venv: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "a:b/upper").mkdir(parents=True)
    other = tmp_path / "other/lib/python3.9/site-packages"
    other.mkdir(parents=True)
    for options, code, named in (
        ({"overlay": tmp_path / "none"}, "file-missing", tmp_path / "none"),
        ({"overlay": tmp_path / "plain"}, "argument-invalid", "'upper'"),
        ({"overlay": tmp_path / "a:b"}, "argument-invalid", "':'"),
        ({"overlay": tmp_path, "engine": Podman}, "engine-unsuitable", "apptainer, "),
        ({"overlay": tmp_path, "engine": Host}, "engine-unsuitable", "apptainer, "),
        ({"venv": venv, "engine": Host}, "engine-unsuitable", "--venv"),
        ({"venv": tmp_path / "plain"}, "argument-invalid", tmp_path / "plain"),
        ({"venv": tmp_path / "other"}, "argument-invalid", "python3.9"),
    ):
        with refused(code, named):
            ask(**options)
    assert ask(venv=venv, engine=Podman).packages is not None


def request_with(checkout: Path, engine: Any, **more: Any) -> Request:
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir()
    image = {**GOOD["image"], "signed_by": more.pop("signed_by", [])}
    path.write_text(yaml.safe_dump({**GOOD, "image": image}))
    recipe = library.load("resnet-imagenet/cpu-smoke")
    return Request(recipe=recipe, engine=engine, changes={}, **more)


def test_an_engine_without_signatures_is_refused_where_one_is_asked(checkout: Path) -> None:
    request = request_with(checkout, Podman, signed_by=["AB" * 20])
    with refused("engine-unsuitable", "podman"):
        pipeline.plan(request)


def test_a_missing_folder_of_the_site_is_said_before_anything_is_made(checkout: Path) -> None:
    site = site_file.Site(binds={Path("/no/such/folder"): "/mnt/x"})
    with refused("file-missing", "/no/such/folder"):
        pipeline.plan(request_with(checkout, Apptainer, site=site))
