"""The command line: parse arguments, call the library, print a table or JSON, and exit.

Each group of commands has a module. `common` has shared definitions, and `error_boundary` converts
the errors of all commands to messages and exit codes. The commands import the library inside their
functions, so that `trimaran --help` answers at once.
"""

from __future__ import annotations

import sys

# These imports register the commands.
from trimaran.cli import (  # noqa: F401
    bundles,
    cache,
    cluster,
    containers,
    data,
    doctor,
    evidence,
    inspect,
    planning,
    publishing,
    runs,
    supply_chain,
    tuning,
)
from trimaran.cli.common import app
from trimaran.cli.error_boundary import guarded
from trimaran.process import in_utf8

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line and exit with a documented code, never with a traceback."""
    in_utf8()
    sys.exit(guarded(app))
