"""Fixtures that build and serve the site, and open its pages in Debian's Chromium.

With TRIMARAN_REQUIRE_ENGINES=1, as in CI, a missing browser is a failure; otherwise its tests are
skipped.
"""

from __future__ import annotations

import fcntl
import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from served import DESK, PHONE, Open
from trimaran import paths

ROOT = paths.repository()
PATIENCE = 120_000
"""Milliseconds for a page or an element to appear: some machines are slow."""

expect.set_options(timeout=PATIENCE)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once for all workers, as `make site` does, and return its folder."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site.built").exists():
            done = subprocess.run(
                [sys.executable, "scripts/build_site.py", "build"], cwd=ROOT,
                capture_output=True, text=True, check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            (shared / "site.built").touch()
    return ROOT / "build/site"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Print no log lines; the output of a test is for its failures."""


@pytest.fixture(scope="session")
def address(built: Path) -> Iterator[str]:
    """Serve the site on this machine, and return its address."""
    handler = functools.partial(_Quiet, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Debian's Chromium."""
    program = shutil.which("chromium")
    if program is None:
        reason = "Chromium is not installed (apt-get install chromium)"
        if os.environ.get("TRIMARAN_REQUIRE_ENGINES") == "1":
            pytest.fail(f"TRIMARAN_REQUIRE_ENGINES=1, and {reason}")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Open]:
    """Return a function that opens a page of the site; after the test, check all opened pages.

    The check fails for a message on the console, an exception, an error as the answer to a request,
    and a request to another site.
    """
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def visit(place: str = "", *, dark: bool = False, phone: bool = False) -> Page:
        context = browser.new_context(
            viewport=PHONE if phone else DESK, color_scheme="dark" if dark else "light",
            permissions=["clipboard-read", "clipboard-write"], has_touch=phone,
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith((address, "data:", "blob:"))
                else faults.append(f"leaves the site: {asked.url}"))
        page.on("response", lambda got: faults.append(f"{got.status} {got.url}")
                if got.status >= 400 else None)
        page.goto(address + place, wait_until="networkidle")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert faults == []
