"""Apptainer: builds SIF files without root and runs them isolated from the host."""

from __future__ import annotations

import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from trimaran import hostfacts, locks, paths, process
from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage, Condition, Description, Setting, commands
from trimaran.engines.build_steps import Container, Job
from trimaran.engines.removal import remove_folder
from trimaran.engines.store import Record
from trimaran.errors import BuildError, RunError, TrimaranError
from trimaran.files import check_space, set_aside, sha256
from trimaran.images.definition import Image
from trimaran.images.parts import VENV
from trimaran.launch.apptainer import ISOLATION, USERNS, given, mount_options
from trimaran.launch.specification import Command, Node, plain
from trimaran.parsing import parse_json
from trimaran.reporting import Reporter

SQUASHFS = "-comp zstd -Xcompression-level 3"
"""Options of mksquashfs.

Importing a framework mostly waits until its libraries are decompressed, and zstd decompresses
faster than gzip (measured in containers/README.md, "Start and import"). Kernels since 4.14 can
mount it, and squashfuse since 0.1.101. Higher levels and larger blocks give smaller images, but
take longer to build.
"""


def program() -> str | None:
    """Return the path of Apptainer, or None if it is not installed.

    Apptainer is on PATH, or `make apptainer` has installed it in the cache.
    """
    own = paths.cache("apptainer", "current", "usr", "bin", "apptainer")
    return shutil.which("apptainer") or (str(own) if own.is_file() else None)


