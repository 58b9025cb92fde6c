"""OCI images: buildah builds them from the same definition, podman runs them."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from trimaran import paths, process
from trimaran.engines import Bind, BuiltImage, Command, Description, gpu, inventory, store
from trimaran.engines.apptainer import UNPACKED_PER_BYTE, root_lacks_capabilities
from trimaran.errors import BuildError
from trimaran.images import base as bases
from trimaran.images import definition, render, stages, wheelhouse
from trimaran.images.base import Base
from trimaran.images.definition import Image
from trimaran.images.parts import VENV
from trimaran.parsing import parse_json
from trimaran.reporting import Reporter

# vfs needs neither FUSE nor kernel support; chroot isolation needs no privilege beyond
# the user namespace. Both are slower than overlay and runc, and work everywhere.
STORAGE = ("--storage-driver", "vfs")
ISOLATION = ("--isolation", "chroot")


class Podman:
    """Builds with buildah; finds, tests and runs with podman, in one storage."""

    name = "podman"
    container = True

    def __init__(self) -> None:
        for program in ("buildah", "podman"):
            if shutil.which(program) is None:
                raise BuildError(
                    f"{program} is not installed", hint="apt-get install buildah podman"
                )

    def find(self, image: Image, digest: str | None = None) -> BuiltImage | None:
        """Return the newest image of the current definition, or the one with `digest`, or None.

        The storage holds it.
        """
        for record in store.records(image, self.name, digest):
            if self._id(record.reference) == record.digest:
                return record.built_image
        return None

    def damage(self, image: Image, digest: str | None = None) -> str | None:
        """Return which record cannot be read; Podman guards its own storage."""
        unread = store.broken(image, self.name)
        return f"{unread[0]} is damaged" if unread else None

    def planned(self, image: Image) -> BuiltImage:
        """Return what `build` would make, as far as it is known before the base is."""
        content = definition.content(image)
        return BuiltImage(image.name, self.name, _tag(image.name, content), None, content, 0)

    def build(
        self, image: Image, *, base: str | None, offline: bool, reporter: Reporter
    ) -> BuiltImage:
        """Build `image`, and the framework image below it, unless they are there already."""
        store.move_broken(image, self.name, reporter)
        if base is None and (there := self.find(image)) is not None:
            return there
        if root_lacks_capabilities():
            raise BuildError(
                "this root has no CAP_SYS_RESOURCE: buildah could build, podman could not run",
                hint="build as an ordinary user (rootless), or use ENGINE=host",
            )
        below: BuiltImage | None = None
        for part in definition.chain(image):
            built = self.find(part) if base is None else None
            below = built or self._build_one(part, below, base, offline, reporter)
        if below is None:
            raise BuildError(f"{image.name} has no images to build")
        return below

    def _build_one(
        self,
        image: Image,
        below: BuiltImage | None,
        given: str | None,
        offline: bool,
        reporter: Reporter,
    ) -> BuiltImage:
        render.check(image)
        content = definition.content(image)  # now: a definition may be edited while it is built
        items = wheelhouse.fetch(image, offline=offline, reporter=reporter)
        under = self._base(image, below, given, offline, reporter)
        inputs = store.inputs_of(content, under, below)
        tag = _tag(image.name, inputs)
        built = self._made(image, below, under, items, tag, inputs, reporter)
        self.test(built, reporter)
        with reporter.bar(f"inventory of {image.name}", None):
            inventory.record(self, built)
        paths.cache("images").mkdir(parents=True, exist_ok=True)
        store.save(store.Record(
            name=image.name, engine=self.name, reference=tag, digest=str(built.digest),
            content=content, inputs=inputs, built=store.created(),
            base_name=under.name, base_digest=under.digest, size=built.size,
        ))
        return built

    @contextmanager
    def again(
        self, image: Image, *, base: str | None, reporter: Reporter
    ) -> Iterator[BuiltImage]:
        """Build `image` once more, offline and aside; what was made is gone after the `with`."""
        render.check(image)
        below = self.find(definition.chain(image)[0]) if image.kind == "app" else None
        items = wheelhouse.fetch(image, offline=True, reporter=reporter)
        under = self._base(image, below, base, True, reporter)
        inputs = store.inputs_of(definition.content(image), under, below)
        tag = _tag(f"again/{image.name}", inputs)
        try:
            yield self._made(image, below, under, items, tag, inputs, reporter)
        finally:
            process.run(["buildah", *STORAGE, "rmi", tag], env=_environment())

    def _base(
        self,
        image: Image,
        below: BuiltImage | None,
        given: str | None,
        offline: bool,
        reporter: Reporter,
    ) -> Base:
        if below is not None:
            return Base("storage", below.reference, below.name, str(below.digest))
        if image.base is None:
            raise BuildError(f"{image.name} has no base image")
        under = bases.resolve(image.base, given=given, offline=offline, pull=self._pull,
                              suffix=".oci.tar", reporter=reporter)
        if under.bootstrap == "localimage":
            raise BuildError(f"buildah cannot build on {under.reference}",
                             hint="give --base an image archive or a reference instead of a SIF")
        return under

    def _made(
        self,
        image: Image,
        below: BuiltImage | None,
        under: Base,
        items: Sequence[wheelhouse.Item],
        tag: str,
        inputs: str,
        reporter: Reporter,
    ) -> BuiltImage:
        """Build the image into the storage, under `tag`."""
        grown = sum(item.kept.stat().st_size for item in items) + (below.size if below else 0)
        # vfs keeps a whole copy of the layer below for each new one.
        store.check_space(self._root(), int(2 * grown * UNPACKED_PER_BYTE), "building the image")
        begun = time.monotonic()
        self._make(image, under, items, tag, reporter)
        digest = self._id(tag)
        if digest is None:
            raise BuildError(f"buildah left no image {tag}")
        reporter.note(f"  {image.name}: built in {time.monotonic() - begun:.1f} s")
        return BuiltImage(image.name, self.name, tag, digest, inputs, self._size(tag))

    def _make(
        self,
        image: Image,
        under: Base,
        items: Sequence[wheelhouse.Item],
        tag: str,
        reporter: Reporter,
    ) -> None:
        transport = {"docker-archive": "docker-archive:", "oci-archive": "oci-archive:"}
        reference = transport.get(under.bootstrap, "") + under.reference
        options = ["--tag", tag, "--layers=false", "--format", "oci",
                   "--pull-never" if under.bootstrap == "storage" else "--pull"]
        arguments = {"BASE": reference, **store.label_arguments(under)}
        for key, value in arguments.items():
            options += ["--build-arg", f"{key}={value}"]
        if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
            options += ["--timestamp", epoch]
        output: list[str] = []

        def keep(line: str) -> None:
            output.append(line)
            reporter.detail(line)

        with (
            wheelhouse.view(image, items) as folder,
            tempfile.TemporaryDirectory(prefix="trimaran-context-") as context,
        ):
            store.lay_out(image, "Dockerfile", Path(context))
            status = process.stream(
                ["buildah", *STORAGE, "build", *ISOLATION, *options,
                 "--volume", f"{folder}:{stages.WHEELHOUSE}:ro", context],
                f"building {image.name}", reporter, env=_environment(), on_line=keep,
            )
        if status != 0:
            tail = "\n".join(output[-20:])
            raise BuildError(f"building {image.name} failed with status {status}:\n{tail}")

    def _pull(self, reference: str, destination: Path) -> None:
        env = _environment()
        process.run(["buildah", *STORAGE, "pull", reference], env=env, check=BuildError)
        process.run(["buildah", *STORAGE, "push", reference, f"oci-archive:{destination}"],
                    env=env, check=BuildError)

    def test(self, built: BuiltImage, reporter: Reporter) -> None:
        """Run the image's self-test, isolated as a run is."""
        image = definition.load(built.name) if built.name in definition.names() else None
        words = definition.self_test(image) if image else [f"{VENV}/libexec/selftest.py"]
        with reporter.bar(f"testing {built.name}", None):
            result = process.run(
                [*self._run("/"), *gpu.podman_options(built.name), "--entrypoint",
                 f"{VENV}/bin/python", built.reference, *words],
                env=_environment(),
            )
        if result.returncode != 0:
            tail = "\n".join((result.stdout + result.stderr).splitlines()[-20:])
            raise BuildError(
                f"the self-test of {built.name} failed (status {result.returncode}):\n{tail}"
            )

    def python(
        self,
        built: BuiltImage,
        words: Sequence[str],
        *,
        binds: Sequence[Bind] = (),
        env: Mapping[str, str] | None = None,
        network: bool = False,
    ) -> Command:
        """Return the command that runs the image's own Python, isolated as a run is."""
        argv = [*self._run("/", network="host" if network else "none"), *_shown(binds, env or {}),
                "--entrypoint", f"{VENV}/bin/python", built.reference, *words]
        return Command(tuple(argv), store.engine_environment("/usr/bin/podman", network=network))

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        """Run the image's own Python with `words`, isolated as a run is; return what it prints."""
        command = self.python(built, words)
        return store.printed(built, process.run(command.argv, env=command.env))

    def described(self, built: BuiltImage) -> Description:
        """Return the image's labels and entry point."""
        result = process.run(
            ["podman", *STORAGE, "image", "inspect", built.reference],
            env=_environment(), check=BuildError,
        )
        config = parse_json(result.stdout)[0]["Config"]
        return Description(config.get("Labels") or {}, shlex.join(config.get("Entrypoint") or []))

    def command(
        self,
        built: BuiltImage,
        args: Sequence[str],
        *,
        binds: Sequence[Bind],
        env: Mapping[str, str],
        workdir: str,
        launcher: Sequence[str] = (),
    ) -> Command:
        """Return the exact command that runs the image's entry point with `args`."""
        argv = [*self._run(workdir), *gpu.podman_options(built.name), *_shown(binds, env)]
        env = store.engine_environment("/usr/bin/podman", network=False)
        words = store.launched(built, launcher)
        if words:
            argv += ["--entrypoint", words.pop(0)]
        return Command((*argv, built.reference, *words, *args), env)

    def remove(self, reference: str, digest: str) -> None:
        """Remove the image from the storage, if that still has it under this reference.

        Raises:
            BuildError: it is in use.
        """
        if self._id(reference) == digest:
            process.run(["podman", *STORAGE, "rmi", reference], env=_environment(),
                        check=BuildError)

    def _run(self, workdir: str, network: str = "none") -> list[str]:
        return [
            "podman", *STORAGE, *_runtime(), "run", "--rm", f"--network={network}",
            "--read-only",  # /out is the only writable place; /tmp is in memory
            f"--workdir={workdir}",
        ]

    def _id(self, tag: str) -> str | None:
        result = process.run(
            ["buildah", *STORAGE, "images", "--json", "--no-trunc", tag], env=_environment()
        )
        if result.returncode != 0:
            return None
        found = parse_json(result.stdout or "[]")
        return f"sha256:{found[0]['id'].removeprefix('sha256:')}" if found else None

    def _size(self, tag: str) -> int:
        result = process.run(
            ["podman", *STORAGE, "image", "inspect", "--format", "{{.Size}}", tag],
            env=_environment(), check=BuildError,
        )
        return int(result.stdout)

    def _root(self) -> Path:
        info = process.run(["buildah", *STORAGE, "info"], env=_environment(), check=BuildError)
        place = Path(parse_json(info.stdout)["store"]["GraphRoot"])
        return place if place.is_dir() else Path(tempfile.gettempdir())


def _runtime() -> list[str]:
    # Where cgroups are not version 2 alone, crun refuses to run as a user; runc does not.
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    return ["--runtime=runc"] if not unified and shutil.which("runc") else []


def _shown(binds: Sequence[Bind], env: Mapping[str, str]) -> list[str]:
    """Return the options for what is shown in the container and set in its environment."""
    words = []
    for bind in binds:
        words += ["--volume", f"{bind.source}:{bind.target}:{'rw' if bind.writable else 'ro'}"]
    for key, value in env.items():
        words += ["--env", f"{key}={value}"]
    return words


def _tag(name: str, inputs: str) -> str:
    return f"localhost/trimaran/{name}:{inputs[:12]}"


def _environment() -> dict[str, str]:
    return store.engine_environment("/usr/bin/podman")
