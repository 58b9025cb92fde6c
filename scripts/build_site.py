"""Build the site from definitions and evidence, or serve it on this machine.

    python scripts/build_site.py source    # write build/site-source only, for mike
    python scripts/build_site.py readme    # write the tables in README.md, containers/README.md
                                           # and the README.md of each app with variants
    python scripts/build_site.py build     # build build/site from build/site-source
    python scripts/build_site.py serve     # build the site, serve it at http://127.0.0.1:8000/

With `--today YYYY-MM-DD`, evidence that is older than 12 months on that date is shown as stale; the
default is the current date.

Exit codes: 0 success; 1 the builder found a fault in a page, such as a broken link; 2 evidence, a
definition or a page has faults, whose file, line and reason are printed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import http.server
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

STARTED = time.monotonic()  # before the imports below, so that their time is included
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "site"))

from generator import (  # noqa: E402 - found by the line above
    image_overview,
    readme,
    sources,
    tree,
    variants,
)
from trimaran.errors import TrimaranError  # noqa: E402

SOURCE, BUILT = ROOT / "build/site-source", ROOT / "build/site"


def written(write: Callable[[], None]) -> int:
    """Call `write`; print its error, if any, and return the exit code."""
    try:
        write()
    except TrimaranError as error:
        sys.stderr.write(f"{error.message}\n{error.hint or ''}".rstrip() + "\n")
        return 2
    return 0


def write_tables() -> None:
    """Write the tables of evidence into the READMEs."""
    read = sources.read()
    readme.write(read)
    variants.write(read)


def build() -> int:
    """Build the site from its source, and print the elapsed time; return the exit code."""
    code = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f",
         str(SOURCE / "mkdocs.yml")],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False,
    ).returncode and 1
    if not code:
        sys.stderr.write(f"{BUILT.relative_to(ROOT)}: {time.monotonic() - STARTED:.0f} s\n")
    return code


def serve(port: int) -> int:
    """Serve the site until Ctrl-C; return the exit code."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(BUILT))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        sys.stderr.write(f"http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)\n")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def main(words: Sequence[str]) -> int:
    """Run the command line `words`; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("verb", choices=["readme", "source", "build", "serve"])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--today", type=dt.date.fromisoformat, default=None)
    asked = parser.parse_args(words)
    if asked.verb == "readme":
        return written(image_overview.write) or written(write_tables)
    if code := written(lambda: tree.write(SOURCE, asked.today)):
        return code
    if asked.verb != "source" and (code := build()):
        return code
    return serve(asked.port) if asked.verb == "serve" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
