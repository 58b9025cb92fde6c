"""Measure an input pipeline that only decodes JPEG files: libjpeg-turbo decodes whole images.

There is one process per core, and the files are in memory. simplejpeg contains libjpeg-turbo.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import simplejpeg

from sidebyside.timing import images_per_second, print_rate


def decoded(files: list[bytes]) -> Iterator[int]:
    """Decode the files in an endless loop; yield 1 for each decoded image."""
    for file in itertools.cycle(files):
        simplejpeg.decode_jpeg(file, colorspace="RGB")
        yield 1


def one_process(files: list[bytes], seconds: float) -> float:
    """Return the images per second that this process decodes."""
    return images_per_second(decoded(files), warmup=64, seconds=seconds)


def main() -> None:
    """Decode in several processes in parallel; print their total rate in images per second."""
    parser = argparse.ArgumentParser(description="Print the img/s of decoding JPEG files.")
    parser.add_argument("folder", type=Path, help="JPEG files, one level of folders deep")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    files = [path.read_bytes() for path in sorted(options.folder.glob("*/*.jpg"))]
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        work = [(files, options.seconds)] * options.processes
        print_rate(sum(pool.starmap(one_process, work, chunksize=1)))


if __name__ == "__main__":
    main()
