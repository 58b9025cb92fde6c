"""The steps from a definition to a tested image, which are the same for every container engine.

The class `Container` determines the order of the steps, and writes the records of the images. Its
subclasses implement the steps that differ between engines: how an image is built, stored and
inspected, and the command lines.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trimaran import hostfacts, locks, paths, process
from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage, Engine, Setting, commands, image_contents, store
from trimaran.engines.store import Record
from trimaran.errors import BuildError
from trimaran.images import bases, content_hash, definition, emulation
from trimaran.images.bases import Base
from trimaran.images.definition import Image
from trimaran.launch.specification import Command
from trimaran.reporting import Advance, Reporter
from trimaran.terminal_safety import visible

if TYPE_CHECKING:
    from trimaran.images.wheelhouse import Item

LOGS = "logs"
"""Folder in the cache with the whole output of builds that failed."""

UNPACKED_PER_BYTE = 4.0
"""Bytes of disk space that a build needs for each byte of its wheels and of its framework image."""


@dataclass(frozen=True)
class Job:
    """One image to build, with all its inputs.

    Attributes:
        image: the definition of the image.
        below: the framework image on which an app image is built; None for a framework image.
        under: the image on which this image is built: `below`, or a base image.
        items: the locked wheels and other files, downloaded and verified.
        content: hash of the definition (`content_hash.content_of`) at the beginning of the build,
            because the definition may be edited during the build.
        horovod: build argument HOROVOD, "yes" or "no"; None: the definition has no such argument.
        compiled: folder with the objects that the first stage compiles; None: the image has only
            one stage.
    """

    image: Image
    below: BuiltImage | None
    under: Base
    items: Sequence[Item]
    content: str
    horovod: str | None = None
    compiled: Path | None = None

    @property
    def inputs(self) -> str:
        """The hash over all inputs of the image."""
        return store.inputs_of(
            self.content, self.below.inputs if self.below else self.under.digest)

    @property
    def unpacked(self) -> int:
        """The approximate disk space in bytes that a build needs."""
        grown = sum(item.kept.stat().st_size for item in self.items)
        return int((grown + (self.below.size if self.below else 0)) * UNPACKED_PER_BYTE)


class Container(Engine):
    """The base class of all container engines.

    Attributes:
        source: file name of the rendered definition from which the engine builds.
        beneath: keyword that tells the build program where it finds the framework image of an app
            image (see `Base.bootstrap`).
        suffix: suffix of the file into which the engine pulls a base image.
        executable: path of the engine's program; its folder comes first in PATH.
    """

    container: ClassVar[bool] = True
    mounts_images: ClassVar[bool] = False
    source: ClassVar[str]
    beneath: ClassVar[str]
    suffix: ClassVar[str]
    executable: str

    # Each engine implements these methods, and the methods of `Engine` that this class lacks.

    @classmethod
    @abstractmethod
    def present(cls, records: Iterable[Record]) -> list[Record]:
        """Return those of the records whose image still exists; the image is not read."""

    @abstractmethod
    def push(
        self, built: BuiltImage, to: str, *, login: Path | None, tls: bool, reporter: Reporter
    ) -> None:
        """Push the image to the address `to`, which is `HOST/NAMESPACE/IMAGE:TAG`.

        `login` is a file with logins. `tls` is False for a registry that supports only HTTP.
        """

    @abstractmethod
    def _reference(self, name: str, inputs: str) -> str:
        """Return the reference of the image `name`: a path, or a name in the engine's storage.

        `inputs` is the hash over all inputs of the image.
        """

    @abstractmethod
    def _workplace(self, job: Job) -> AbstractContextManager[Path]:
        """Yield a folder with enough space to build in, and delete it afterwards."""

    @abstractmethod
    def _building(self, job: Job, folder: Path, wheels: Path) -> Command:
        """Return the command that builds in `folder` from the wheelhouse in `wheels`."""

    @abstractmethod
    def _built(self, job: Job, folder: Path, reporter: Reporter) -> BuiltImage:
        """Return the image that the build command made in `folder` or in the engine's storage.

        `_building` returns the build command.
        """

    @abstractmethod
    def _keep(self, made: BuiltImage, reference: str, reporter: Reporter) -> None:
        """Give the built and tested image its final path or name `reference`."""

    @abstractmethod
    def _pull(self, reference: str, architecture: Architecture, destination: Path) -> None:
        """Pull a base image for `architecture` from its registry into the file `destination`."""

    @abstractmethod
    def _self_test(self, image: Image, built: BuiltImage) -> list[str]:
        """Return a command that runs the image's self-test, isolated from the host like a run."""

    # These methods are the same for all container engines.

    @classmethod
    def fault(
        cls, record: Record, *, thorough: bool = True, advance: Advance = lambda amount: None
    ) -> str | None:
        """Return a description of the damage to the recorded image, or None if it is intact."""
        return store.damage(record, thorough=thorough, advance=advance)

    def environment(self, *, network: bool = True) -> dict[str, str]:
        """Return the environment variables for the process of the engine itself."""
        return commands.own_environment(self.executable, network=network)

    def find(
        self, image: Image, digest: str | None = None, *, thorough: bool = True
    ) -> BuiltImage | None:
        """Return the newest undamaged image of the current definition, or None.

        If `digest` is given, return an image with this digest instead, whatever its definition.
        """
        for record in self._records(image, digest):
            if self.fault(record, thorough=thorough) is None:
                return record
        return None

    def damage(self, image: Image, digest: str | None = None) -> str | None:
        """Return a description of the newest damaged image or record of `image`, or None."""
        for record in self._records(image, digest):
            if fault := self.fault(record):
                return fault
        unread = store.broken(image, self.name)
        return f"{unread[0]} is damaged" if unread else None

    def planned(self, image: Image) -> BuiltImage:
        """Return the name and reference of the image that `build` would make, without building it.

        The reference contains a hash of the inputs of the image, here without the base image,
        whose digest is not yet known.
        """
        content = content_hash.content_of(image)
        reference = self._reference(image.name, content)
        return BuiltImage(image.name, self.name, reference, None, content, 0)

    def build(
        self, image: Image, *, base: str | None, offline: bool, reporter: Reporter
    ) -> BuiltImage:
        """Return the image; build it, and its framework image, if they do not exist."""
        # A pulled image needs no framework image, and no permission to build.
        if base is None and (existing := self._intact(image, reporter)) is not None:
            return existing
        if hostfacts.root_lacks_capabilities():
            raise BuildError(
                f"this root has no CAP_SYS_RESOURCE, which {self.name} needs as root",
                code="permission-denied",
                hint="build as an ordinary user (rootless), or use ENGINE=host",
            )
        definition.require_architecture(image)
        if emulation.require_for(image):
            reporter.note(f"  building for {image.architecture} under emulation, several times"
                          " slower than on such a machine")
        below: BuiltImage | None = None
        for part in definition.chain(image):
            # With another base image, the framework image and the app image are both built.
            built = self._intact(part, reporter) if base is None else None
            below = built or self._build_one(part, below, base, offline, reporter)
        if below is None:
            raise BuildError(f"{image.name}: the list of images to build is empty",
                             code="build-failed")
        return below

    @contextmanager
    def again(self, image: Image, *, base: str | None, reporter: Reporter) -> Iterator[BuiltImage]:
        """Build `image` again, offline, and delete the second image after the `with` block."""
        emulation.require_for(image)
        below = self.find(definition.chain(image)[0]) if image.kind == "app" else None
        job = self._job(image, below, base, True, reporter)
        if job.compiled is None:
            with self._made(job, reporter) as built:
                yield built
            return
        # Compile everything again: kept objects would hide a difference.
        with (
            locks.scratch(job.compiled.parent, "again-") as fresh,
            self._made(replace(job, compiled=fresh), reporter) as built,
        ):
            yield built

    def test(self, image: Image, built: BuiltImage, reporter: Reporter) -> None:
        """Run the self-test of the image, isolated from the host like a run."""
        emulation.require_for(image)
        process.follow(
            self._self_test(image, built), f"testing {image.name}", reporter,
            env=self.environment(), what=f"the self-test of {image.name}", check=BuildError,
        )

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        """Run the Python of the image with the arguments `words`, and return what it prints."""
        if architecture := store.architecture_of(built):
            emulation.require_processor(architecture)
        command = self.python(built, words, Setting())
        result = process.run(command.argv, env=command.env)
        if result.returncode != 0:  # an error of `run` would quote all `words`
            tail = "\n".join(result.stderr.splitlines()[-10:])
            raise BuildError(
                f"{built.reference}: its Python failed ({result.returncode}):\n{tail}",
                code="program-failed",
            )
        return result.stdout

    def _records(self, image: Image, digest: str | None = None) -> Iterable[Record]:
        return store.records(image, self.name, digest)

    def _intact(self, image: Image, reporter: Reporter) -> BuiltImage | None:
        """Return the newest undamaged image, or None.

        Damaged images that are newer than this image, and unreadable records, are renamed.
        """
        store.move_broken(image, self.name, reporter)
        for record in self._records(image):
            with reporter.bar(f"verifying {image.name}", record.size, unit="B") as advance:
                fault = self.fault(record, advance=advance)
            if fault is None:
                return record
            store.move_damaged(record, fault, reporter)
        return None

    def _job(
        self, image: Image, below: BuiltImage | None, given: str | None, offline: bool,
        reporter: Reporter,
    ) -> Job:
        """Return all inputs for building `image`.

        `below` is the framework image on which an app image is built. `given` is the value of
        `--base`.
        """
        # Slow to import; most runs build nothing.
        from trimaran.images import compiled, render, wheelhouse

        render.check(image)
        content = content_hash.content_of(image)
        items = wheelhouse.fetch(image, offline=offline, reporter=reporter)
        under = self._base(image, below, given, offline, reporter)
        return Job(
            image, below, under, items, content, self._horovod(image, below),
            compiled.folder(image, under.digest) if image.build is not None else None,
        )

    def _horovod(self, image: Image, below: BuiltImage | None) -> str | None:
        """Return the value of the build argument HOROVOD; None for images that always have Horovod.

        An app image has the value with which its framework image was built.
        """
        if not definition.can_lack_horovod(image):
            return None
        if below is None:
            return "yes"
        return self.described(below).labels.get(definition.HOROVOD_LABEL, "yes")

    def _base(
        self, image: Image, below: BuiltImage | None, given: str | None, offline: bool,
        reporter: Reporter,
    ) -> Base:
        if below is not None:
            return Base(self.beneath, below.reference, below.name, str(below.digest))
        if image.base is None:
            raise BuildError(f"{image.name}: image.yaml names no base image", code="build-failed")
        return bases.resolve(image.base, image.architecture, given=given, offline=offline,
                             pull=self._pull, suffix=self.suffix, reporter=reporter)

    def _build_one(
        self, image: Image, below: BuiltImage | None, given: str | None, offline: bool,
        reporter: Reporter,
    ) -> BuiltImage:
        """Build one image, test it, give it its final name, and record it."""
        job = self._job(image, below, given, offline, reporter)
        reference = self._reference(image.name, job.inputs)
        with locks.making(Path(reference), reporter), _objects_of(job, reporter):
            for record in self._records(image):  # another process may have built it
                if record.inputs == job.inputs and self.fault(record) is None:
                    return record
            with self._made(job, reporter) as made:
                self.test(image, made, reporter)
                with reporter.bar(f"inventory of {image.name}", None):
                    image_contents.record(self, made)
                self._keep(made, reference, reporter)
            record = Record(
                name=image.name, engine=self.name, reference=reference, digest=str(made.digest),
                content=job.content, inputs=job.inputs, built=commands.created(),
                base_name=job.under.name, base_digest=job.under.digest, size=made.size,
                architecture=image.architecture,
            )
            store.save(record)
        return record

    @contextmanager
    def _made(self, job: Job, reporter: Reporter) -> Iterator[BuiltImage]:
        """Build an image and yield it; delete it afterwards, unless `_keep` has moved it.

        An image of AMD on which Horovod cannot be compiled is built without Horovod.
        """
        with ExitStack() as stack:
            folder = stack.enter_context(self._workplace(job))
            try:
                self._run_build(job, folder, reporter)
            except BuildError as error:
                _check_report(job, error, reporter)
                stack.close()
                job = replace(job, horovod="no")
                folder = stack.enter_context(self._workplace(job))
                self._run_build(job, folder, reporter)
            yield self._built(job, folder, reporter)

    def _run_build(self, job: Job, folder: Path, reporter: Reporter) -> None:
        from trimaran.images import compiled, wheelhouse

        commands.lay_out(job.image, self.source, folder)
        with ExitStack() as stack:
            wheels = stack.enter_context(wheelhouse.view(job.image, job.items))
            if job.compiled is not None:
                compiled.prepare(job.compiled)
            command, title = self._building(job, folder, wheels), f"building {job.image.name}"
            log = paths.cache(LOGS, f"{self.name}-{job.image.name}-{job.inputs[:12]}.log")
            process.follow(command.argv, title, reporter, env=command.env, cwd=folder, log=log,
                           what=title, check=BuildError, hint=f"the whole output is in {log}")


