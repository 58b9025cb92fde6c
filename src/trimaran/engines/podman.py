"""Podman: Buildah builds OCI images from the same definitions, and Podman runs them."""

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
from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage, Condition, Description, Setting, commands
from trimaran.engines.build_steps import Job, Storage
from trimaran.engines.store import Record
from trimaran.errors import BuildError
from trimaran.files import check_space
from trimaran.images import definition, render
from trimaran.images.definition import Image
from trimaran.images.parts import VENV
from trimaran.launch.podman import run_options
from trimaran.launch.specification import Command, Node, plain
from trimaran.parsing import parse_json
from trimaran.reporting import Reporter

# vfs needs neither FUSE nor support by the kernel, and chroot isolation needs no privilege besides
# a user namespace. Both are slower than overlay and runc, but work everywhere.
STORAGE = ("--storage-driver", "vfs")
ISOLATION = ("--isolation", "chroot")

TRANSPORTS = {"docker": "", "storage": "", "docker-archive": "docker-archive:",
              "oci-archive": "oci-archive:"}
"""A dictionary that maps `Base.bootstrap` to the prefix of a base image in a Buildah command."""

TIDYING = (0.5, 1.0, 2.0, 4.0)
"""Seconds to wait before each repetition of `podman rmi` or `podman image inspect`.

Repetitions are needed, because Podman may still be removing a container after `run --rm` has ended.
"""
IN_USE = "in use by a container"
UNKNOWN = "image not known"


