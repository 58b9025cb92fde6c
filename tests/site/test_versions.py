"""Publishing with versions, as the workflow does it, into the branch of a repository for it."""

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


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the branch holds after the main branch and then a release were published.

    It is a site of two pages with the settings of the whole one, which would take a minute.
    """
    repository = tmp_path_factory.mktemp("fork")
    source(repository / "build/site-source")
    (repository / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/publish_site.sh", repository / "scripts")
    git = ["git", "-C", str(repository), "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], check=True)
    for key, value in (("user.name", "a"), ("user.email", "a@b.example")):
        subprocess.run([*git, "config", key, value], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1",
                   "SITE_URL": "https://owner.example/trimaran/",
                   "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for words in (["main"], ["0.1.0", "latest"]):
        done = subprocess.run(["sh", "scripts/publish_site.sh", *words], cwd=repository,
                              env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path_factory.mktemp("pages")
    archive = subprocess.run([*git, "archive", "gh-pages"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", str(out)], input=archive, check=True)
    return out


def source(folder: Path) -> None:
    """Write the source of the small site, with the settings that the workflow gives the whole."""
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


def test_versions_are_side_by_side_and_the_release_is_what_readers_get(published: Path) -> None:
    versions = {one["version"]: one["aliases"]
                for one in json.loads((published / "versions.json").read_text())}
    assert versions == {"main": [], "0.1.0": ["latest"]}
    assert "latest/" in (published / "index.html").read_text()
    for version in ("main", "0.1.0", "latest"):
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
