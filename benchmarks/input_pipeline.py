#!/usr/bin/env python
"""Compare input pipelines for JPEG files: the app's, PyTorch's DataLoader, and decoding only.

    python benchmarks/input_pipeline.py --markdown benchmarks/README.md
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path

from sidebyside import cli, contestants, machine
from sidebyside.report import Comparison, Plan

OURS = "ours (DALI, decodes the random window only)"
FORM = "ours, from {} shards"
FORMS = ("tfrecord", "recordio", "lmdb", "hdf5")
"""Formats of packed data; the app's rate with each is compared with its rate with WebDataset."""
STOCK = "stock: DataLoader and Pillow"
DECODE = "libjpeg-turbo decodes whole images, nothing else"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Compare input pipelines: 500 x 375 JPEG to crops of 224 x 224.", rounds=5)
    top.add_argument("--batch", type=cli.positive, default=64,
                     help="images per batch (default: %(default)s)")
    top.add_argument("--images", type=cli.positive, default=1024,
                     help="JPEG files to make (default: %(default)s)")
    top.add_argument("--seconds", type=cli.positive, default=10,
                     help="to measure each contestant in each round (default: %(default)s)")
    top.add_argument("--photographs", type=Path, metavar="DIR",
                     help="JPEG photographs to cut images from (default: foolbox's)")
    return top


def plan(options: argparse.Namespace, folder: Path) -> Plan:
    """Make the images and shards in `folder`, and return a plan that compares all pipelines."""
    from sidebyside import photographs  # imported here, because --help needs no Pillow

    environment, notes = machine.our_environment(os.environ)
    contestants.app_options(environment)
    plain = machine.stock_environment(os.environ)
    made = photographs.make(folder, max(options.images, options.batch), options.photographs)
    cores, seconds = str(len(options.cores)), ("--seconds", str(options.seconds))
    batch = ("--batch", str(options.batch))
    runners = [
        contestants.program(
            STOCK, plain, "baselines.torch_loader", str(made.folder), "--workers", cores,
            *batch, *seconds,
        ),
        contestants.program(
            OURS, environment, "our_loader", str(made.packed), "--threads", cores,
            *batch, *seconds,
        ),
    ]
    comparisons, missing = [Comparison("ours / DataLoader and Pillow", OURS, STOCK, 2)], list[str]()
    for form in FORMS:
        try:
            photographs.pack(made.files, folder / form, form)
        except ModuleNotFoundError as error:
            missing.append(f"{form} / webdataset shards: {error.name} is not installed")
            continue
        runners.append(contestants.program(
            FORM.format(form), environment, "our_loader", str(folder / form), "--threads", cores,
            *batch, *seconds,
        ))
        comparisons.append(Comparison(f"{form} / webdataset shards", FORM.format(form), OURS, 0.9))
    if importlib.util.find_spec("simplejpeg") is None:
        missing.append("ours / decoding only: simplejpeg is not installed")
    else:
        runners.append(
            contestants.program(
                DECODE, plain, "baselines.decode_only", str(made.folder), "--processes", cores,
                *seconds,
            )
        )
        comparisons.append(Comparison("ours / decoding only", OURS, DECODE, 0.8))
    return Plan(runners, comparisons, [*notes, made.note], missing)


if __name__ == "__main__":
    sys.exit(cli.run("input_pipeline", parser(), plan))
