"""Publish versions of the site, as the workflow does, to a branch of a temporary remote."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from generator import tree
from trimaran import paths

ROOT = paths.repository()

NO_FILES = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Git's hash of an empty tree."""

# What is pushed in turn: after two releases a correction of the first, and a candidate.
PUSHED = (["main"], ["0.9.0", "latest"], ["0.10.0", "latest"], ["0.9.1", "latest"],
          ["0.11.0rc1", "latest"])


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the content of the remote's branch after all versions in PUSHED were published.

    The site has only two pages, because a build of the whole site would take a minute. Its settings
    are those of the whole site.
    """
    work = tmp_path_factory.mktemp("fork")
    source(work / "source")
    git("init", "-q", "--bare", "-b", "main", str(work / "remote"))
    first = git("-C", str(work / "remote"), "commit-tree", "-m", "first", NO_FILES).decode().strip()
    git("-C", str(work / "remote"), "update-ref", "refs/heads/main", first)
    for words in PUSHED:
        publish(work, words)
    out = tmp_path_factory.mktemp("pages")
    archive = git("-C", str(work / "remote"), "archive", "gh-pages")
    subprocess.run(["tar", "x", "-C", str(out)], input=archive, check=True)
    return out


def git(*words: str) -> bytes:
    """Run git with a made-up author, and return its output."""
    somebody = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    return subprocess.run(["git", *somebody, *words], check=True, capture_output=True).stdout


def publish(work: Path, words: list[str]) -> None:
    """Publish one version as the workflow does, from a new clone of the remote."""
    checkout = work / f"checkout-{words[0]}"
    git("clone", "-q", "-c", "user.name=a", "-c", "user.email=a@b.example", str(work / "remote"),
        str(checkout))
    shutil.copytree(work / "source", checkout / "build/site-source")
    (checkout / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/publish_site.sh", checkout / "scripts")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1",
                   "SITE_URL": "https://owner.example/trimaran/",
                   "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "scripts/publish_site.sh", *words], cwd=checkout,
                          env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    git("-C", str(checkout), "push", "-q", "origin", "gh-pages")


def source(folder: Path) -> None:
    """Write the source of a site of two pages, with the configuration of the whole site.

    As in the CI workflow that publishes the site, it includes the menu of versions.
    """
    shutil.copytree(ROOT / "site/docs/assets", folder / "docs/assets")
    shutil.copytree(ROOT / "site/overrides", folder / "overrides")
    for place in ("index.md", "recipes/index.md"):
        (folder / "docs" / place).parent.mkdir(exist_ok=True)
        (folder / "docs" / place).write_text(f"# {place}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIMARAN_SITE_VERSIONS", "1")
        text = tree.settings([])
    assert "nav:" in text
    (folder / "mkdocs.yml").write_text(text.partition("\nnav:")[0] + "\n")


def test_versions_are_side_by_side_and_the_newest_release_is_what_readers_get(
    published: Path,
) -> None:
    versions = {one["version"]: one["aliases"]
                for one in json.loads((published / "versions.json").read_text())}
    assert versions == {
        words[0]: ["latest"] if words[0] == "0.10.0" else [] for words in PUSHED}
    assert "latest/" in (published / "index.html").read_text()
    for version in (*versions, "latest"):
        assert (published / version / "recipes/index.html").is_file()


def test_a_reader_changes_the_version(published: Path, browser: Browser) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(published))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_url("**/latest/")
        page.locator(".md-version").hover()
        page.locator(".md-version__link", has_text="main").click()
        page.wait_for_url("**/main/**")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.close()
        server.shutdown()
