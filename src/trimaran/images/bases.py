"""The base image of a framework image: given, cached, pulled by digest, or assembled.

The pinned image of the registry is the first choice. Where no registry answers, the
same Debian release is assembled from its packages by mmdebstrap. It is a different
image, so its labels and digest say what it really is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from trimaran import locks, paths, process, strict
from trimaran.errors import BuildError, UsageError
from trimaran.files import set_aside, sha256, write_atomic
from trimaran.images import archives
from trimaran.images.debian import ARCHIVES, KEYRING
from trimaran.images.parts import RegistryBase
from trimaran.reporting import Reporter

REGISTRY_SECONDS = 4.0
"""How long a registry may take to answer before the base is assembled instead."""

# What docker.io's debian:*-slim leaves out as well.
_LEFT_OUT = (
    "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*",
    "/usr/share/groff/*", "/usr/share/lintian/*",
)
API_HOSTS = {"docker.io": "registry-1.docker.io"}
"""Registry -> the host that answers for it, where it is another one."""

Pull = Callable[[str, Path], None]
"""Pulls an image reference (with digest) into a file, with the engine's own means."""


@dataclass(frozen=True)
class Base:
    """A base image to build on.

    Attributes:
        bootstrap: Apptainer's agent for it: docker, docker-archive, oci-archive or localimage.
        reference: path of the file, or image reference of a registry.
        name: what it is, for the label `base.name`.
        digest: `sha256:…` of the registry's manifest, the archive's image or the file.
    """

    bootstrap: str
    reference: str
    name: str
    digest: str


class _Kept(strict.Model):
    """What lies beside a base in the cache: what it is, and the SHA-256 of its file."""

    base: Base
    sha256: str


def resolve(
    wanted: RegistryBase,
    *,
    given: str | None,
    offline: bool,
    pull: Pull,
    suffix: str,
    reporter: Reporter,
) -> Base:
    """Return the base to build on, getting or making it if need be.

    Args:
        wanted: what `image.yaml` pins.
        given: what the user asked for instead (`--base`): archive, SIF or reference.
        offline: never touch the network.
        pull: pulls from a registry into a file.
        suffix: of a file that `pull` writes (".sif", ".oci.tar").
        reporter: is told which base it is, and why, when it is not the pinned one.

    Raises:
        BuildError: none can be had; UsageError: the given one is no image, or none is pinned.
    """
    if given is not None:
        return from_user(given)
    if wanted.digest is None:
        raise UsageError(
            f"{wanted.image} is not pinned here: its digest is for you to choose",
            hint=f"--base {wanted.image.rpartition(':')[0]}@sha256:…",
        )
    tag = wanted.image.rpartition("/")[2].replace(":", "-")
    pinned = paths.cache("bases", f"{tag}-{wanted.digest.removeprefix('sha256:')[:12]}{suffix}")
    if (kept := _kept(pinned, reporter)) is not None:
        return kept
    why = "offline" if offline else unreachable(wanted.image)
    if why is not None:
        return _instead(wanted, why, offline, reporter)
    agent = "localimage" if suffix == ".sif" else "oci-archive"
    return _pull(wanted, wanted.digest, agent, pinned, pull, reporter)


def _kept(file: Path, reporter: Reporter) -> Base | None:
    """Return the base that lies at `file`, or None; a damaged one is said and set aside."""
    about = _about(file)
    if not os.path.lexists(file):
        return None
    try:
        kept = _Kept.model_validate_json(about.read_bytes())
        found = sha256(file)
        if found == kept.sha256:
            return replace(kept.base, reference=str(file))
        fault = f"{file} is damaged: expected SHA-256 {kept.sha256}, found {found}"
    except OSError as error:
        fault = f"{error.filename} cannot be read: {error.strerror}"
    except ValidationError:
        fault = f"{about} is damaged"
    asides = [set_aside(path).name for path in (file, about) if os.path.lexists(path)]
    reporter.warn(f"{fault}; set aside as {' and '.join(asides)}")
    return None


def _keep(made: Path, file: Path, base: Base) -> Base:
    """Put the file `made` at `file`, with what is known of it beside it."""
    kept = _Kept(base=base, sha256=sha256(made))
    write_atomic(_about(file), kept.model_dump_json(indent=1) + "\n")
    made.rename(file)
    return replace(base, reference=str(file))


def _pull(
    wanted: RegistryBase, digest: str, agent: str, place: Path, pull: Pull, reporter: Reporter
) -> Base:
    reporter.note(f"  pulling {wanted.image} ({digest[:19]}…)")
    with (
        locks.making(place, reporter),
        locks.scratch(place.parent, "pull-") as folder,
        reporter.bar(f"pulling {wanted.image}", None),
    ):
        if (kept := _kept(place, reporter)) is not None:  # by another process meanwhile
            return kept
        part = folder / place.name
        pull(f"{wanted.image.rpartition(':')[0]}@{digest}", part)
        return _keep(part, place, Base(agent, place.name, wanted.image, digest))


