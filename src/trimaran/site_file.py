"""Read the site file: the settings of one machine, such as its registry and proxy.

The user keeps the file outside of the checkout. Environment variables override its settings, and
options of the command line override both.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping, MutableMapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trimaran import paths, strict
from trimaran.architectures import Architecture
from trimaran.errors import UsageError, unreadable

OWN_PLACES = ("/.exec", "/.run", "/.shell", "/.singularity.d", "/.test", "/bin", "/data", "/dev",
              "/environment", "/etc", "/initial", "/lib", "/lib32", "/lib64", "/libx32",
              "/opt/trimaran", "/opt/rocm", "/out", "/proc", "/root", "/sbin", "/singularity",
              "/sys", "/tmp", "/usr", "/var", "/venv")  # noqa: S108 - a path in the container
"""Folders in a container that a bind must not hide: the image's folders, and the run's mounts."""

CERTIFICATES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Environment variables with the trusted certificates for downloads by Trimaran and the engines."""

PROXIES = ("http_proxy", "https_proxy")

READ_PROXIES = (*PROXIES, "all_proxy")
"""Names of the proxy variables that the Python library `requests` reads, in either case."""

REGISTRY = r"^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+$"
"""Regular expression of a registry with a namespace: `HOST[:PORT]/NAMESPACE`."""


def _fingerprint(value: object) -> object:
    # gpg and `apptainer key list` print groups of digits, in upper or lower case
    return value.replace(" ", "").upper() if isinstance(value, str) else value


def _split(address: str) -> SplitResult:
    """Split the address of a proxy into host, port and so on.

    Raises:
        ValueError: the host or the port is not valid.
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    host.encode("idna")
    if parts.port == 0 or not re.fullmatch(r"[\w.:%-]+", host):
        raise ValueError("no valid host or port")
    return parts


def _proxy(value: str) -> str:
    wrong = "not http://HOST[:PORT] or https://HOST[:PORT]"
    try:
        parts = _split(value)
    except ValueError:
        raise ValueError(wrong) from None
    if parts.scheme not in ("http", "https"):
        raise ValueError(wrong)
    if parts.username or parts.password:
        raise PydanticCustomError(
            strict.HIDDEN, "credentials must not be in a file: set https_proxy instead"
        )
    return value


def hides(place: str) -> str | None:
    """Return the folder of the container that a bind to the path `place` would hide, or None.

    Return "/" if `place` is not allowed: a relative path, a path with "..", or / itself.
    """
    path = PurePosixPath(place)
    if not path.is_absolute() or ".." in path.parts or not path.name:
        return "/"
    # In POSIX two leading slashes are a separate root, but the kernel reads them as one slash.
    path = PurePosixPath("/", *path.parts[1:])
    return next((
        own for own in OWN_PLACES
        # /initial.npz and /opt/rocm-6.2 must not be hidden either.
        if path.is_relative_to(own) or PurePosixPath(own).is_relative_to(path)
        or str(path).startswith((f"{own}.", f"{own}-"))
    ), None)


def _outside(value: str) -> str:
    hidden = hides(value)
    if hidden == "/":
        raise ValueError("not an absolute path below /")
    if hidden is not None:
        raise ValueError(f"would hide {hidden} of the container; choose a place such as /mnt")
    return value


Fingerprint = Annotated[
    str, BeforeValidator(_fingerprint), Field(pattern=r"^[0-9A-F]{40}$")
]
"""Fingerprint of a PGP key: 40 hexadecimal digits, stored in upper case without spaces."""

_FINGERPRINT: TypeAdapter[str] = TypeAdapter(Fingerprint)

Inside = Annotated[str, AfterValidator(_outside)]


class Signatures(strict.Model):
    """The signatures that images must have before they are run."""

    required: bool = False
    keys: list[Fingerprint] = Field(default_factory=list, description="accepted signers")

    @model_validator(mode="after")
    def _some_key(self) -> Signatures:
        if self.required and not self.keys:
            raise ValueError("'required' needs the accepted fingerprints in 'keys'")
        return self


OWN_VARIABLES = re.compile(r"(APPTAINER|SINGULARITY|SLURM|PMI|PMIX|TRIMARAN)_?|LD_|PATH$|HOME$")
"""Matches the beginnings of variable names that `env` of a cluster must not set.

