"""Find or make the base image of a framework image.

The base image is the file that the user gives, a file in the cache, or the pinned image, pulled
from its registry. If the registry does not answer, mmdebstrap assembles the same Debian release
from its packages. The assembled image has a digest and labels of its own, because it differs from
the image of the registry.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from trimaran import locks, paths, process, strict
from trimaran.architectures import Architecture, ending
from trimaran.errors import BuildError, UsageError
from trimaran.files import set_aside, sha256, write_atomic
from trimaran.images.lock import ARCHIVES, KEYRING
from trimaran.images.parts import SYSTEM_PATH, RegistryBase
from trimaran.reporting import Reporter

_ARCHIVES = "`podman save --format oci-archive` and `docker save` write image archives"
REGISTRY_SECONDS = 4.0
"""Seconds to wait for the answer of a registry before the base image is assembled instead."""

# The images debian:*-slim of docker.io omit the same files.
_LEFT_OUT = (
    "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*",
    "/usr/share/groff/*", "/usr/share/lintian/*",
)
API_HOSTS = {"docker.io": "registry-1.docker.io"}
"""A dictionary that maps the name of a registry to the host of its API, if the two differ."""

Pull = Callable[[str, Architecture, Path], None]
"""A function of an engine that pulls an image reference (with digest) into a file."""

ASSEMBLED = "Debian {suite} minbase, assembled by mmdebstrap on "
"""Name of a base image that is assembled from packages; the date follows."""


def is_assembled(name: str, suite: str) -> bool:
    """Return whether a base image with this name was assembled from packages of a Debian release.

    The record of an image has the name of its base image, which this module has given it.
    """
    return name.startswith(ASSEMBLED.format(suite=suite))


@dataclass(frozen=True)
class Base:
    """A base image to build on.

    Attributes:
        bootstrap: Apptainer's bootstrap agent: docker, docker-archive, oci-archive or localimage.
        reference: path of a file, or image reference of a registry.
        name: value of the label `base.name`.
        digest: `sha256:…` of the manifest in the registry, of the image in the archive, or of the
            file; `unknown` if the user named an image without a digest.
    """

    bootstrap: str
    reference: str
    name: str
    digest: str


class _Kept(strict.Model):
    """The JSON file next to a cached base image, with description and SHA-256 of the image."""

    base: Base
    sha256: str


def resolve(
    wanted: RegistryBase, architecture: Architecture, *, given: str | None, offline: bool,
    pull: Pull, suffix: str, reporter: Reporter,
) -> Base:
    """Return the base image to build on; pull or assemble it if it is not in the cache.

    Args:
        wanted: the base image that `image.yaml` pins.
        architecture: the architecture of the image to build.
        given: the value of `--base`: an archive, a SIF or an image reference. If it is None,
            `wanted` is used.
        offline: use no network.
        pull: function that pulls an image from a registry into a file.
        suffix: suffix of a file that `pull` writes (".sif", ".oci.tar").
        reporter: shows which base image is used, and why, if it is not the pinned image.

    Raises:
        BuildError: The base image is not in the cache, and cannot be pulled or assembled.
        UsageError: `given` is not an image, or `wanted` has no digest.
    """
    if given is not None:
        return from_user(given)
    if wanted.digest is None:
        raise UsageError(
            f"image.yaml pins no digest of the base image {wanted.image}", code="base-unpinned",
            hint=f"choose a digest: --base {wanted.image.rpartition(':')[0]}@sha256:…",
        )
    tag = wanted.image.rpartition("/")[2].replace(":", "-")
    own = f"{wanted.digest.removeprefix('sha256:')[:12]}{ending(architecture, '.')}{suffix}"
    pinned = paths.cache("bases", f"{tag}-{own}")
    if (kept := _kept(pinned, reporter)) is not None:
        return kept
    why = "offline" if offline else unreachable(wanted.image)
    if why is not None:
        return _instead(wanted, architecture, why, offline, reporter)
    agent = "localimage" if suffix == ".sif" else "oci-archive"
    return _pull(wanted, architecture, agent, pinned, pull, reporter)


def _kept(file: Path, reporter: Reporter) -> Base | None:
    """Return the base image in `file`, or None; a damaged file is renamed, with a warning."""
    about = _about(file)
    if not os.path.lexists(file):
        return None
    try:
        kept = _Kept.model_validate_json(about.read_bytes())
        actual = sha256(file)
        if actual == kept.sha256:
            return replace(kept.base, reference=str(file))
        fault = f"{file} is damaged: expected SHA-256 {kept.sha256}, found {actual}"
    except OSError as error:
        fault = f"{error.filename} cannot be read: {error.strerror}"
    except ValidationError:
        fault = f"{about} is damaged"
    asides = [set_aside(path).name for path in (file, about) if os.path.lexists(path)]
    reporter.warn(f"{fault}; renamed to {' and '.join(asides)}")
    return None


def _keep(made: Path, file: Path, base: Base) -> Base:
    """Move the file `made` to `file`, and write its description next to it."""
    kept = _Kept(base=base, sha256=sha256(made))
    write_atomic(_about(file), kept.model_dump_json(indent=1) + "\n")
    made.rename(file)
    return replace(base, reference=str(file))


def _pull(
    wanted: RegistryBase, architecture: Architecture, agent: str, place: Path, pull: Pull,
    reporter: Reporter,
) -> Base:
    digest = str(wanted.digest)
    reporter.note(f"  pulling {wanted.image} ({digest[:19]}…)")
    with (
        locks.making(place, reporter),
        locks.scratch(place.parent, "pull-") as folder,
        reporter.bar(f"pulling {wanted.image}", None),
    ):
        if (kept := _kept(place, reporter)) is not None:  # another process has pulled it
            return kept
        part = folder / place.name
        pull(f"{wanted.image.rpartition(':')[0]}@{digest}", architecture, part)
        return _keep(part, place, Base(agent, place.name, wanted.image, digest))


def _instead(
    wanted: RegistryBase, architecture: Architecture, why: str, offline: bool, reporter: Reporter
) -> Base:
    """Return an image of the same Debian release, assembled from its packages.

    `why` is the reason why the pinned image is not used; it appears in messages.
    """
    if wanted.suite is None:
        raise BuildError(f"{wanted.image}: {why}", code="base-unavailable",
                         hint="give an archive or SIF of this image with --base")
    assembled = assembled_at(wanted.suite, architecture)
    kept = _kept(assembled, reporter)
    if kept is None:
        if offline:
            raise BuildError(
                f"{assembled.parent} has no base image for {wanted.image}, and --offline was given",
                code="base-unavailable",
                hint="build once with a network, or give an archive or SIF with --base",
            )
        reporter.warn(f"{wanted.image}: {why}; assembling Debian {wanted.suite} instead")
        with locks.making(assembled, reporter):
            kept = _kept(assembled, reporter) or assemble(
                wanted.suite, architecture, assembled, reporter)
    reporter.note(f"  base: {kept.name} ({why})")
    return kept


def assembled_at(suite: str, architecture: Architecture) -> Path:
    """Return the path of the assembled Debian `suite` in the cache."""
    return paths.cache("bases", f"debian-{suite}{ending(architecture, '.')}.plain.docker.tar")


def from_user(given: str) -> Base:
    """Return the base image that the user named: a file, or an image of a registry.

    Raises:
        UsageError: The path does not exist, or its file is not an image archive.
    """
    path = Path(given)
    if path.is_file():
        agent = "localimage" if path.suffix == ".sif" else _kind(path)
        return Base(agent, str(path.resolve()), path.name, f"sha256:{sha256(path)}")
    if given.startswith(("/", "./", "../", "~")) or path.suffix in (".sif", ".tar"):
        raise UsageError(f"--base {given}: the file does not exist", code="file-missing",
                         hint="give the path of a SIF or image archive, or the name of an image")
    reference = given.removeprefix("docker://")
    _, at, digest = reference.partition("@")
    return Base("docker", reference, reference, digest if at else "unknown")


def unreachable(image: str) -> str | None:
    """Return why the registry of `image` cannot be used, or None if it answers."""
    import requests  # imported here because it is slow and only builds need it

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


def assemble(
    suite: str, architecture: Architecture, destination: Path, reporter: Reporter
) -> Base:
    """Write an archive of a minimal Debian `suite` to `destination`, atomically.

    Raises:
        BuildError: mmdebstrap is missing or fails.
    """
    # `make apptainer` installs mmdebstrap into its own prefix, for hosts without the package.
    search = os.pathsep.join([os.environ.get("PATH", os.defpath),
                              str(paths.cache("apptainer", "current", "usr", "bin"))])
    program = shutil.which("mmdebstrap", path=search)
    if program is None or not KEYRING.is_file():
        raise BuildError(
            "no registry answers, and a base image cannot be assembled without mmdebstrap"
            " and debian-archive-keyring", code="program-missing",
            hint="`make apptainer` installs mmdebstrap; or give an archive or SIF with --base",
        )
    with locks.scratch(destination.parent, "base-") as folder:
        sparse, layer = folder / "sparse.tar", folder / "layer.tar"
        epoch = os.environ.get("SOURCE_DATE_EPOCH", str(int(datetime.now().timestamp())))
        argv = [
            program, "--mode=root" if os.geteuid() == 0 else "--mode=unshare",
            f"--architectures={architecture}",
            "--variant=minbase", "--include=ca-certificates", f"--keyring={KEYRING}",
            # An air-gapped site may have an old copy of the mirror; signatures are verified.
            "--aptopt=Acquire::Check-Valid-Until \"false\"",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
            "--dpkgopt=path-include=/usr/share/doc/*/copyright",
            suite, str(sparse), ARCHIVES["debian"][0],
        ]
        process.follow(
            argv, f"assembling Debian {suite} for {architecture}", reporter, what="mmdebstrap",
            check=BuildError,
            hint=None if os.geteuid() == 0 else "install newuidmap: apt-get install uidmap",
            env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
        )
        fill_holes(sparse, layer)
        day = datetime.fromtimestamp(int(epoch), timezone.utc).strftime("%Y-%m-%d")
        archive = folder / "image.tar"
        digest = pack(layer, archive, architecture, int(epoch))
        name = f"{ASSEMBLED.format(suite=suite)}{day}"
        return _keep(archive, destination, Base("docker-archive", destination.name, name, digest))


def _about(archive: Path) -> Path:
    return archive.with_suffix(".json")


def fill_holes(sparse: Path, layer: Path) -> None:
    """Copy the tar file `sparse` to `layer` and write zeros in place of holes.

    mmdebstrap 1.6 omits the holes of sparse files. When podman 4 exports a layer with holes, the
    size of the layer changes.
    """
    with tarfile.open(sparse) as source, tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as tar:
        for entry in source:
            content = source.extractfile(entry) if entry.isreg() else None
            entry.pax_headers = {
                key: text for key, text in entry.pax_headers.items()
                if not key.startswith("GNU.sparse.") and key not in ("path", "size")
            }
            tar.addfile(entry, content)


def pack(layer: Path, archive: Path, architecture: Architecture, epoch: int) -> str:
    """Write a docker-archive with one layer; return the digest of the image's configuration."""
    moment = datetime.fromtimestamp(epoch, timezone.utc).isoformat().replace("+00:00", "Z")
    layer_hash = sha256(layer)
    config = json.dumps({
        "architecture": architecture, "os": "linux", "created": moment,
        "config": {"Env": [f"PATH={SYSTEM_PATH}"], "Cmd": ["bash"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_hash}"]},
        "history": [{"created": moment, "created_by": "mmdebstrap"}],
    }).encode()
    digest = hashlib.sha256(config).hexdigest()
    manifest = json.dumps([{
        "Config": f"{digest}.json", "RepoTags": None, "Layers": [f"{layer_hash}/layer.tar"],
    }]).encode()
    with tarfile.open(archive, "w") as tar:
        for name, content in ((f"{digest}.json", config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        tar.add(layer, f"{layer_hash}/layer.tar", filter=_anonymous)
    return f"sha256:{digest}"


def _kind(path: Path) -> str:
    """Return the format of an image archive: `docker-archive` or `oci-archive`.

    Raises:
        UsageError: The file is not an image archive.
    """
    try:
        with tarfile.open(path) as tar:
            names = {member.name.removeprefix("./") for member in tar}
    except tarfile.TarError as error:
        raise UsageError(
            f"--base {path}: the file is neither a SIF nor an image archive", code="base-invalid",
            hint=_ARCHIVES,
        ) from error
    if "manifest.json" in names:
        return "docker-archive"
    if "index.json" in names:
        return "oci-archive"
    raise UsageError(
        f"--base {path}: the tar file is not an image archive", code="base-invalid",
        hint=_ARCHIVES,
    )


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry
