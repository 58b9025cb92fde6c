"""Add the images that the jobs of a release have pushed to `containers/digests.yaml`.

    python scripts/release_digests.py FILE…

Each FILE is `containers/digests.yaml` after one job, to which the job has added its images.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trimaran import strict
from trimaran.errors import TrimaranError
from trimaran.provenance import digests


def main(arguments: list[str]) -> int:
    """Add the images that the given files list to `containers/digests.yaml`.

    Stop at the first file with faults. Return the exit code.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+")
    try:
        for file in parser.parse_args(arguments).files:
            for publication in strict.load(digests.Digests, file).published:
                digests.record(publication, digests.project_path())
    except TrimaranError as error:
        sys.stderr.write(f"error: {error}\n")
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
