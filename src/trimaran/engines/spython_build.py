"""Child process that has spython build a SIF: `python -m trimaran.engines.spython_build`.

A process of its own, because spython hands its whole environment to Apptainer (so a
setting of the user would leak into the image) and leaves its child running on Ctrl-C:
here the environment is the one that `engines.apptainer` chose, and `process.stream`
ends the whole process group.
"""

from __future__ import annotations

import functools
import sys

import spython.main.build
from spython.main import Client
from spython.utils import stream_command


def main(arguments: list[str]) -> int:
    """Build: `IMAGE RECIPE [option of apptainer build …]`; return Apptainer's exit status."""
    image, recipe, *options = arguments
    # By default spython pipes standard error and never reads it before the end: after
    # 64 KiB of it the build would hang.
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
