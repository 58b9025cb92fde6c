"""Apptainer: builds SIF files without root and runs them isolated from the host."""

from __future__ import annotations

import csv
import io
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from trimaran import hostfacts, paths, process
from trimaran.engines import (
    Bind,
    BuiltImage,
    Command,
    Condition,
    Description,
    Setting,
    commands,
    gpu,
    sif,
)
from trimaran.engines.building import Container, Job
from trimaran.engines.store import Record
from trimaran.engines.workplace import workplace
from trimaran.errors import BuildError, RunError, TrimaranError
from trimaran.files import set_aside, sha256
from trimaran.images.parts import VENV
from trimaran.parsing import parse_json
from trimaran.reporting import Reporter

_APART = "--containall"

USERNS = "--userns"
"""Apptainer's option to run in a user namespace even where it could do without."""

SQUASHFS = "-comp gzip -Xcompression-level 1"
"""gzip, for every kernel can mount it; the default level 9 takes minutes for a few per cent."""


def program() -> str | None:
    """Return the path of Apptainer: from PATH, else the one that `make apptainer` assembled."""
    own = paths.cache("apptainer", "current", "usr", "bin", "apptainer")
    return shutil.which("apptainer") or (str(own) if own.is_file() else None)


class Apptainer(Container):
    """Builds, finds, tests and runs SIF files."""

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
                "Apptainer is not installed",
                hint="`make apptainer` assembles it without root on Debian-family hosts",
            )
        self.executable = found

    @classmethod
    def condition(cls) -> Condition:
        """Return whether there is an Apptainer, and it runs."""
        found = program()
        if found is None:
            return Condition(
                "warn", "not installed: runs use the host engine",
                "ask your site for it, or on a Debian family system: make apptainer",
            )
        try:
            return Condition("ok", f"{cls(found).version()}, {found}")
        except (TrimaranError, OSError) as error:
            return Condition("fail", str(error), f"install it anew, or take {found} out of PATH")

    def version(self) -> str:
        """Return what it says of its version."""
        said = process.run([self.executable, "--version"], timeout=20, check=RunError).stdout
        return said.strip()

    @classmethod
    def present(cls, records: Iterable[Record]) -> list[Record]:
        """Return those whose SIF is there."""
        return [record for record in records if os.path.lexists(record.reference)]

    def push(
        self, built: BuiltImage, to: str, *, login: Path | None, tls: bool, reporter: Reporter
    ) -> None:
        """Send the SIF as an ORAS artifact."""
        options = [] if tls else ["--no-https"]
        options += ["--authfile", str(login)] if login else []
        argv = [self.executable, "push", *options, built.reference, f"oras://{to}"]
        commands.transfer(argv, self.environment(), reporter)

    def _reference(self, name: str, inputs: str) -> str:
        return str(paths.cache("images", f"{name}-{inputs[:12]}.sif"))

    def _workplace(self, job: Job) -> AbstractContextManager[Path]:
        return workplace(job.unpacked)

    def _building(self, job: Job, folder: Path, wheels: Path) -> Command:
        """Return the command of spython, which calls Apptainer by the name `singularity`."""
        from trimaran.images import stages  # slow to import, and a run builds seldom

        (folder / "bin").mkdir()
        (folder / "bin/singularity").symlink_to(self.executable)
        env = commands.own_environment(str(folder / "bin" / "singularity"), self.executable)
        env["APPTAINER_TMPDIR"] = str(folder / "tmp")
        # Of its own: two builds at once read what the other one has half written there.
        env["APPTAINER_CACHEDIR"] = str(folder / "tmp" / "cache")
        base = job.under.reference
        if job.under.bootstrap != "docker":
            # By a link in the working directory: labels would keep a path of this machine.
            link = folder / f"base{Path(base).suffix}"
            link.symlink_to(base)
            base = link.name
        # In a file: `--build-arg` splits its value at commas.
        arguments = {"BOOTSTRAP": job.under.bootstrap, "BASE": base,
                     **commands.label_arguments(job.under)}
        lines = [f"{key}={value}\n" for key, value in arguments.items()]
        (folder / "arguments").write_text("".join(lines), encoding="utf-8")
        return Command((
            sys.executable, "-m", "trimaran.engines.spython_build", "image.sif", self.source,
            "--notest",  # the finished SIF is tested instead, as it will be run
            "--force",  # else labels and help of the image below stay
            "--mksquashfs-args", SQUASHFS,
            "--bind", f"{wheels}:{stages.WHEELHOUSE}:ro",
            "--build-arg-file", "arguments",
        ), env)

    def _built(self, job: Job, folder: Path, reporter: Reporter) -> BuiltImage:
        made, name = folder / "image.sif", job.image.name
        if not made.is_file():
            raise BuildError(f"building {name} left no SIF")
        if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
            sif.freeze(made, int(epoch))
        size = made.stat().st_size
        with reporter.bar(f"hashing {name}", size, unit="B") as advance:
            digest = f"sha256:{sha256(made, advance)}"
        return BuiltImage(name, self.name, str(made), digest, job.inputs, size)

    def _keep(self, made: BuiltImage, reference: str, reporter: Reporter) -> None:
        target = Path(reference)
        if os.path.lexists(target):
            reporter.warn(f"{target} has no record; set aside as {set_aside(target).name}")
        Path(made.reference).rename(target)

    def _pull(self, reference: str, destination: Path) -> None:
        process.run([self.executable, "pull", str(destination), f"docker://{reference}"],
                    env=self.environment(), check=BuildError)

    def _self_test(self, built: BuiltImage) -> list[str]:
        return [self.executable, "--quiet", "test", *_isolation(),
                *gpu.apptainer_options(built.name), "--pwd", "/", built.reference]

    def python(self, built: BuiltImage, words: Sequence[str], setting: Setting) -> Command:
        """Return the command that runs the image's own Python, isolated as a run is.

        Apptainer shares the host's network; `network` adds what reaches it through a proxy.
        """
        argv = [self.executable, "--quiet", "exec", *_isolation(), "--pwd", setting.workdir,
                *_mounts(setting.binds), built.reference, f"{VENV}/bin/python", *words]
        env = {**self.environment(network=setting.network), **given(setting.env)}
        return Command(tuple(argv), env)

    def described(self, built: BuiltImage) -> Description:
        """Return the SIF's labels and runscript."""
        result = process.run(
            [self.executable, "inspect", "--json", "--labels", "--runscript", built.reference],
            env=self.environment(), check=BuildError,
        )
        found = parse_json(result.stdout)["data"]["attributes"]
        return Description(found["labels"], found["runscript"])

    def command(
        self, built: BuiltImage, args: Sequence[str], setting: Setting,
        launcher: Sequence[str] = (),
    ) -> Command:
        """Return the exact command that runs the SIF's `%runscript` with `args`.

        Variables travel as APPTAINERENV_*: `--env` splits its argument at commas.
        """
        argv = [self.executable, "--quiet", "exec" if launcher else "run", *_isolation(),
                *gpu.apptainer_options(built.name), "--pwd", setting.workdir,
                *_mounts(setting.binds)]
        if built.overlay is not None:
            argv += ["--overlay", f"{built.overlay}:ro"]
        return Command(
            (*argv, built.reference, *commands.launched(built, launcher), *args),
            {**self.environment(network=False), **given(setting.env)},
        )


def _isolation() -> list[str]:
    # --containall: own /tmp, /dev, processes and no host folders; --no-home: not even an
    # empty home; --cleanenv: no variable of the host but those given on purpose.
    # --no-eval: else a shell in the container expands `$` and backquotes in their values.
    flags = [_APART, "--no-home", "--cleanenv", "--no-eval"]
    if hostfacts.root_lacks_capabilities():
        # As root, Apptainer would set limits that this root may not set; in a user
        # namespace it does not try.
        flags.append(USERNS)
    return flags


def beside_others(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a run for one of several ranks on a node, each in its own container.

    They meet in the node's /dev/shm: with one of its own each, MPI and NCCL would go over the
    network, or fail. Home, working folder and /tmp of the host stay out as ever.
    """
    shared = ["--no-mount", "home,cwd,tmp,hostfs", "--scratch", "/tmp"]  # noqa: S108
    at = argv.index(_APART)
    return (*argv[:at], *shared, *argv[at + 1 :])


def given(env: Mapping[str, str]) -> dict[str, str]:
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
    return csv_line(fields)


def csv_line(fields: Sequence[str]) -> str:
    """Return fields as `--mount` reads them: comma separated, quoted where need be."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
