"""The command line: arguments in, one call of the library, a table or JSON out, an exit code.

One module for each group of commands; `common` has what they share, `outermost` what stands
around all of them. Imports of the library are inside the commands on purpose:
`trimaran --help` answers at once.
"""

from __future__ import annotations

import sys

# Imported for their commands.
from trimaran.cli import (  # noqa: F401
    bundles,
    cache,
    cluster,
    containers,
    data,
    definitions,
    inspect,
    registry,
    runs,
    signing,
)
from trimaran.cli.common import app
from trimaran.cli.error_boundary import guarded
from trimaran.process import in_utf8

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line and exit with a documented code, never with a traceback."""
    in_utf8()
    sys.exit(guarded(app))