def _instead(wanted: RegistryBase, why: str, offline: bool, reporter: Reporter) -> Base:
    """Return the same Debian release, assembled from its packages."""
    if wanted.suite is None:
        raise BuildError(f"{wanted.image}: {why}", hint="give an archive or SIF of it with --base")
    assembled = assembled_at(wanted.suite)
    kept = _kept(assembled, reporter)
    if kept is None:
        if offline:
            raise BuildError(
                f"no base image for {wanted.image} in {assembled.parent}, and --offline was given",
                hint="build once with a network, or give an archive or SIF with --base",
            )
        reporter.warn(f"{wanted.image}: {why}; assembling Debian {wanted.suite} instead")
        with locks.making(assembled, reporter):
            kept = _kept(assembled, reporter) or assemble(wanted.suite, assembled, reporter)
    reporter.note(f"  base: {kept.name} ({why})")
    return kept


def assembled_at(suite: str) -> Path:
    """Return where the cache has the assembled Debian `suite`."""
    return paths.cache("bases", f"debian-{suite}.plain.docker.tar")


def from_user(given: str) -> Base:
    """Return the base that the user named: a file, or an image of a registry.

    Raises:
        UsageError: a path that does not exist or is no image archive.
    """
    path = Path(given)
    if path.is_file():
        agent = "localimage" if path.suffix == ".sif" else archives.kind(path)
        return Base(agent, str(path.resolve()), path.name, f"sha256:{sha256(path)}")
    if given.startswith(("/", "./", "../", "~")) or path.suffix in (".sif", ".tar"):
        raise UsageError(f"--base {given}: no such file")
    reference = given.removeprefix("docker://")
    _, at, digest = reference.partition("@")
    return Base("docker", reference, reference, digest if at else "unknown")


def unreachable(image: str) -> str | None:
    """Return why the registry of `image` cannot be asked, or None when it answers."""
    import requests  # slow to import, and asked for builds only

    from trimaran.net import web

    host = image.split("/")[0]
    try:
        web.answer(
            f"https://{API_HOSTS.get(host, host)}/v2/", method="HEAD", most=0, auth=web.NOBODY,
            seconds=REGISTRY_SECONDS,
        )
    except requests.Timeout:
        return f"the registry {host} does not answer"
    except requests.RequestException:
        return f"the registry {host} cannot be reached"
    return None


def assemble(suite: str, destination: Path, reporter: Reporter) -> Base:
    """Make an archive of a minimal Debian `suite` at `destination`, whole or not at all.

    Raises:
        BuildError: mmdebstrap is missing or fails.
    """
    # The prefix of `make apptainer` has mmdebstrap, for hosts without the package.
    search = os.pathsep.join([os.environ.get("PATH", os.defpath),
                              str(paths.cache("apptainer", "current", "usr", "bin"))])
    program = shutil.which("mmdebstrap", path=search)
    if program is None or not KEYRING.is_file():
        raise BuildError(
            "no registry answers, and a base image cannot be assembled without mmdebstrap"
            " and debian-archive-keyring",
            hint="`make apptainer` brings mmdebstrap; or give an archive or SIF with --base",
        )
    with locks.scratch(destination.parent, "base-") as folder:
        sparse, layer = folder / "sparse.tar", folder / "layer.tar"
        epoch = os.environ.get("SOURCE_DATE_EPOCH", str(int(datetime.now().timestamp())))
        argv = [
            program, "--mode=root" if os.geteuid() == 0 else "--mode=unshare",
            "--variant=minbase", "--include=ca-certificates", f"--keyring={KEYRING}",
            # A mirror that stands still, as air-gapped sites keep; signatures are verified.
            "--aptopt=Acquire::Check-Valid-Until \"false\"",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
            "--dpkgopt=path-include=/usr/share/doc/*/copyright",
            suite, str(sparse), ARCHIVES["debian"][0],
        ]
        process.follow(
            argv, f"assembling Debian {suite}", reporter, what="mmdebstrap", check=BuildError,
            hint=None if os.geteuid() == 0 else "it needs newuidmap (apt-get install uidmap)",
            env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
        )
        archives.fill_holes(sparse, layer)
        day = datetime.fromtimestamp(int(epoch), timezone.utc).strftime("%Y-%m-%d")
        archive = folder / "image.tar"
        digest = archives.pack(layer, archive, int(epoch))
        name = f"Debian {suite} minbase, assembled by mmdebstrap on {day}"
        return _keep(archive, destination, Base("docker-archive", destination.name, name, digest))


def _about(archive: Path) -> Path:
    return archive.with_suffix(".json")