class Apptainer(Container):
    """The engine Apptainer, which builds, finds, tests and runs SIF files."""

    name = "apptainer"
    form = "sif"
    mounts_images = True
    source = "image.def"
    beneath = "localimage"
    suffix = ".sif"

    def __init__(self, executable: str | None = None) -> None:
        found = executable or program()
        if found is None:
            raise BuildError(
                "Apptainer is not installed", code="program-missing",
                hint="`make apptainer` assembles it without root on Debian-family hosts",
            )
        self.executable = found

    @classmethod
    def condition(cls) -> Condition:
        """Return whether Apptainer is installed and runs."""
        found = program()
        if found is None:
            return Condition(
                "warn", "not installed: runs use the host engine",
                "ask your site for it, or on a Debian family system: make apptainer",
            )
        try:
            return Condition("ok", f"{cls(found).version()}, {found}")
        except (TrimaranError, OSError) as error:
            return Condition("fail", str(error), f"install it again, or remove {found} from PATH")

    def version(self) -> str:
        """Return the output of `apptainer --version`."""
        result = process.run([self.executable, "--version"], timeout=20, check=RunError)
        return result.stdout.strip()

    @classmethod
    def present(cls, records: Iterable[Record]) -> list[Record]:
        """Return those of the records whose SIF file exists."""
        return [record for record in records if os.path.lexists(record.reference)]

    def push(
        self, built: BuiltImage, to: str, *, login: Path | None, tls: bool, reporter: Reporter
    ) -> None:
        """Push the SIF to a registry as an ORAS artifact."""
        options = [] if tls else ["--no-https"]
        options += ["--authfile", str(login)] if login else []
        argv = [self.executable, "push", *options, built.reference, f"oras://{to}"]
        commands.transfer(argv, self.environment(), reporter)

    def _reference(self, name: str, inputs: str) -> str:
        return str(paths.cache("images", f"{name}-{inputs[:12]}.sif"))

    def _workplace(self, job: Job) -> AbstractContextManager[Path]:
        return workplace(job.unpacked)

    def _building(self, job: Job, folder: Path, wheels: Path) -> Command:
        """Return the command that builds the image with spython, a Python client of Apptainer.

        spython starts a program with the name `singularity`. This method therefore creates a link
        with that name in `folder`, which points to Apptainer.
        """
        from trimaran.images import render

        (folder / "bin").mkdir()
        (folder / "bin/singularity").symlink_to(self.executable)
        env = commands.own_environment(str(folder / "bin" / "singularity"), self.executable)
        env["APPTAINER_TMPDIR"] = str(folder / "tmp")
        # A cache for this build alone: concurrent builds would read half-written files.
        env["APPTAINER_CACHEDIR"] = str(folder / "tmp" / "cache")
        base = job.under.reference
        if job.under.bootstrap != "docker":
            # The relative link keeps paths of this machine out of the labels.
            link = folder / f"base{Path(base).suffix}"
            link.symlink_to(base)
            base = link.name
        # The arguments are in a file, because `--build-arg` splits its value at commas.
        arguments = {"BOOTSTRAP": job.under.bootstrap, "BASE": base,
                     **commands.label_arguments(job.under, job.horovod)}
        lines = [f"{key}={value}\n" for key, value in arguments.items()]
        (folder / "arguments").write_text("".join(lines), encoding="utf-8")
        return Command((
            sys.executable, "-m", "trimaran.engines.spython_build", "image.sif", self.source,
            "--notest",  # `_self_test` tests the finished SIF, isolated like a run
            "--force",  # otherwise the framework image's labels and help stay
            "--mksquashfs-args", SQUASHFS,
            "--bind", f"{wheels}:{render.WHEELHOUSE}:ro",
            *(("--bind", f"{job.compiled}:{render.COMPILED}:rw") if job.compiled else ()),
            "--build-arg-file", "arguments",
        ), env)

    def _built(self, job: Job, folder: Path, reporter: Reporter) -> BuiltImage:
        made, name = folder / "image.sif", job.image.name
        if not made.is_file():
            raise BuildError(f"building {name} left no SIF", code="build-failed")
        if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
            freeze(made, int(epoch))
        size = made.stat().st_size
        with reporter.bar(f"hashing {name}", size, unit="B") as advance:
            digest = f"sha256:{sha256(made, advance)}"
        return BuiltImage(name, self.name, str(made), digest, job.inputs, size)

    def _keep(self, made: BuiltImage, reference: str, reporter: Reporter) -> None:
        target = Path(reference)
        if os.path.lexists(target):
            reporter.warn(f"{target} has no record; renamed to {set_aside(target).name}")
        Path(made.reference).rename(target)

    def _pull(self, reference: str, architecture: Architecture, destination: Path) -> None:
        process.run([self.executable, "pull", "--arch", architecture, str(destination),
                     f"docker://{reference}"], env=self.environment(), check=BuildError)

    def _self_test(self, image: Image, built: BuiltImage) -> list[str]:
        return [self.executable, "--quiet", "test", *ISOLATION, *_namespace(),
                *commands.apptainer_options(built.name), "--pwd", "/", built.reference]

    def python(self, built: BuiltImage, words: Sequence[str], setting: Setting) -> Command:
        """Return a command that runs the Python of the image, isolated from the host like a run.

        Apptainer always shares the network of the host; `setting.network` only adds the variables
        of a proxy.
        """
        argv = [self.executable, "--quiet", "exec", *ISOLATION, *_namespace(),
                "--pwd", setting.workdir, *map(plain, mount_options(setting.mounts)),
                built.reference, f"{VENV}/bin/python", *words]
        env = {**self.environment(network=setting.network), **given(setting.env)}
        return Command(tuple(argv), env)

    def described(self, built: BuiltImage) -> Description:
        """Return the labels and the entry point (the runscript) of the SIF."""
        result = process.run(
            [self.executable, "inspect", "--json", "--labels", "--runscript", built.reference],
            env=self.environment(), check=BuildError,
        )
        found = parse_json(result.stdout)["data"]["attributes"]
        return Description(found["labels"], found["runscript"])

    def node(self, built: BuiltImage) -> Node:
        """Return the machine-dependent parts of a run's command, such as the image's location."""
        return Node(
            self.executable, built.reference,
            options=(*_namespace(), *commands.apptainer_options(built.name)),
            environment=self.environment(network=False),
        )


def _namespace() -> list[str]:
    """Return the option with which root can run containers without CAP_SYS_RESOURCE.

    The list is empty if the option is not needed.
    """
    # Apptainer sets resource limits if root calls it. This needs the capability, except in a user
    # namespace, in which Apptainer does not set them.
    return [USERNS] if hostfacts.root_lacks_capabilities() else []


SCRATCH = "trimaran-build-"


