"""OCI images: buildah builds them from the same definition, podman runs them."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trimaran import process
from trimaran.engines import BuiltImage, Condition, Description, Setting, commands, gpu
from trimaran.engines.build_steps import Job, Storage
from trimaran.engines.store import Record
from trimaran.errors import BuildError
from trimaran.files import check_space
from trimaran.images import definition, stages
from trimaran.images.definition import Image
from trimaran.images.parts import VENV
from trimaran.launch.podman import run_options
from trimaran.launch.specification import Command, Node
from trimaran.launch.words import plain
from trimaran.parsing import parse_json
from trimaran.reporting import Reporter

# vfs needs neither FUSE nor kernel support; chroot isolation needs no privilege beyond
# the user namespace. Both are slower than overlay and runc, and work everywhere.
STORAGE = ("--storage-driver", "vfs")
ISOLATION = ("--isolation", "chroot")

TRANSPORTS = {"docker": "", "storage": "", "docker-archive": "docker-archive:",
              "oci-archive": "oci-archive:"}
"""What buildah wants in front of a base, by `Base.bootstrap`."""

TIDYING = (0.5, 1.0, 2.0, 4.0)
"""Seconds to wait for podman, which still removes a container when its `run --rm` has ended."""
IN_USE = "in use by a container"
UNKNOWN = "image not known"


class Podman(Storage):
    """Builds with buildah; finds, tests and runs with podman, in one storage."""

    name = "podman"
    source = "Dockerfile"
    executable = "/usr/bin/podman"

    def __init__(self) -> None:
        if missing := _missing():
            raise BuildError(
                f"{missing[0]} is not installed", hint="apt-get install buildah podman"
            )

    @classmethod
    def condition(cls) -> Condition:
        """Return whether both programs are there."""
        missing = _missing()
        if not missing:
            return Condition("ok", "podman and buildah are installed")
        if len(missing) == 1:
            return Condition("warn", f"{missing[0]} is missing",
                             "--engine podman takes both podman and buildah")
        return Condition("none", "not installed; only --engine podman uses it")

    @classmethod
    def present(cls, records: Iterable[Record]) -> list[Record]:
        """Return those whose image the storage has."""
        if "podman" in _missing():
            return []
        return [record for record in records if _stored(record.reference) == record.digest]

    def remove(self, record: Record) -> None:
        """Remove the image from the storage, if that still has it under this reference."""
        if _stored(record.reference) != record.digest:
            return
        for pause in (0.0, *TIDYING):
            time.sleep(pause)
            argv = ["podman", *STORAGE, "rmi", record.reference]
            done = process.run(argv, env=self.environment())
            if IN_USE not in done.stderr:
                break
        if done.returncode != 0:
            raise BuildError(
                f"podman does not remove {record.reference}: {done.stderr.strip()}",
                hint=f"`podman {' '.join(STORAGE)} ps --all --external` lists what uses it",
            )

    def push(
        self, built: BuiltImage, to: str, *, login: Path | None, tls: bool, reporter: Reporter
    ) -> None:
        """Send the image; the layers that are there are left out."""
        self._transfer("push", login, tls, built.reference, f"docker://{to}", reporter=reporter)

    def pull(
        self, source: str, image: Image, digest: str, *, login: Path | None, tls: bool,
        reporter: Reporter,
    ) -> tuple[str, int]:
        """Pull by the manifest's digest, which Podman verifies, with that of every layer."""
        self._transfer("pull", login, tls, source, reporter=reporter)
        tag = self._reference(image.name, digest.removeprefix("sha256:"))
        self._podman("tag", source, tag)
        found = _stored(tag)
        if found != digest:
            raise BuildError(
                f"podman made another image of {source}, not used: expected {digest}, found {found}"
            )
        return tag, self._size(tag)

    def _transfer(
        self, verb: str, login: Path | None, tls: bool, *words: str, reporter: Reporter
    ) -> None:
        options = [] if tls else ["--tls-verify=false"]
        options += ["--authfile", str(login)] if login else []
        argv = ["podman", *STORAGE, verb, *options, *words]
        commands.transfer(argv, self.environment(), reporter)

    def _records(self, image: Image, digest: str | None = None) -> Iterable[Record]:
        """Yield only those whose image the storage has under their reference."""
        for record in super()._records(image, digest):
            if _stored(record.reference) == record.digest:
                yield record

    def _reference(self, name: str, inputs: str) -> str:
        return f"localhost/trimaran/{name}:{inputs[:12]}"

    def _aside(self, job: Job) -> str:
        """Return the name of the image until it is tested: this process's own."""
        return self._reference(f"part-{os.getpid()}/{job.image.name}", job.inputs)

    @contextmanager
    def _workplace(self, job: Job) -> Iterator[Path]:
        # vfs keeps a whole copy of the layer below for each new one.
        check_space(self._root(), 2 * job.unpacked, "building the image", BuildError)
        with tempfile.TemporaryDirectory(prefix="trimaran-context-") as folder:
            try:
                yield Path(folder)
            finally:
                process.run(["buildah", *STORAGE, "rmi", self._aside(job)], env=self.environment())

    def _building(self, job: Job, folder: Path, wheels: Path) -> Command:
        under = job.under
        if under.bootstrap not in TRANSPORTS:
            raise BuildError(f"buildah cannot build on {under.reference}",
                             hint="give --base an image archive or a reference instead of a SIF")
        base = TRANSPORTS[under.bootstrap] + under.reference
        argv = ["buildah", *STORAGE, "build", *ISOLATION, "--tag", self._aside(job),
                "--layers=false", "--format", "oci",
                "--pull-never" if under.bootstrap == self.beneath else "--pull"]
        for key, value in {"BASE": base, **commands.label_arguments(under)}.items():
            argv += ["--build-arg", f"{key}={value}"]
        if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
            argv += ["--timestamp", epoch]
        argv += ["--volume", f"{wheels}:{stages.WHEELHOUSE}:ro", str(folder)]
        return Command(tuple(argv), self.environment())

    def _built(self, job: Job, folder: Path, reporter: Reporter) -> BuiltImage:
        tag = self._aside(job)
        digest = _stored(tag)
        if digest is None:
            raise BuildError(f"buildah left no image {tag}")
        return BuiltImage(job.image.name, self.name, tag, digest, job.inputs, self._size(tag))

    def _keep(self, made: BuiltImage, reference: str, reporter: Reporter) -> None:
        self._podman("tag", made.reference, reference)

    def _pull(self, reference: str, destination: Path) -> None:
        for words in (("pull", reference), ("push", reference, f"oci-archive:{destination}")):
            process.run(["buildah", *STORAGE, *words], env=self.environment(), check=BuildError)

    def _self_test(self, image: Image, built: BuiltImage) -> list[str]:
        return [*_run(Setting(), gpu.podman_options(built.name)), "--entrypoint",
                f"{VENV}/bin/python", built.reference, *definition.self_test(image)]

    def python(self, built: BuiltImage, words: Sequence[str], setting: Setting) -> Command:
        """Return the command that runs the image's own Python, isolated as a run is."""
        argv = [*_run(setting), "--entrypoint", f"{VENV}/bin/python", built.reference, *words]
        return Command(tuple(argv), self.environment(network=setting.network))

    def described(self, built: BuiltImage) -> Description:
        """Return the image's labels and entry point."""
        config = parse_json(self._podman("image", "inspect", built.reference))[0]["Config"]
        return Description(config.get("Labels") or {}, shlex.join(config.get("Entrypoint") or []))

    def node(self, built: BuiltImage) -> Node:
        """Return what a run of the image takes from this machine."""
        return Node(
            "podman", built.reference, global_options=(*STORAGE, *_runtime()),
            options=tuple(gpu.podman_options(built.name)),
            environment=self.environment(network=False),
        )

    def _podman(self, *words: str) -> str:
        """Return what podman prints."""
        return process.run(["podman", *STORAGE, *words], env=self.environment(),
                           check=BuildError).stdout

    def _size(self, tag: str) -> int:
        return int(self._podman("image", "inspect", "--format", "{{.Size}}", tag))

    def _root(self) -> Path:
        info = process.run(["buildah", *STORAGE, "info"], env=self.environment(), check=BuildError)
        place = Path(parse_json(info.stdout)["store"]["GraphRoot"])
        return place if place.is_dir() else Path(tempfile.gettempdir())


