"""Apptainer: builds SIF files without root and runs them isolated from the host."""

from __future__ import annotations

import csv
import io
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trimaran import locks, paths, process
from trimaran.engines import Bind, BuiltImage, Command, Description, gpu, inventory, sif, store
from trimaran.engines.workplace import workplace
from trimaran.errors import BuildError
from trimaran.files import set_aside, sha256
from trimaran.images import base as bases
from trimaran.images import definition, render, stages, wheelhouse
from trimaran.images.base import Base
from trimaran.images.definition import Image
from trimaran.images.parts import VENV
from trimaran.parsing import parse_json
from trimaran.reporting import Reporter

CAP_SYS_RESOURCE = 24
"""Number of the capability that Apptainer asks for as root, and that containers often lack."""

USERNS = "--userns"
"""Apptainer's option to run in a user namespace even where it could do without."""

SQUASHFS = "-comp gzip -Xcompression-level 1"
"""gzip, for every kernel can mount it; the default level 9 takes minutes for a few per cent."""

UNPACKED_PER_BYTE = 4.0
"""Space that a build takes in TMPDIR, per byte of its wheelhouse or of the SIF below."""


def program() -> str | None:
    """Return the path of Apptainer: from PATH, else the one that `make apptainer` assembled."""
    own = paths.cache("apptainer", "current", "usr", "bin", "apptainer")
    return shutil.which("apptainer") or (str(own) if own.is_file() else None)


def root_lacks_capabilities() -> bool:
    """Whether this is root in a container that withholds what Apptainer wants of root."""
    if os.geteuid() != 0:
        return False
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("CapEff:"):
            return not int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1
    return False