@contextmanager
def workplace(needed: int) -> Iterator[Path]:
    """Yield a folder for a build, next to the finished images, and delete it afterwards.

    The folder is on the file system of the finished images, so that the new SIF only has to be
    renamed. The link `tmp` in the folder points to a folder below TMPDIR, usually on a local disk,
    into which Apptainer unpacks.

    Args:
        needed: disk space in bytes that unpacking needs.

    Raises:
        BuildError: the disk space is too small.
    """
    finished = paths.cache("images")
    finished.mkdir(parents=True, exist_ok=True)
    for part in finished.glob("part-*"):
        if locks.left_over(part):  # from a build that was killed
            with suppress(OSError):  # of which `trimaran cache prune` shows the reason
                for folder in build_folders(part):
                    remove_folder(folder)
                locks.path_of(part).unlink(missing_ok=True)
    scratch_root = Path(os.environ.get("APPTAINER_TMPDIR") or tempfile.gettempdir())
    check_space(scratch_root, needed, "unpacking the image", BuildError)
    check_space(finished, needed // 3, "the finished image", BuildError)
    with locks.scratch(finished, "part-") as place:
        scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=scratch_root))
        try:
            (place / "tmp").symlink_to(scratch)
            yield place
        finally:
            with suppress(OSError):
                remove_folder(scratch)


def build_folders(place: Path) -> tuple[Path, ...]:
    """Return the folders of the build in `place`: the folder for unpacking, and `place` itself.

    The folder for unpacking is the target of the link `tmp` in `place`. It is left out if its name
    does not begin with `SCRATCH`.
    """
    scratch = (place / "tmp").resolve()
    return (scratch, place) if scratch.name.startswith(SCRATCH) else (place,)


MAGIC = (32, b"SIF_MAGIC\0")
IDENTIFIER = (48, 16)
TIMES = 64  # created and modified, int64 each
DESCRIPTORS = struct.Struct("<qqqq")  # free, total, offset, size of the table
DESCRIPTORS_AT = 80
DESCRIPTOR_BYTES = 585
USED_AT = 4
DESCRIPTOR_TIMES = 41


def freeze(path: Path, epoch: int) -> None:
    """Set all dates in the header of the SIF at `path` to `epoch`, and its identifier to zero.

    Apptainer up to 1.4 writes a random identifier and the current time into the header even when
    SOURCE_DATE_EPOCH is set. Newer versions write SOURCE_DATE_EPOCH and no identifier, and so does
    this function. No program reads the two fields. A signature that is made later covers them. The
    layout is defined by `header` and `rawDescriptor` in github.com/apptainer/sif.

    Raises:
        BuildError: the file is not a SIF, or its layout is unknown.
    """
    dates = struct.pack("<qq", epoch, epoch)
    with path.open("r+b") as file:
        start = file.read(DESCRIPTORS_AT + DESCRIPTORS.size)
        at, magic = MAGIC
        if start[at:at + len(magic)] != magic:
            raise BuildError(f"{path} is not a SIF file", code="image-invalid")
        _, total, offset, size = DESCRIPTORS.unpack_from(start, DESCRIPTORS_AT)
        if size != total * DESCRIPTOR_BYTES:
            raise BuildError(f"{path} has a header of an unknown layout", code="image-invalid")
        _write(file, IDENTIFIER[0], bytes(IDENTIFIER[1]))
        _write(file, TIMES, dates)
        for place in range(offset, offset + size, DESCRIPTOR_BYTES):
            file.seek(place + USED_AT)
            if file.read(1) != b"\0":
                _write(file, place + DESCRIPTOR_TIMES, dates)


ARCHITECTURE_AT = 45
SIF_ARCHITECTURES: dict[bytes, Architecture] = {b"02": "amd64", b"04": "arm64"}
"""Code in the header of a SIF -> architecture, from `archType` in github.com/apptainer/sif."""


def architecture_of(path: Path) -> Architecture | None:
    """Return the architecture in the header of the SIF at `path`; None if it is unsupported.

    Raises:
        BuildError: the file is not a SIF.
    """
    with path.open("rb") as file:
        start = file.read(DESCRIPTORS_AT)
    at, magic = MAGIC
    if start[at:at + len(magic)] != magic:
        raise BuildError(f"{path} is not a SIF file", code="image-invalid")
    return SIF_ARCHITECTURES.get(start[ARCHITECTURE_AT:ARCHITECTURE_AT + 2])


def make_executable(path: Path) -> None:
    """Let all users who may read the SIF at `path` execute it, as Apptainer does."""
    mode = path.stat().st_mode
    path.chmod(mode | (mode & 0o444) >> 2)


def _write(file: BinaryIO, at: int, content: bytes) -> None:
    file.seek(at)
    file.write(content)