def _stored(reference: str) -> str | None:
    """Return the digest of the image that the storage has under this reference, or None.

    Asks for this one only: a listing fails if another process removes some other image meanwhile.
    And asks again: an image that is there was once not found while podman tidied up.
    """
    env = commands.own_environment(Podman.executable)
    argv = ["podman", *STORAGE, "image", "inspect", "--format", "{{.Id}}", reference]
    unknown = 0
    for pause in (0.0, *TIDYING):
        time.sleep(pause)
        done = process.run(argv, env=env)
        if done.returncode == 0:
            return f"sha256:{done.stdout.strip().removeprefix('sha256:')}"
        unknown += UNKNOWN in done.stderr
        if unknown == 2:
            return None
    words = f"podman {' '.join(STORAGE)}"
    raise BuildError(
        f"podman does not say whether it has {reference}: {done.stderr.strip()}",
        hint=f"`{words} info` says whether its storage works; "
             f"`{words} rmi --force {reference}` removes an image that is broken",
    )


def _missing() -> list[str]:
    return [name for name in ("podman", "buildah") if shutil.which(name) is None]


def _runtime() -> list[str]:
    # Where cgroups are not version 2 alone, crun refuses to run as a user; runc does not.
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    return ["--runtime=runc"] if not unified and shutil.which("runc") else []


def _run(setting: Setting, options: Sequence[str] = ()) -> list[str]:
    """Return `podman run` and its options, which isolate a container from the host."""
    own = run_options(setting.workdir, setting.mounts, setting.env, options=options,
                      network=setting.network)
    return ["podman", *STORAGE, *_runtime(), *map(plain, own)]
