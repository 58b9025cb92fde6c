"""Tests of the wheelhouse: choice of wheels, verification, and reproducible wheels."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import hostile
from refusals import refused
from trimaran import paths
from trimaran.architectures import Architecture
from trimaran.errors import BuildError
from trimaran.images import definition, indexes, lock, wheel_choice, wheelhouse
from trimaran.reporting import Silent

TINY = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def offered(*names: str) -> list[indexes.File]:
    return [indexes.File(name, f"https://index/{name}", digest(name), None) for name in names]


def choose(
    files: list[indexes.File], locked: list[indexes.File] | None = None,
    architecture: Architecture = "amd64",
) -> str | None:
    """Return the file name of the wheel that is chosen, or None."""
    entry = lock.Locked("some-thing", "1.0", None, tuple(f.sha256 for f in locked or files))
    chosen = wheel_choice.best(entry, files, wheel_choice.supported_tags("3.11", architecture))
    return chosen[0].filename if chosen else None


def test_the_most_specific_wheel_for_the_image_is_chosen() -> None:
    files = offered(
        "some_thing-1.0.tar.gz",
        "some_thing-1.0-py3-none-any.whl",
        "some_thing-1.0-cp312-cp312-manylinux_2_17_x86_64.whl",
        "some_thing-1.0-cp311-cp311-manylinux2014_x86_64.whl",
        "some_thing-1.0-cp311-cp311-manylinux_2_39_x86_64.whl",
        "some_thing-1.0-cp311-cp311-macosx_11_0_arm64.whl",
        "some_thing-1.0-cp310-abi3-manylinux_2_28_x86_64.whl",
    )
    assert choose(files) == "some_thing-1.0-cp311-cp311-manylinux2014_x86_64.whl"
    files += offered("some_thing-1.0-cp311-cp311-manylinux_2_28_aarch64.whl")
    assert choose(files, architecture="arm64") == files[-1].filename


def test_a_wheel_whose_hash_is_not_locked_does_not_count() -> None:
    files = offered(
        "some_thing-1.0-py3-none-any.whl", "some_thing-1.0-cp311-cp311-linux_x86_64.whl"
    )
    assert choose(files, files[:1]) == "some_thing-1.0-py3-none-any.whl"
    assert choose(files, offered("another")) is None
    only = offered("some_thing-1.0-cp311-cp311-linux_x86_64.whl")
    assert choose(only, architecture="arm64") is None


def test_a_locked_package_without_a_wheel_is_refused_with_its_lock_and_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", tmp_path.as_uri())
    shutil.copytree(TINY.folder, tmp_path / "tiny")
    image = definition.on(definition.read(tmp_path / "tiny/image.yaml"), "arm64")
    lock_file = image.folder / "requirements.lock"
    lock_file.write_text(f"only-x86==1.0 --hash=sha256:{digest('x')}\n")
    with refused("wheel-missing", lock_file, "only-x86==1.0", "arm64", kind=BuildError) as caught:
        wheelhouse.locked(image, definition.interpreter(image), False, Silent())
    assert "`trimaran lock tiny`" in str(caught.value.hint)
    assert "overrides.txt" in str(caught.value.hint)


def place_everything(cache_content: bytes = b"content") -> list[wheelhouse.Item]:
    """Write a wheel file into the cache; return a list with its lock entry.

    The SHA-256 in the entry is that of b"content", so another `cache_content` is a damaged file.
    """
    sha = hashlib.sha256(b"content").hexdigest()
    item = wheelhouse.Item("wheels", "six-1.17.0-py2.py3-none-any.whl", sha, None, ())
    item.kept.parent.mkdir(parents=True)
    item.kept.write_bytes(cache_content)
    return [item]


def test_a_tampered_wheel_is_refused_before_any_build(monkeypatch: pytest.MonkeyPatch) -> None:
    items = place_everything(b"tampered")
    monkeypatch.setattr(wheelhouse, "_debs", lambda image: [])
    monkeypatch.setattr(wheelhouse, "locked", lambda *about: items)
    reporter = Silent()
    with pytest.raises(BuildError) as caught:
        wheelhouse.fetch(TINY, offline=True, reporter=reporter)
    said = "\n".join([str(caught.value), *reporter.warnings])
    assert "six-1.17.0" in said
    assert items[0].sha256 in said
    assert hashlib.sha256(b"tampered").hexdigest() in said
    assert not items[0].kept.exists()
    assert [p.read_bytes() for p in items[0].kept.parent.iterdir()] == [b"tampered"]


def test_offline_without_a_first_fetch_says_what_to_do() -> None:
    with refused("download-offline", "tiny", kind=BuildError) as caught:
        wheelhouse.fetch(TINY, offline=True, reporter=Silent())
    assert "trimaran fetch tiny" in str(caught.value.hint)


def test_a_view_has_what_the_build_reads_and_goes_away() -> None:
    items = place_everything()
    with wheelhouse.view(TINY, items) as folder:
        found = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
        assert found == ["requirements.lock", f"wheels/{items[0].filename}"]
        assert (folder / found[1]).stat().st_ino == items[0].kept.stat().st_ino
    assert not folder.exists()


def test_the_lock_of_an_app_image_lies_beside_that_of_the_image_below(tmp_path: Path) -> None:
    """Both images can be built from one folder with both locks (`trimaran fetch --to`)."""
    image = definition.load("futuregan-torch-cpu")
    accepted = {h for one in lock.read(image.folder / "requirements.lock") for h in one.hashes}
    assert wheelhouse.locked_hashes(image) == accepted
    for layer in (TINY, image):
        wheelhouse.lay_out(layer, [], tmp_path)
    below, own = tmp_path / "requirements.lock", tmp_path / "apps/requirements.lock"
    assert below.read_bytes() == (TINY.folder / "requirements.lock").read_bytes()
    assert own.read_bytes() == (image.folder / "requirements.lock").read_bytes()


@pytest.mark.parametrize("package", ["shards", "trainkit", "resnet-imagenet"])
def test_equal_sources_give_equal_wheels(package: str, tmp_path: Path) -> None:
    first, second = (
        wheelhouse.build_wheel(package, tmp_path / name).read_bytes() for name in "ab"
    )
    assert first == second
    again = wheelhouse.build_wheel(package, tmp_path / "a")  # as for the fetch of another image
    assert again.read_bytes() == first
    assert [again] == [path for path in (tmp_path / "a").iterdir() if path.is_file()]


@pytest.mark.parametrize("name", [
    name for name in definition.names() if definition.load(name).app is not None
])
def test_an_image_has_what_its_packages_import_of_the_others(name: str) -> None:
    """Each image installs the packages in an order in which required ones come first.

    The packages are installed without dependencies, in the order of the definition.
    """
    app = definition.load(name).app
    assert app is not None
    for at, package in enumerate(app.packages):
        text = (definition.package_folder(package) / "pyproject.toml").read_text()
        (line,) = re.findall(r"^dependencies = \[(.*)\]", text, re.MULTILINE)
        needed = set(re.findall(r'"(shards|trainkit)\b', line))
        assert needed <= set(app.packages[:at])


def test_indexes_are_read_in_both_forms_and_a_silent_one_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "six").mkdir()
    (tmp_path / "six/index.html").write_text(
        f'<a href="../files/six-1-py3-none-any.whl#sha256={digest("s")}">six</a>'
        '<a href="nohash.whl">x</a>'
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", tmp_path.as_uri())
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path} https://elsewhere.example/")
    monkeypatch.setenv("NO_PROXY", "*")
    sources = indexes.configured()
    files = list(sources.files("six"))
    assert [(f.filename, f.sha256) for f in files] == [("six-1-py3-none-any.whl", digest("s"))]
    assert files[0].url == (tmp_path / "files/six-1-py3-none-any.whl").as_uri()
    assert list(sources.silent) == ["http://127.0.0.1:9/simple"]
    assert sources.find_links == (tmp_path,)
    page = {"files": [{"filename": "a.whl", "url": "../a.whl", "hashes": {"sha256": "x"}}]}
    assert indexes._parse_json(json.dumps(page), "https://host/simple/a/") == [
        indexes.File("a.whl", "https://host/simple/a.whl", "x", None)
    ]


def test_the_wheelhouse_is_in_the_cache() -> None:
    item = wheelhouse.Item("wheels", "a.whl", "ab", None, ())
    assert item.kept == paths.cache("wheelhouse", "files", "ab", "a.whl")


@pytest.mark.parametrize("text", [
    *hostile.JSON, '{"files": 5}', '{"files": [5]}', '{"files": [{"filename": "a.whl"}]}',
    '{"files": [{"filename": 5, "url": {}, "hashes": []}]}',
])
def test_a_page_that_is_none_is_a_reason_to_go_to_the_next_index(text: str) -> None:
    with suppress(ValueError):
        assert indexes._parse_json(text, "https://host/simple/a/") == []


@pytest.mark.parametrize("text", ["<![x", "<a href='http://['>", "<!-- ", "\0", "<a href>"])
def test_markup_that_is_none_is_a_reason_as_well(text: str) -> None:
    with suppress(ValueError):
        assert indexes._parse_html(text, "https://host/simple/a/") == []


@pytest.mark.parametrize("name", ["../a.whl", "a/b.whl", "..", "a\x1b.whl", ""])
def test_a_file_that_an_index_calls_by_a_path_is_left_out(name: str) -> None:
    page = {"files": [{"filename": name, "url": "a.whl", "hashes": {"sha256": "x"}}]}
    assert indexes._parse_json(json.dumps(page), "https://host/simple/a/") == []
    quoted = name.replace("/", "%2F")
    assert indexes._parse_html(f'<a href="{quoted}#sha256=x">', "https://host/simple/a/") == []
