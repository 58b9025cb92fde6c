"""Build a SIF with spython in a child process: `python -m trimaran.engines.spython_build`.

A separate process is needed for two reasons. spython passes its whole environment to Apptainer, so
that a setting of the user could change the image; `engines.apptainer` gives this process a small
environment. On Ctrl-C, spython leaves Apptainer running; `process.stream` ends the process group.
"""

from __future__ import annotations

import functools
import sys

import spython.main.build
from spython.main import Client
from spython.utils import stream_command


def main(arguments: list[str]) -> int:
    """Build with the arguments `IMAGE RECIPE [OPTION...]`; return the exit status of Apptainer."""
    image, recipe, *options = arguments
    # By default spython reads standard error only at the end, so that the build would hang
    # after 64 KiB of it.
    spython.main.build.stream_command = functools.partial(stream_command, output_type="both")
    _, lines = Client.build(
        recipe=recipe, image=image, options=options, sudo=False, stream=True, quiet=True
    )
    try:
        for line in lines:
            sys.stdout.write(line)
            sys.stdout.flush()
    except Exception as error:  # subprocess.CalledProcessError
        status = getattr(error, "returncode", None)
        if status is None:
            raise
        return int(status)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
