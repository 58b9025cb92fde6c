"""Published weights: downloaded, verified by hash, cached, and passed to a run that needs them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml

from refusals import refused
from trimaran.data import weights
from trimaran.reporting import Silent

CONTENT = b"numbers of a network"


def described(checkout: Path, source: Path, **changes: object) -> None:
    """Write a definition of published weights; their only file is w.pth in the folder `source`."""
    digest = hashlib.sha256(CONTENT).hexdigest()
    content = {
        "schema": 1, "name": "small", "title": "small weights",
        "licence": {"id": "MIT", "url": "https://example.org/", "holder": "nobody"},
        "citation": "none", "homepage": "https://example.org/",
        "files": {"w.pth": {"sha256": digest, "size": len(CONTENT)}},
        "sources": [{"kind": "url", "base": f"file://{source}/", "files": {
            "w.pth": {"path": "w.pth", "sha256": digest, "size": len(CONTENT)}}}],
        **changes,
    }
    folder = checkout / "recipes/data/weights"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small.yaml").write_text(yaml.safe_dump(content))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "w.pth").write_bytes(CONTENT)
    return folder


def test_they_are_fetched_once_and_verified(checkout: Path, source: Path) -> None:
    described(checkout, source)
    found = weights.get(weights.load("small"), offline=False, reporter=Silent())
    assert found == weights.place(weights.load("small"))
    assert found.read_bytes() == CONTENT
    (source / "w.pth").unlink()
    assert weights.get(weights.load("small"), offline=True, reporter=Silent()) == found


def test_a_damaged_file_is_set_aside_and_fetched_anew(checkout: Path, source: Path) -> None:
    described(checkout, source)
    path = weights.place(weights.load("small"))
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:-1] + b"x")
    weights.get(weights.load("small"), offline=False, reporter=Silent())
    assert path.read_bytes() == CONTENT


def test_another_content_is_refused(checkout: Path, source: Path) -> None:
    described(checkout, source)
    (source / "w.pth").write_bytes(CONTENT[::-1])
    with refused("download-failed", "small"):
        weights.get(weights.load("small"), offline=False, reporter=Silent())
    assert not weights.place(weights.load("small")).exists()


def test_offline_says_how_to_get_them(checkout: Path, source: Path) -> None:
    described(checkout, source)
    (source / "w.pth").unlink()
    with refused("download-offline", "w.pth") as caught:
        weights.get(weights.load("small"), offline=True, reporter=Silent())
    assert "trimaran run RECIPE" in str(caught.value.hint)


def test_a_misspelt_name_is_refused_with_the_nearest(checkout: Path, source: Path) -> None:
    described(checkout, source)
    with refused("name-unknown", "smal") as caught:
        weights.load("smal")
    assert "small" in str(caught.value.hint)


def test_a_source_without_the_file_is_refused(checkout: Path, source: Path) -> None:
    described(checkout, source, files={"v.pth": {"sha256": "0" * 64, "size": 1}})
    with refused("file-invalid", "small.yaml", "v.pth"):
        weights.load("small")


def test_those_of_the_repository_are_described() -> None:
    folder = Path(__file__).parents[2] / "recipes/data/weights"
    names = [path.stem for path in folder.glob("*.yaml")]
    assert names
    for name in names:
        assert weights.load(name).sources
