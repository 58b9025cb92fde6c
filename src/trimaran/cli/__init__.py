"""The command line: arguments in, one call of the library, a table or JSON out, an exit code.

One module for each group of commands; `common` has what they share. Imports of the
library are inside the commands on purpose: `trimaran --help` answers at once.
"""

from __future__ import annotations

import errno
import sys

# Imported for their commands.
from trimaran.cli import (  # noqa: F401
    bundles,
    cache,
    containers,
    data,
    definitions,
    inspect,
    registry,
    runs,
    signing,
)
from trimaran.cli.common import app
from trimaran.errors import ExitCode, RunError, TrimaranError, UsageError

__all__ = ["app", "main"]


# What the system refuses for reasons that lie with the machine, not with Trimaran.
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def main() -> None:
    """Run the command line and exit with a documented code; no traceback for a user's mistake."""
    try:
        app()
    except TrimaranError as error:
        from trimaran.terminal import show_error

        show_error(error)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in (*_REFUSED, errno.ENAMETOOLONG):
            raise
        from trimaran.terminal import show_error

        kind = UsageError if error.errno == errno.ENAMETOOLONG else RunError
        refused = kind(f"{error.filename or 'the disk'}: {error.strerror}")
        show_error(refused)
        sys.exit(refused.exit_code)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
