"""Write the golden files, with which tests compare the output of the tool.

    python scripts/golden.py                    # write all golden files
    python scripts/golden.py help.txt job.sh    # write two of them
    python scripts/golden.py shards             # write the packed photos of ResNet's tests

`tests/goldens.py` contains the code that makes the content.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import goldens
from trimaran.images import definition, render


def write_text(name: str) -> None:
    """Write one text file into `tests/golden`."""
    (goldens.FOLDER / name).write_text(goldens.TEXTS[name](), encoding="utf-8")


def write_image() -> None:
    """Write the definition and the Dockerfile of the small image of the tests."""
    render.write(definition.read(goldens.TINY))


def write_shards() -> None:
    """Pack the photos of ResNet's tests in each format; these tests read the files with DALI."""
    shutil.rmtree(goldens.SHARDS, ignore_errors=True)
    for form in goldens.FORMATS:
        goldens.pack(form, goldens.SHARDS / form)


WRITERS: dict[str, Callable[[], None]] = {
    **{name: partial(write_text, name) for name in goldens.TEXTS},
    "image": write_image,
    "shards": write_shards,
}
"""Name of a golden file -> function that writes it."""


def main(words: Sequence[str]) -> int:
    """Write the golden files that the command line `words` names; return the exit code."""
    summary, examples, *_ = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", metavar="NAME", nargs="*",
                        help=f"all if none is given; one of: {', '.join(WRITERS)}")
    names = parser.parse_args(words).names
    for name in names:
        if name not in WRITERS:
            parser.error(f"unknown golden '{name}': give one of {', '.join(WRITERS)}")
    for name in names or WRITERS:
        WRITERS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
