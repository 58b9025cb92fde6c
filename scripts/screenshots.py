"""Take screenshots of six pages of the built site in light and dark colours, with Chromium.

    python scripts/screenshots.py        # site/docs/assets/screenshots/*.png

Inspect the pictures before you commit them, because no test checks their appearance.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
BUILT, PICTURES = ROOT / "build/site", ROOT / "site/docs/assets/screenshots"
PAGES = {
    "home": "",
    "recipes": "recipes/?hardware=V100",
    "recipe": "recipes/resnet-imagenet/v100x1-throughput/",
    "results": "results/throughput/",
    "app": "apps/chexnet/#what-the-quickstart-shows",
    "guide": "guides/precision/",
}
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print no log lines."""


def main() -> int:
    """Take all screenshots; return the exit code."""
    program = shutil.which("chromium")
    if program is None or not BUILT.is_dir():
        sys.stderr.write("needs Chromium (apt-get install chromium) and the site (make site)\n")
        return 2
    PICTURES.mkdir(parents=True, exist_ok=True)
    handler = functools.partial(_Quiet, directory=str(BUILT))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        take(program, f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()
    return 0


def take(program: str, address: str) -> None:
    """Open each page in both colour schemes, and write its picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for colours in ("light", "dark"):
            context = browser.new_context(
                # The height includes the command of a recipe and the figure of an app.
                viewport={"width": 1280, "height": 1040},
                color_scheme="dark" if colours == "dark" else "light",
            )
            for name, place in PAGES.items():
                page = context.new_page()
                page.goto(address + place, wait_until="networkidle")
                page.screenshot(path=PICTURES / f"{name}-{colours}.png")
                page.close()
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
