"""The way from a definition to a tested image in a container: the same for every such engine.

A class below `Container` gives the steps that differ: how its form of image is made, kept and
looked at, and the words of its commands. The order of the steps and the records are here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trimaran import hostfacts, locks, process
from trimaran.engines import BuiltImage, Engine, Setting, commands, image_contents, store
from trimaran.engines.store import Record
from trimaran.errors import BuildError
from trimaran.images import bases, definition, identity
from trimaran.images.bases import Base
from trimaran.images.definition import Image
from trimaran.launch.specification import Command
from trimaran.reporting import Advance, Reporter

if TYPE_CHECKING:
    from trimaran.images.wheels import Item

UNPACKED_PER_BYTE = 4.0
"""Space that a build takes, per byte of its wheelhouse or of the image below."""


@dataclass(frozen=True)
class Job:
    """One image to build, with all that goes into it.

    Attributes:
        below: the framework image that an app image stands on.
        under: what is built on: the image below, or a base.
        items: the locked files of the wheelhouse, all here and verified.
        content: of the definition when the build began; it may be edited meanwhile.
    """

    image: Image
    below: BuiltImage | None
    under: Base
    items: Sequence[Item]
    content: str

    @property
    def inputs(self) -> str:
        """The hash over everything that decides what the image becomes."""
        return store.inputs_of(self.content, self.under, self.below)

    @property
    def unpacked(self) -> int:
        """Bytes that a build takes, about."""
        grown = sum(item.kept.stat().st_size for item in self.items)
        return int((grown + (self.below.size if self.below else 0)) * UNPACKED_PER_BYTE)


class Container(Engine):
    """An engine of containers: what is the same for all of them.

    Attributes:
        source: the rendered definition that it builds from.
        beneath: what `Base.bootstrap` calls an image of this engine.
        suffix: of the file into which it pulls a base.
        executable: what it runs; its folder comes first in PATH.
    """

    container: ClassVar[bool] = True
    mounts_images: ClassVar[bool] = False
    source: ClassVar[str]
    beneath: ClassVar[str]
    suffix: ClassVar[str]
    executable: str

    # What each engine gives, beside its commands and its own condition (see `Engine`).

    @classmethod
    @abstractmethod
    def present(cls, records: Iterable[Record]) -> list[Record]:
        """Return those whose image still is where it was, told without reading it."""

    @abstractmethod
    def push(
        self, built: BuiltImage, to: str, *, login: Path | None, tls: bool, reporter: Reporter
    ) -> None:
        """Send the image to `HOST/NAMESPACE/IMAGE:TAG`, with the logins in the file `login`."""

    @abstractmethod
    def _reference(self, name: str, inputs: str) -> str:
        """Return where the image called `name` is kept: a file, or its name in the storage."""

    @abstractmethod
    def _workplace(self, job: Job) -> AbstractContextManager[Path]:
        """Yield a folder to build in, where there is space; it is gone afterwards."""

    @abstractmethod
    def _building(self, job: Job, folder: Path, wheels: Path) -> Command:
        """Return the command that builds in `folder`, with the wheelhouse laid out in `wheels`."""

    @abstractmethod
    def _built(self, job: Job, folder: Path, reporter: Reporter) -> BuiltImage:
        """Return what that command has built in `folder`, or put aside in the storage."""

    @abstractmethod
    def _keep(self, made: BuiltImage, reference: str, reporter: Reporter) -> None:
        """Put what was built and tested where `reference` says."""

    @abstractmethod
    def _pull(self, reference: str, destination: Path) -> None:
        """Pull a base from its registry into a file."""

    @abstractmethod
    def _self_test(self, image: Image, built: BuiltImage) -> list[str]:
        """Return the words that run the image's self-test, isolated as a run is."""

    # What is the same for all.

    @classmethod
    def fault(
        cls, record: Record, *, thorough: bool = True, advance: Advance = lambda amount: None
    ) -> str | None:
        """Return what is wrong with the image of `record`, or None; see `store.damage`."""
        return store.damage(record, thorough=thorough, advance=advance)

    def environment(self, *, network: bool = True) -> dict[str, str]:
        """Return the variables of its own process."""
        return commands.own_environment(self.executable, network=network)

    def find(
        self, image: Image, digest: str | None = None, *, thorough: bool = True
    ) -> BuiltImage | None:
        """Return the newest image of the current definition, or the one with `digest`, or None.

        It is as it was recorded.
        """
        for record in self._records(image, digest):
            if self.fault(record, thorough=thorough) is None:
                return record
        return None

    def damage(self, image: Image, digest: str | None = None) -> str | None:
        """Return what is wrong with the newest image, or with its record; None: nothing is here."""
        for record in self._records(image, digest):
            if fault := self.fault(record):
                return fault
        unread = store.broken(image, self.name)
        return f"{unread[0]} is damaged" if unread else None

    def planned(self, image: Image) -> BuiltImage:
        """Return what `build` would make, as far as it is known before the base is."""
        content = identity.content_of(image)
        reference = self._reference(image.name, content)
        return BuiltImage(image.name, self.name, reference, None, content, 0)

    def build(
        self, image: Image, *, base: str | None, offline: bool, reporter: Reporter
    ) -> BuiltImage:
        """Build `image`, and the framework image below it, unless they are there already."""
        # An image from elsewhere needs no framework image, and who cannot build may have it.
        if base is None and (there := self._intact(image, reporter)) is not None:
            return there
        if hostfacts.root_lacks_capabilities():
            raise BuildError(
                f"this root has no CAP_SYS_RESOURCE, which {self.name} needs as root",
                hint="build as an ordinary user (rootless), or use ENGINE=host",
            )
        below: BuiltImage | None = None
        for part in definition.chain(image):
            # A given base counts for the framework image; what stands on it follows.
            built = self._intact(part, reporter) if base is None else None
            below = built or self._build_one(part, below, base, offline, reporter)
        if below is None:
            raise BuildError(f"{image.name} has no images to build")
        return below

    @contextmanager
    def again(self, image: Image, *, base: str | None, reporter: Reporter) -> Iterator[BuiltImage]:
        """Build `image` once more, offline and aside; what was made is gone after the `with`."""
        below = self.find(definition.chain(image)[0]) if image.kind == "app" else None
        with self._made(self._job(image, below, base, True, reporter), reporter) as built:
            yield built

    def test(self, image: Image, built: BuiltImage, reporter: Reporter) -> None:
        """Run the image's self-test, isolated as a run is."""
        process.follow(
            self._self_test(image, built), f"testing {image.name}", reporter,
            env=self.environment(), what=f"the self-test of {image.name}", check=BuildError,
        )

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        """Run the image's own Python with `words`, isolated as a run is; return what it prints."""
        command = self.python(built, words, Setting())
        result = process.run(command.argv, env=command.env)
        if result.returncode != 0:  # no `check`: it would repeat `words`, maybe a whole script
            tail = "\n".join(result.stderr.splitlines()[-10:])
            raise BuildError(f"{built.reference}: its Python failed ({result.returncode}):\n{tail}")
        return result.stdout

    def _records(self, image: Image, digest: str | None = None) -> Iterable[Record]:
        return store.records(image, self.name, digest)

    def _intact(self, image: Image, reporter: Reporter) -> BuiltImage | None:
        """Return what `find` does, after setting aside what is damaged."""
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
        """Gather what goes into `image`."""
        from trimaran.images import render, wheelhouse  # slow to import, and a run builds seldom

        render.check(image)
        content = identity.content_of(image)
        items = wheelhouse.fetch(image, offline=offline, reporter=reporter)
        return Job(image, below, self._base(image, below, given, offline, reporter), items, content)

    def _base(
        self, image: Image, below: BuiltImage | None, given: str | None, offline: bool,
        reporter: Reporter,
    ) -> Base:
        if below is not None:
            return Base(self.beneath, below.reference, below.name, str(below.digest))
        if image.base is None:
            raise BuildError(f"{image.name} has no base image")
        return bases.resolve(image.base, given=given, offline=offline, pull=self._pull,
                             suffix=self.suffix, reporter=reporter)

    def _build_one(
        self, image: Image, below: BuiltImage | None, given: str | None, offline: bool,
        reporter: Reporter,
    ) -> BuiltImage:
        """Make one image, test it, put it where it belongs, and record it."""
        job = self._job(image, below, given, offline, reporter)
        reference = self._reference(image.name, job.inputs)
        with locks.making(Path(reference), reporter):
            for record in self._records(image):  # another process may have made it
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
            )
            store.save(record)
        return record

    @contextmanager
    def _made(self, job: Job, reporter: Reporter) -> Iterator[BuiltImage]:
        """Yield a new image, aside; gone afterwards, unless it was kept."""
        from trimaran.images import wheelhouse

        with self._workplace(job) as folder:
            commands.lay_out(job.image, self.source, folder)
            with wheelhouse.view(job.image, job.items) as wheels:
                command, title = self._building(job, folder, wheels), f"building {job.image.name}"
                process.follow(command.argv, title, reporter, env=command.env, cwd=folder,
                               what=title, check=BuildError)
            yield self._built(job, folder, reporter)


class Storage(Container):
    """An engine that keeps OCI images in a storage of its own, which guards what is in it."""

    form = "oci"
    beneath = "storage"
    suffix = ".oci.tar"

    @classmethod
    def fault(
        cls, record: Record, *, thorough: bool = True, advance: Advance = lambda amount: None
    ) -> str | None:
        """Return None: what the storage still has is as it was."""
        return None

    @abstractmethod
    def remove(self, record: Record) -> None:
        """Remove the image of `record`, if it still is that one; BuildError: it is in use."""

    @abstractmethod
    def pull(
        self, source: str, image: Image, digest: str, *, login: Path | None, tls: bool,
        reporter: Reporter,
    ) -> tuple[str, int]:
        """Bring `HOST/NAMESPACE/IMAGE@DIGEST`; return its name in the storage and its bytes.

        Raises:
            BuildError: what came is not the image with `digest`.
        """