class Apptainer:
    """Builds, finds, tests and runs SIF files."""

    name = "apptainer"
    container = True

    def __init__(self, executable: str | None = None) -> None:
        found = executable or program()
        if found is None:
            raise BuildError(
                "Apptainer is not installed",
                hint="`make apptainer` assembles it without root on Debian-family hosts",
            )
        self.executable = found

    def find(self, image: Image, digest: str | None = None) -> BuiltImage | None:
        """Return the newest SIF of the current definition, or the one with `digest`, or None.

        Its bytes are as they were recorded.
        """
        for record in store.records(image, self.name, digest):
            if store.damage(record) is None:
                return record.built_image
        return None

    def damage(self, image: Image, digest: str | None = None) -> str | None:
        """Return what is wrong with the newest SIF, or with its record; None: nothing is here."""
        for record in store.records(image, self.name, digest):
            if fault := store.damage(record):
                return fault
        unread = store.broken(image, self.name)
        return f"{unread[0]} is damaged" if unread else None

    def _intact(self, image: Image, reporter: Reporter) -> BuiltImage | None:
        """Return what `find` does, after setting aside what is damaged."""
        store.move_broken(image, self.name, reporter)
        for record in store.records(image, self.name):
            with reporter.bar(f"verifying {image.name}", record.size, unit="B") as advance:
                fault = store.damage(record, advance=advance)
            if fault is None:
                return record.built_image
            store.move_damaged(record, fault, reporter)
        return None

    def planned(self, image: Image) -> BuiltImage:
        """Return what `build` would make, as far as it is known before the base is."""
        content = definition.content(image)
        path = paths.cache("images", f"{image.name}-{content[:12]}.sif")
        return BuiltImage(image.name, self.name, str(path), None, content, 0)

    def build(
        self, image: Image, *, base: str | None, offline: bool, reporter: Reporter
    ) -> BuiltImage:
        """Build `image`, and the framework image below it, unless they are there already."""
        # An image from elsewhere needs no framework image, and who cannot build may have it.
        if base is None and (there := self._intact(image, reporter)) is not None:
            return there
        if root_lacks_capabilities():
            raise BuildError(
                "this root has no CAP_SYS_RESOURCE, which Apptainer needs to build as root",
                hint="build as an ordinary user, or use ENGINE=host",
            )
        below: BuiltImage | None = None
        for part in definition.chain(image):
            # A given base counts for the framework image; what stands on it follows.
            built = self._intact(part, reporter) if base is None else None
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
        target = paths.cache("images", f"{image.name}-{inputs[:12]}.sif")
        with locks.making(target, reporter):
            for record in store.records(image, self.name):  # another process may have made it
                if record.inputs == inputs and store.damage(record) is None:
                    return record.built_image
            return self._tested(image, below, under, items, (content, inputs), target, reporter)

    def _tested(
        self,
        image: Image,
        below: BuiltImage | None,
        under: Base,
        items: Sequence[wheelhouse.Item],
        hashes: tuple[str, str],
        target: Path,
        reporter: Reporter,
    ) -> BuiltImage:
        """Make a SIF, test it, and put it at `target` with its record."""
        content, inputs = hashes
        with self._made(image, below, under, items, inputs, reporter) as built:
            self.test(built, reporter)
            with reporter.bar(f"inventory of {image.name}", None):
                inventory.record(self, built)
            if os.path.lexists(target):
                reporter.warn(f"{target} has no record; set aside as {set_aside(target).name}")
            Path(built.reference).rename(target)
        store.save(store.Record(
            name=image.name, engine=self.name, reference=str(target), digest=str(built.digest),
            content=content, inputs=inputs, built=store.created(),
            base_name=under.name, base_digest=under.digest, size=built.size,
        ))
        return replace(built, reference=str(target))

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
        with self._made(image, below, under, items, inputs, reporter) as built:
            yield built

    @contextmanager
    def _made(
        self,
        image: Image,
        below: BuiltImage | None,
        under: Base,
        items: Sequence[wheelhouse.Item],
        inputs: str,
        reporter: Reporter,
    ) -> Iterator[BuiltImage]:
        """Yield a new SIF, in a workplace that is gone afterwards."""
        grown = sum(item.kept.stat().st_size for item in items) + (below.size if below else 0)
        with workplace(int(grown * UNPACKED_PER_BYTE)) as place:
            made = self._make(image, under, items, place, reporter)
            if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
                sif.freeze(made, int(epoch))
            size = made.stat().st_size
            with reporter.bar(f"hashing {image.name}", size, unit="B") as advance:
                digest = sha256(made, advance)
            yield BuiltImage(image.name, self.name, str(made), f"sha256:{digest}", inputs, size)

    def _base(
        self,
        image: Image,
        below: BuiltImage | None,
        given: str | None,
        offline: bool,
        reporter: Reporter,
    ) -> Base:
        if below is not None:
            return Base("localimage", below.reference, below.name, str(below.digest))
        if image.base is None:
            raise BuildError(f"{image.name} has no base image")
        return bases.resolve(image.base, given=given, offline=offline, pull=self._pull,
                             suffix=".sif", reporter=reporter)

    def _pull(self, reference: str, destination: Path) -> None:
        process.run(
            [self.executable, "pull", str(destination), f"docker://{reference}"],
            env=store.engine_environment(self.executable), check=BuildError,
        )

    def _make(
        self,
        image: Image,
        under: Base,
        items: Sequence[wheelhouse.Item],
        place: Path,
        reporter: Reporter,
    ) -> Path:
        """Run the build in `place` and return the new SIF there."""
        store.lay_out(image, "image.def", place)
        reference = under.reference
        if under.bootstrap != "docker":
            # By a link in the working directory: labels would keep a path of this machine.
            link = place / f"base{Path(reference).suffix}"
            link.symlink_to(reference)
            reference = link.name
        arguments = {"BOOTSTRAP": under.bootstrap, "BASE": reference,
                     **store.label_arguments(under)}
        env = store.engine_environment(str(place / "bin" / "singularity"), self.executable)
        env["APPTAINER_TMPDIR"] = str(place / "tmp")
        # Of its own: two builds at once read what the other one has half written there.
        env["APPTAINER_CACHEDIR"] = str(place / "tmp" / "cache")
        (place / "bin").mkdir()
        (place / "bin/singularity").symlink_to(self.executable)  # the name that spython calls
        with wheelhouse.view(image, items) as folder:
            options = [
                "--notest",  # the finished SIF is tested instead, as it will be run
                "--force",  # else labels and help of the image below stay
                "--mksquashfs-args", SQUASHFS,
                "--bind", f"{folder}:{stages.WHEELHOUSE}:ro",
            ]
            # In a file: `--build-arg` splits its value at commas.
            lines = [f"{key}={value}\n" for key, value in arguments.items()]
            (place / "arguments").write_text("".join(lines), encoding="utf-8")
            options += ["--build-arg-file", "arguments"]
            status = process.stream(
                [sys.executable, "-m", "trimaran.engines.spython_build", "image.sif",
                 "image.def", *options],
                f"building {image.name}", reporter, env=env, cwd=place, log=place / "build.log",
            )
        made = place / "image.sif"
        if status != 0 or not made.is_file():
            tail = (place / "build.log").read_text(encoding="utf-8").splitlines()[-20:]
            raise BuildError(
                f"building {image.name} failed with status {status}:\n" + "\n".join(tail)
            )
        return made

    def test(self, built: BuiltImage, reporter: Reporter) -> None:
        """Run the SIF's own `%test`, isolated as a run is."""
        output: list[str] = []

        def keep(line: str) -> None:
            output.append(line)
            reporter.detail(line)

        status = process.stream(
            [self.executable, "--quiet", "test", *self._isolation(),
             *gpu.apptainer_options(built.name), "--pwd", "/", built.reference],
            f"testing {built.name}", reporter,
            env=store.engine_environment(self.executable), on_line=keep,
        )
        if status != 0:
            tail = "\n".join(output[-20:])
            raise BuildError(f"the self-test of {built.name} failed (status {status}):\n{tail}")

    def python(
        self,
        built: BuiltImage,
        words: Sequence[str],
        *,
        binds: Sequence[Bind] = (),
        env: Mapping[str, str] | None = None,
        network: bool = False,
    ) -> Command:
        """Return the command that runs the image's own Python, isolated as a run is.

        Apptainer shares the host's network; `network` adds what reaches it through a proxy.
        """
        argv = [self.executable, "--quiet", "exec", *self._isolation(), "--pwd", "/",
                *_mounts(binds), built.reference, f"{VENV}/bin/python", *words]
        return Command(tuple(argv), {
            **store.engine_environment(self.executable, network=network), **_given(env or {}),
        })

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        """Run the image's own Python with `words`, isolated as a run is; return what it prints."""
        command = self.python(built, words)
        return store.printed(built, process.run(command.argv, env=command.env))

    def described(self, built: BuiltImage) -> Description:
        """Return the SIF's labels and runscript."""
        result = process.run(
            [self.executable, "inspect", "--json", "--labels", "--runscript", built.reference],
            env=store.engine_environment(self.executable), check=BuildError,
        )
        found = parse_json(result.stdout)["data"]["attributes"]
        return Description(found["labels"], found["runscript"])

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
        """Return the exact command that runs the SIF's `%runscript` with `args`.

        Variables travel as APPTAINERENV_*: `--env` splits its argument at commas.
        """
        argv = [self.executable, "--quiet", "exec" if launcher else "run", *self._isolation(),
                *gpu.apptainer_options(built.name), "--pwd", workdir, *_mounts(binds)]
        if built.overlay is not None:
            argv += ["--overlay", f"{built.overlay}:ro"]
        return Command(
            (*argv, built.reference, *store.launched(built, launcher), *args),
            {**store.engine_environment(self.executable, network=False), **_given(env)},
        )

    def _isolation(self) -> list[str]:
        # --containall: own /tmp, /dev, processes and no host folders; --no-home: not even an
        # empty home; --cleanenv: no variable of the host but those given on purpose.
        # --no-eval: else a shell in the container expands `$` and backquotes in their values.
        flags = ["--containall", "--no-home", "--cleanenv", "--no-eval"]
        if root_lacks_capabilities():
            # As root, Apptainer would set limits that this root may not set; in a user
            # namespace it does not try.
            flags.append(USERNS)
        return flags


def _given(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of Apptainer's own process that set `env` in the container."""
    return {f"APPTAINERENV_{key}": value for key, value in env.items()}


def _mounts(binds: Sequence[Bind]) -> list[str]:
    return [word for bind in binds for word in ("--mount", _mount(bind))]


def _mount(bind: Bind) -> str:
    """Return the value of `--mount`: comma separated, with CSV quoting of what needs it."""
    fields = ["type=bind", f"source={bind.source}", f"destination={bind.target}"]
    if bind.image:
        fields.append("image-src=/")
    if not bind.writable:
        fields.append("ro")
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
