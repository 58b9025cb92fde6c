"""Start the scripts of the page "Your own script", and read the output of their ranks.

The scripts are started as a user would start them: from another folder, and with an environment of
a few variables.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from showncommands import DOCS
from trimaran import hostfacts
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.launch.apptainer import USERNS
from trimaran.reporting import Silent

SCRIPTS = DOCS / "tutorials/porting"
IMAGES = 400
"""Number of images: three batches of 128 and an incomplete one."""
EXACT = 2e-6
"""Tolerance for equal losses, which are printed with six digits after the decimal point."""
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "OMP_NUM_THREADS": "1",
               "TF_CPP_MIN_LOG_LEVEL": "3", "OMPI_MCA_mpi_yield_when_idle": "1"}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


class Trained(NamedTuple):
    """The output of the ranks of a training: the losses, and the checksums of the weights."""

    losses: list[float]
    checksums: list[str]

    def part(self, lines: slice) -> Trained:
        """Return the losses and the checksums at the positions in the slice `lines`."""
        return Trained(self.losses[lines], self.checksums[lines])


def trained(output: str) -> Trained:
    """Return the losses and checksums in the output of the ranks."""
    found = re.findall(r"^(?:rank \d: )?loss (\S+)  weights ([0-9a-f]{8})$", output, re.MULTILINE)
    return Trained([float(loss) for loss, _ in found], [checksum for _, checksum in found])


def assert_as_one(ranks: Trained, alone: Trained) -> None:
    """Check that two ranks have equal weights, and the same losses as a training in one process."""
    assert len(ranks.checksums) == 2
    assert len(set(ranks.checksums)) == 1
    assert ranks.losses == pytest.approx(alone.losses * 2, abs=EXACT)


def started(ranks: Sequence[Mapping[str, str]], argv: Sequence[str], place: Path) -> str:
    """Start one process for each environment in `ranks`; return the output of all processes."""
    place.mkdir(exist_ok=True)
    logs = [place / f"rank{number}.txt" for number in range(len(ranks))]
    with ExitStack() as opened:
        children = [
            opened.enter_context(subprocess.Popen(
                argv, cwd=place, env={**ENVIRONMENT, **env}, stderr=subprocess.STDOUT,
                stdout=opened.enter_context(log.open("w")),
            ))
            for log, env in zip(logs, ranks, strict=True)
        ]
        codes = [child.wait() for child in children]
    output = "".join(log.read_text() for log in logs)
    assert codes == [0] * len(codes), output
    return output


def write_data(path: Path) -> None:
    """Write random images of ten classes that a network can learn to distinguish."""
    random = np.random.default_rng(1)
    labels = random.integers(0, 10, IMAGES, dtype=np.uint8)
    images = random.integers(0, 156, (10, 28, 28))[labels]
    images += random.integers(0, 100, (IMAGES, 28, 28))
    np.savez(path, images=images.astype(np.uint8), labels=labels)


def sif(image: str) -> str:
    """Return the SIF of an image; build the image if it does not exist."""
    engine, wanted = Apptainer(), definition.load(image)
    return engine.build(wanted, base=None, offline=False, reporter=Silent()).reference


def apptainer(verb: str, image: str, *words: str) -> list[str]:
    """Return the `apptainer` command that a reader of the tutorial for own code would type."""
    options = [USERNS] if hostfacts.root_lacks_capabilities() else []
    return [Apptainer().executable, "--quiet", verb, *options, sif(image), *words]