class Podman(Storage):
    """The engine Podman, which builds OCI images with Buildah, and finds, tests and runs them."""

    name = "podman"
    source = "Dockerfile"
    executable = "/usr/bin/podman"

    def __init__(self) -> None:
        if missing := _missing():
            raise BuildError(
                f"{missing[0]} is not installed", code="program-missing",
                hint="apt-get install buildah podman",
            )

    @classmethod
    def condition(cls) -> Condition:
        """Return whether Podman and Buildah are installed."""
        missing = _missing()
        if not missing:
            return Condition("ok", "podman and buildah are installed")
        if len(missing) == 1:
            return Condition("warn", f"{missing[0]} is missing",
                             "--engine podman needs both podman and buildah")
        return Condition("none", "not installed; only --engine podman uses it")

    @classmethod
    def present(cls, records: Iterable[Record]) -> list[Record]:
        """Return those of the records whose image is in the storage."""
        if "podman" in _missing():
            return []
        return [record for record in records if _stored(record.reference) == record.digest]

    def remove(self, record: Record) -> None:
        """Remove the image of `record`, if the storage still has it under its reference.

        Raises:
            BuildError: Podman refuses, for example because a container uses the image.
        """
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
                f"podman cannot remove {record.reference}: {done.stderr.strip()}",
                code="in-use" if IN_USE in done.stderr else "program-failed",
                hint=f"`podman {' '.join(STORAGE)} ps --all --external` lists what uses it",
            )

    def push(
        self, built: BuiltImage, to: str, *, login: Path | None, tls: bool, reporter: Reporter
    ) -> None:
        """Push the image; layers that the registry already has are not sent."""
        self._transfer("push", login, tls, built.reference, f"docker://{to}", reporter=reporter)

    def pull(
        self, source: str, image: Image, digest: str, *, login: Path | None, tls: bool,
        reporter: Reporter,
    ) -> tuple[str, int]:
        """Pull the image by the digest of its manifest; return its name and its size in bytes.

        Podman verifies the digests of the manifest and of every layer.
        """
        self._transfer("pull", login, tls, source, reporter=reporter)
        tag = self._reference(image.name, digest.removeprefix("sha256:"))
        self._podman("tag", source, tag)
        found = _stored(tag)
        if found != digest:
            raise BuildError(
                f"{source} is another image: expected {digest}, found {found}",
                code="digest-mismatch",
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
        """Yield the records of matching images that Podman's storage contains.

        The storage must have the image under the recorded reference, with the recorded digest.
        """
        for record in super()._records(image, digest):
            if _stored(record.reference) == record.digest:
                yield record

    def _reference(self, name: str, inputs: str) -> str:
        return f"localhost/trimaran/{name}:{inputs[:12]}"

    def _aside(self, job: Job) -> str:
        """Return the temporary name of an untested image; it contains the process ID."""
        return self._reference(f"part-{os.getpid()}/{job.image.name}", job.inputs)

    @contextmanager
    def _workplace(self, job: Job) -> Iterator[Path]:
        # vfs stores each layer as a whole copy of the layer below.
        check_space(self._root(), 2 * job.unpacked, "building the image", BuildError)
        with tempfile.TemporaryDirectory(prefix="trimaran-context-") as folder:
            try:
                yield Path(folder)
            finally:
                process.run(["buildah", *STORAGE, "rmi", self._aside(job)], env=self.environment())

    def _building(self, job: Job, folder: Path, wheels: Path) -> Command:
        under = job.under
        if under.bootstrap not in TRANSPORTS:
            raise BuildError(f"buildah cannot build on {under.reference}", code="base-invalid",
                             hint="give --base an image archive or a reference instead of a SIF")
        base = TRANSPORTS[under.bootstrap] + under.reference
        argv = ["buildah", *STORAGE, "build", *ISOLATION, "--tag", self._aside(job),
                "--layers=false", "--format", "oci", "--arch", job.image.architecture,
                "--pull-never" if under.bootstrap == self.beneath else "--pull"]
        for key, value in {"BASE": base, **commands.label_arguments(under, job.horovod)}.items():
            argv += ["--build-arg", f"{key}={value}"]
        if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
            argv += ["--timestamp", epoch]
        argv += ["--volume", f"{wheels}:{render.WHEELHOUSE}:ro"]
        if job.compiled is not None:
            argv += ["--volume", f"{job.compiled}:{render.COMPILED}:rw"]
        argv.append(str(folder))
        return Command(tuple(argv), self.environment())

    def _built(self, job: Job, folder: Path, reporter: Reporter) -> BuiltImage:
        tag = self._aside(job)
        digest = _stored(tag)
        if digest is None:
            raise BuildError(f"buildah left no image {tag}", code="build-failed")
        return BuiltImage(job.image.name, self.name, tag, digest, job.inputs, self._size(tag))

    def _keep(self, made: BuiltImage, reference: str, reporter: Reporter) -> None:
        self._podman("tag", made.reference, reference)

    def _pull(self, reference: str, architecture: Architecture, destination: Path) -> None:
        pull = ("pull", "--arch", architecture, reference)
        for words in (pull, ("push", reference, f"oci-archive:{destination}")):
            process.run(["buildah", *STORAGE, *words], env=self.environment(), check=BuildError)

    def _self_test(self, image: Image, built: BuiltImage) -> list[str]:
        return [*_run(Setting(), commands.podman_options(built.name)), "--entrypoint",
                f"{VENV}/bin/python", built.reference, *definition.self_test(image)]

    def python(self, built: BuiltImage, words: Sequence[str], setting: Setting) -> Command:
        """Return a command that runs the Python of the image, isolated from the host like a run."""
        argv = [*_run(setting), "--entrypoint", f"{VENV}/bin/python", built.reference, *words]
        return Command(tuple(argv), self.environment(network=setting.network))

    def described(self, built: BuiltImage) -> Description:
        """Return the labels and the entry point of the image."""
        config = parse_json(self._podman("image", "inspect", built.reference))[0]["Config"]
        return Description(config.get("Labels") or {}, shlex.join(config.get("Entrypoint") or []))

    def node(self, built: BuiltImage) -> Node:
        """Return the machine-dependent parts of a run's command, such as the image's location."""
        return Node(
            "podman", built.reference, global_options=(*STORAGE, *_runtime()),
            options=tuple(commands.podman_options(built.name)),
            environment=self.environment(network=False),
        )

    def _podman(self, *words: str) -> str:
        """Run podman with the arguments `words`, and return its standard output."""
        return process.run(["podman", *STORAGE, *words], env=self.environment(),
                           check=BuildError).stdout

    def _size(self, tag: str) -> int:
        return int(self._podman("image", "inspect", "--format", "{{.Size}}", tag))

    def _root(self) -> Path:
        info = process.run(["buildah", *STORAGE, "info"], env=self.environment(), check=BuildError)
        place = Path(parse_json(info.stdout)["store"]["GraphRoot"])
        return place if place.is_dir() else Path(tempfile.gettempdir())


def _stored(reference: str) -> str | None:
    """Return the digest of the image that Podman's storage has under the name `reference`, or None.

    Only this image is inspected, because a listing fails if another process removes an image at the
    same time. It is inspected twice, because Podman may miss an existing image while it removes
    containers.

    Raises:
        BuildError: Podman fails for another reason than a missing image.
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
        f"podman cannot inspect {reference}: {done.stderr.strip()}", code="program-failed",
        hint=f"`{words} info` shows whether its storage works; "
             f"`{words} rmi --force {reference}` removes a broken image",
    )


def _missing() -> list[str]:
    return [name for name in ("podman", "buildah") if shutil.which(name) is None]


def _runtime() -> list[str]:
    # Unless the host uses only cgroups v2, crun does not run without root; runc does.
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    return ["--runtime=runc"] if not unified and shutil.which("runc") else []


def _run(setting: Setting, options: Sequence[str] = ()) -> list[str]:
    """Return the first words of a `podman run` command, with options for isolation."""
    own = run_options(setting.workdir, setting.mounts, setting.env, options=options,
                      network=setting.network)
    return ["podman", *STORAGE, *_runtime(), *map(plain, own)]
