"""Define `Barge`, a made-up container engine: a new engine needs only one module.

A test adds `Barge` to the list of engines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trimaran import paths
from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage, Condition, Description, Setting
from trimaran.engines.build_steps import Container, Job
from trimaran.engines.selection import Row
from trimaran.engines.store import Record
from trimaran.files import sha256
from trimaran.images.definition import Image
from trimaran.launch.specification import Command, CommandLine, LaunchSpec, Node, join
from trimaran.reporting import Reporter

ROW = Row("barge:Barge", "barge:render", ("barge",))


def render(spec: LaunchSpec) -> CommandLine:
    """Return the command line that runs the app of `spec` with the made-up program `barge`."""
    shown = [join(mount.source, ":", mount.target) for mount in spec.mounts]
    node = spec.node
    return CommandLine((node.program, "run", *shown, node.image, *spec.arguments), spec.environment)


class Barge(Container):
    """A made-up engine for tests; each of its images is one file, written by a Python command."""

    name = "barge"
    form = "sif"
    source = "image.def"
    beneath = "localimage"
    suffix = ".barge"
    executable = "/opt/barge/bin/barge"

    @classmethod
    def condition(cls) -> Condition:
        """Report that the engine can be used on this machine."""
        return Condition("ok", "afloat")

    @classmethod
    def present(cls, records: Iterable[Record]) -> list[Record]:
        """Return the records of images whose file exists."""
        return [record for record in records if os.path.lexists(record.reference)]

    def push(
        self, built: BuiltImage, to: str, *, login: Path | None, tls: bool, reporter: Reporter
    ) -> None:
        """Pretend to push an image to a registry; nothing is sent."""

    def _reference(self, name: str, inputs: str) -> str:
        return str(paths.cache("images", f"{name}-{inputs[:12]}.barge"))

    @contextmanager
    def _workplace(self, job: Job) -> Iterator[Path]:
        folder = paths.cache("images", "part-barge")
        folder.mkdir(parents=True)
        yield folder

    def _building(self, job: Job, folder: Path, wheels: Path) -> Command:
        script = "import pathlib; pathlib.Path('made').write_bytes(open('image.def', 'rb').read())"
        return Command((sys.executable, "-c", script), self.environment())

    def _built(self, job: Job, folder: Path, reporter: Reporter) -> BuiltImage:
        made = folder / "made"
        digest, size = f"sha256:{sha256(made)}", made.stat().st_size
        return BuiltImage(job.image.name, self.name, str(made), digest, job.inputs, size)

    def _keep(self, made: BuiltImage, reference: str, reporter: Reporter) -> None:
        Path(made.reference).rename(reference)

    def _pull(self, reference: str, architecture: Architecture, destination: Path) -> None:
        destination.write_text(reference)

    def _self_test(self, image: Image, built: BuiltImage) -> list[str]:
        return [sys.executable, "-c", f"open({built.reference!r})"]

    def python(self, built: BuiltImage, words: Sequence[str], setting: Setting) -> Command:
        """Return the command `barge python WORDS`, which runs Python without naming the image."""
        env = self.environment(network=setting.network)
        return Command((self.executable, "python", *words), env)

    def node(self, built: BuiltImage) -> Node:
        """Return what depends on the machine: the paths of the engine and of the image."""
        return Node(self.executable, built.reference)

    def described(self, built: BuiltImage) -> Description:
        """Return an image description that has no labels."""
        return Description({}, "")