@contextmanager
def _objects_of(job: Job, reporter: Reporter) -> Iterator[None]:
    """Hold the lock of the folder of compiled objects, if the image has one."""
    with nullcontext() if job.compiled is None else locks.making(job.compiled, reporter):
        yield


def _check_report(job: Job, error: BuildError, reporter: Reporter) -> None:
    """Handle the failure `error` of a build stage by the report that the stage has written.

    If only Horovod cannot be compiled, warn that the image is built without it, with the reasons.

    Raises:
        BuildError: the report states that the base image is not supported. Without a report,
            `error` itself is raised.
    """
    from trimaran.images import compiled

    found = compiled.report(job.compiled) if job.compiled and job.horovod == "yes" else None
    if found is None:
        raise error
    faults = "".join(f"\n  {visible(fault)}" for fault in found.faults)
    if found.stage == "base":
        raise BuildError(
            f"{job.image.name} cannot be built on {job.under.name}:{faults}",
            code="base-unsupported", hint="use the base image that image.yaml names",
        ) from error
    reporter.warn(f"{job.image.name} is built without Horovod; recipes that use it will be refused:"
                  f"{faults}")


class Storage(Container):
    """An engine that keeps OCI images in its own storage, which guarantees their content."""

    form = "oci"
    beneath = "storage"
    suffix = ".oci.tar"

    @classmethod
    def fault(
        cls, record: Record, *, thorough: bool = True, advance: Advance = lambda amount: None
    ) -> str | None:
        """Return None: the storage guarantees the content of its images."""
        return None

    @abstractmethod
    def remove(self, record: Record) -> None:
        """Remove the image of `record` from the storage.

        Raises:
            BuildError: a container uses the image.
        """

    @abstractmethod
    def pull(
        self, source: str, image: Image, digest: str, *, login: Path | None, tls: bool,
        reporter: Reporter,
    ) -> tuple[str, int]:
        """Pull an image; return its name in the storage and its size in bytes.

        `source` is `HOST/NAMESPACE/IMAGE@DIGEST` with the digest of the manifest, and `digest` is
        the expected digest of the image.

        Raises:
            BuildError: the pulled image has a digest other than `digest`.
        """