The batch system, the engine or Trimaran sets these variables.
"""

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:+-]*$")]
"""Name of a partition or account in a batch system, without blanks and quotes."""

Constraint = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:+&|*()\[\],=-]+$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


def _absolute(path: Path) -> Path:
    if not path.is_absolute() or any(ord(character) < ord(" ") for character in str(path)):
        raise ValueError("not an absolute path without control characters")
    return path


def _free(name: str) -> str:
    if OWN_VARIABLES.match(name):
        raise ValueError(f"{name} is set by the batch system, the engine or Trimaran")
    return name


def _plain(path: Path) -> Path:
    # Scripts expand these as patterns, and Apptainer separates libraries by commas.
    if not re.fullmatch(r"(/[A-Za-z0-9_.+@~-]+)+", str(path)):
        raise ValueError("not an absolute path of plain characters: A-Z a-z 0-9 _ . + @ ~ -")
    return path


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]


DEVICE = r"^/dev(/[A-Za-z0-9_*][A-Za-z0-9_.*-]*)+$"
"""Regular expression of a device path; scripts do not quote it, so that the shell expands `*`."""

FabricName = Literal["infiniband", "roce", "slingshot", "efa", "omnipath", "ethernet"]
"""Name of a fabric; `trimaran.run.fabrics` has its profile."""


class Cluster(strict.Model):
    """The settings of one cluster, which recipes do not contain.

    Attributes:
        scheduler: the batch system.
        partition: partition for the jobs (PBS, LSF: the queue); None: the default partition.
        account: account that is charged for the jobs.
        qos: quality of service (LSF: the service class).
        constraint: features that the nodes must have (PBS: added to the chunk, LSF: -R).
        architecture: processor architecture of the nodes, which determines the image of a job.
            None: the architecture of the recipe's target.
        gres: Slurm's name of a GPU, such as `gpu` or `gpu:a100`.
        modules: environment modules that a job loads, such as Apptainer's.
        apptainer: path of Apptainer on the nodes, if it is not on PATH.
        flags: options that Apptainer needs on the nodes, in addition to the options of every run.
        mpi: value of `srun --mpi=` for Open MPI; `srun --mpi=list` lists the choices.
        devices: device files below /dev that jobs of several nodes pass to the containers, in
            addition to the devices of known fabrics; `*` stands for any characters.
        fabric: network between the nodes; jobs on several nodes use the profile of this fabric.
            None: the devices of known fabrics are passed to the containers, and nothing else is set
            or checked.
        fabric_missing: reaction of a job if a node lacks a device or library of the fabric: it
            refuses to start ranks, or warns and continues over TCP, which fails the verdict on
            throughput.
        fabric_folders: folders of the nodes that are searched first for libraries of the fabric.
        env: variables of the ranks for the network, such as NCCL_SOCKET_IFNAME; they override the
            variables of the fabric's profile.
        data: folder with packed data sets, each in a subfolder with its name; used without
            `--data`.
        scratch: folder for run directories, on a file system that the nodes share.
        local_storage: folder on the local disk of a node, into which the image is copied.
        stage_data: whether the data are copied to `local_storage` as well.
        compiler_caches: folder of the nodes that keeps compiled code from job to job, in a
            subfolder per node. None: a folder on the disk of each node, which the job removes.
        signal_seconds: seconds before the time limit at which a run gets the signal to write its
            checkpoint.
    """

    scheduler: Literal["slurm", "pbs", "lsf"] = "slurm"
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Constraint | None = None
    architecture: Architecture | None = None
    gres: Word = "gpu"
    modules: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./+-]*$")], ...] = ()
    apptainer: AbsolutePath | None = None
    flags: tuple[Annotated[str, Field(pattern=r"^--[a-z][A-Za-z0-9=,:/._-]*$")], ...] = ()
    mpi: Word = "pmix"
    devices: tuple[Annotated[str, Field(pattern=DEVICE)], ...] = ()
    fabric: FabricName | None = None
    fabric_missing: Literal["refuse", "warn"] = "refuse"
    fabric_folders: tuple[Annotated[Path, AfterValidator(_plain)], ...] = ()
    env: dict[Annotated[Variable, AfterValidator(_free)], StrictStr] = Field(default_factory=dict)
    data: AbsolutePath | None = None
    scratch: AbsolutePath | None = None
    local_storage: AbsolutePath | None = None
    stage_data: bool = False
    compiler_caches: AbsolutePath | None = None
    signal_seconds: Annotated[int, Field(ge=5, le=3600)] = 120

    @model_validator(mode="after")
    def _some_fabric(self) -> Cluster:
        if self.fabric is None and (self.fabric_folders or self.fabric_missing != "refuse"):
            raise ValueError("fabric_missing and fabric_folders need fabric, the network that they"
                             " are about")
        return self

    @model_validator(mode="after")
    def _staged_somewhere(self) -> Cluster:
        if self.stage_data and self.local_storage is None:
            raise ValueError("stage_data needs local_storage, the folder to copy the data to")
        return self


class Site(strict.Model):
    """The settings of one site; every key is optional.

    Attributes:
        registry: registry to push and pull images, `HOST[:PORT]/NAMESPACE`.
        ca_bundle: PEM file with the trusted certificates, which replace the certificates of the
            system.
        proxy: address of the proxy for all downloads.
        signatures: the required signatures of images.
        recipes: folders with the user's own recipes, targets, data sets, apps and images.
        binds: folder of the host -> folder in containers, mounted read-only.
        clusters: clusters for `submit`, by name; without `--cluster` the first one is used.
    """

    schema_: Literal[1] = Field(default=1, alias="schema")
    registry: Annotated[str, Field(pattern=REGISTRY)] | None = None
    ca_bundle: Path | None = None
    proxy: Annotated[str, AfterValidator(_proxy)] | None = None
    signatures: Signatures = Field(default_factory=Signatures)
    recipes: tuple[Path, ...] = ()
    binds: dict[Path, Inside] = Field(default_factory=dict)
    clusters: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")], Cluster] = Field(
        default_factory=dict
    )


def fingerprint(text: str) -> str:
    """Return a fingerprint from the command line in upper case without spaces.

    Raises:
        UsageError: `text` is not a fingerprint.
    """
    try:
        return _FINGERPRINT.validate_python(text)
    except ValidationError as error:
        raise UsageError(
            f"'{text}' is not a fingerprint of 40 hexadecimal digits", code="argument-invalid",
            hint="`apptainer key list` lists the fingerprints of your keyring",
        ) from error


def default_path() -> Path | None:
    """Return the default path of the site file; None if the home folder is unknown."""
    folder = paths.of_user("XDG_CONFIG_HOME", ".config")
    return folder and folder / "site.yaml"


def load(path: Path | None) -> Site:
    """Read the site file at `path`; None means the default path, where the file may be missing.

    Paths in the file may begin with `~`; relative paths start at the folder of the file.

    Raises:
        UsageError: the file at `path` is missing, or the file is invalid (the message contains file
            and line).
    """
    if path is None:
        path = default_path()
        if path is None or not path.exists():
            return Site()
    site = strict.load(Site, path)
    folder = path.absolute().parent
    return site.model_copy(update={
        "ca_bundle": site.ca_bundle and folder / _at_home(site.ca_bundle),
        "recipes": tuple(folder / _at_home(own) for own in site.recipes),
        "binds": {folder / _at_home(source): inside for source, inside in site.binds.items()},
    })


def _at_home(path: Path) -> Path:
    # Path.expanduser fails for an unknown user; opening the path later gives a better error.
    return Path(os.path.expanduser(path))  # noqa: PTH111


def apply(site: Site, ca_bundle: Path | None, environ: MutableMapping[str, str]) -> None:
    """Set the environment variables for certificates and proxies that the network clients read.

    Args:
        site: the site file; `ca_bundle` and `proxy` set only variables that are not yet set.
        ca_bundle: file from the command line, which overrides the environment.
        environ: the environment variables to change, usually `os.environ`.

    Raises:
        UsageError: a file contains no certificates or cannot be read, or a variable contains an
            invalid proxy address.
    """
    _check_proxies(environ)
    if ca_bundle is not None:
        bundle = str(check_bundle(ca_bundle.absolute()))
        environ.update(dict.fromkeys(CERTIFICATES, bundle))
    elif site.ca_bundle is not None:
        bundle = str(check_bundle(site.ca_bundle))
        for name in CERTIFICATES:
            environ.setdefault(name, bundle)
    if site.proxy is not None:
        for name in PROXIES:
            if name.upper() not in environ:
                environ.setdefault(name, site.proxy)


def _check_proxies(environ: Mapping[str, str]) -> None:
    for name in (spelled for low in READ_PROXIES for spelled in (low, low.upper())):
        value = environ.get(name, "")
        try:
            if value:
                _split(value if "://" in value else f"http://{value}")
        except ValueError:
            # The message must not contain the value, which may include a password.
            raise UsageError(
                f"the variable {name} is not the address of a proxy", code="proxy-invalid",
                hint=f"set it to http://HOST[:PORT], or: unset {name}",
            ) from None


def check_bundle(path: Path) -> Path:
    """Return `path` if it is a PEM file with at least one certificate.

    Raises:
        UsageError: the file cannot be read or contains no certificate.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise UsageError(
            f"{path} contains no certificate in PEM format", code="certificates-invalid",
            hint="a PEM file has blocks -----BEGIN CERTIFICATE-----;"
            " `openssl x509 -inform der -in FILE` converts DER to PEM",
        ) from error
    except OSError as error:
        raise unreadable(f"the certificates {path}", error) from error
    return path
