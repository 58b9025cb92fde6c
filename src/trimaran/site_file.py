"""The site file: what holds on this machine for every run, such as its registry and proxy.

It is the user's own file and no part of the checkout. The environment wins over it, and
options of the command line win over both.
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
from trimaran.errors import UsageError, unreadable

OWN_PLACES = ("/.exec", "/.run", "/.shell", "/.singularity.d", "/.test", "/bin", "/data", "/dev",
              "/environment", "/etc", "/initial", "/lib", "/lib32", "/lib64", "/libx32",
              "/opt/trimaran", "/opt/rocm", "/out", "/proc", "/root", "/sbin", "/singularity",
              "/sys", "/tmp", "/usr", "/var", "/venv")  # noqa: S108 - of the container
"""Folders in a container that no bind may hide: the image's own, and those of every run."""

CERTIFICATES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Variables that name the trusted certificates: for Trimaran's downloads, for the engines'."""

PROXIES = ("http_proxy", "https_proxy")

READ_PROXIES = (*PROXIES, "all_proxy")
"""Variables that requests reads, in small or capital letters."""

REGISTRY = r"^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+$"
"""A registry and a namespace in it: `HOST[:PORT]/NAMESPACE`."""


def _fingerprint(value: object) -> object:
    # as gpg and `apptainer key list` print it: in groups, in any case
    return value.replace(" ", "").upper() if isinstance(value, str) else value


def _split(address: str) -> SplitResult:
    """Return the parts of the address of a proxy; ValueError: it has no host, or no good one."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    host.encode("idna")
    if parts.port == 0 or not re.fullmatch(r"[\w.:%-]+", host):
        raise ValueError("no host, or no port")
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
            strict.HIDDEN, "credentials do not belong in a file: set https_proxy instead"
        )
    return value


def hides(place: str) -> str | None:
    """Return what a bind to `place` would hide of the container, or None.

    A place that is no absolute path below / hides all of it: "/".
    """
    path = PurePosixPath(place)
    if not path.is_absolute() or ".." in path.parts or not path.name:
        return "/"
    # Two slashes in front are a root of their own in POSIX, and one to the kernel.
    path = PurePosixPath("/", *path.parts[1:])
    return next((
        own for own in OWN_PLACES
        # /initial.npz and /opt/rocm-6.2 are such places, too.
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
"""A PGP key's fingerprint: 40 hexadecimal digits, kept in capitals without spaces."""

_FINGERPRINT: TypeAdapter[str] = TypeAdapter(Fingerprint)

Inside = Annotated[str, AfterValidator(_outside)]


class Signatures(strict.Model):
    """Which signatures images must have before they are run."""

    required: bool = False
    keys: list[Fingerprint] = Field(default_factory=list, description="accepted signers")

    @model_validator(mode="after")
    def _some_key(self) -> Signatures:
        if self.required and not self.keys:
            raise ValueError("'required' needs the fingerprints that are accepted, in 'keys'")
        return self


OWN_VARIABLES = re.compile(r"(APPTAINER|SINGULARITY|SLURM|PMI|PMIX|TRIMARAN)_?|LD_|PATH$|HOME$")
"""Variables that the batch system, the engine or Trimaran set."""

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:+-]*$")]
"""What a batch system calls a partition, an account, or a module: no blank, no quote."""

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


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]


DEVICE = r"^/dev(/[A-Za-z0-9_*][A-Za-z0-9_.*-]*)+$"
"""A file or folder of devices: what the shell is given unquoted, for `*` is to be expanded."""

class Cluster(strict.Model):
    """The facts of one cluster; nothing of them is in a recipe.

    Attributes:
        scheduler: its batch system.
        partition: where jobs are queued (PBS, LSF: the queue); the default one if left out.
        account: whose hours are used.
        qos: quality of service (LSF: the service class).
        constraint: features that the nodes must have (PBS: more of the chunk, LSF: -R).
        gres: what Slurm calls a GPU there, such as `gpu` or `gpu:a100`.
        modules: environment modules that a job loads, such as Apptainer's.
        apptainer: path of Apptainer on the nodes, if it is not on PATH there.
        flags: options that Apptainer needs there beside those of every run.
        mpi: what `srun --mpi=` needs for Open MPI; `srun --mpi=list` shows the choice.
        devices: files of devices, below /dev, that jobs of several nodes show to the containers
            beside those of known fabrics; `*` stands for any characters.
        env: variables for the network, such as NCCL_SOCKET_IFNAME; they reach the ranks.
        data: folder with packed data sets by name, taken where `--data` names no other.
        scratch: folder in which run directories are made, on a file system that the nodes share.
        local_storage: folder of a node's own disk, into which the image is copied.
        stage_data: whether the data are copied there as well.
        signal_seconds: how long before the time limit a run is told to write its checkpoint.
    """

    scheduler: Literal["slurm", "pbs", "lsf"] = "slurm"
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Constraint | None = None
    gres: Word = "gpu"
    modules: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./+-]*$")], ...] = ()
    apptainer: AbsolutePath | None = None
    flags: tuple[Annotated[str, Field(pattern=r"^--[a-z][A-Za-z0-9=,:/._-]*$")], ...] = ()
    mpi: Word = "pmix"
    devices: tuple[Annotated[str, Field(pattern=DEVICE)], ...] = ()
    env: dict[Annotated[Variable, AfterValidator(_free)], StrictStr] = Field(default_factory=dict)
    data: AbsolutePath | None = None
    scratch: AbsolutePath | None = None
    local_storage: AbsolutePath | None = None
    stage_data: bool = False
    signal_seconds: Annotated[int, Field(ge=5, le=3600)] = 120

    @model_validator(mode="after")
    def _staged_somewhere(self) -> Cluster:
        if self.stage_data and self.local_storage is None:
            raise ValueError("stage_data needs local_storage, the folder to copy the data to")
        return self


class Site(strict.Model):
    """The facts of one site; every key may be left out.

    Attributes:
        registry: where images are pushed to and pulled from, `HOST[:PORT]/NAMESPACE`.
        ca_bundle: PEM file with the certificates to trust, instead of the system's.
        proxy: address of the proxy for all downloads.
        recipes: folders of the user's own recipes, targets, data sets, apps and images.
        binds: folders of the host to show read-only in containers, and where inside.
        clusters: clusters that `submit` can give jobs to, by name; the first is taken unless
            `--cluster` names another.
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
    """Return a fingerprint given on the command line as it is kept, or raise UsageError."""
    try:
        return _FINGERPRINT.validate_python(text)
    except ValidationError as error:
        raise UsageError(
            f"'{text}' is no fingerprint: 40 hexadecimal digits",
            hint="`apptainer key list` shows those of your keyring",
        ) from error


def default_path() -> Path | None:
    """Return where the site file lies unless another one is named; None: there is no home."""
    folder = paths.of_user("XDG_CONFIG_HOME", ".config")
    return folder and folder / "site.yaml"


def load(path: Path | None) -> Site:
    """Read the site file at `path`; None means the default place, where it may be missing.

    Paths in it may begin with `~`; relative ones are relative to the file's folder.

    Raises:
        UsageError: a named file is missing, or a file has faults; with file and line.
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
    # Not Path.expanduser: it fails for a user whom nobody knows, about whom the use tells better.
    return Path(os.path.expanduser(path))  # noqa: PTH111


def apply(site: Site, ca_bundle: Path | None, environ: MutableMapping[str, str]) -> None:
    """Make `environ` say how to reach the network: for requests, uv, Apptainer and buildah.

    Args:
        site: its `ca_bundle` and `proxy` fill in what the environment leaves open.
        ca_bundle: given on the command line: wins over the environment.
        environ: changed in place, usually `os.environ`.

    Raises:
        UsageError: the certificates cannot be read, or are none; or a proxy of the environment
            is no address.
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
            # Not the value: it may hold a password.
            raise UsageError(
                f"the variable {name} is no address of a proxy",
                hint=f"set it to http://HOST[:PORT], or: unset {name}",
            ) from None


def check_bundle(path: Path) -> Path:
    """Return `path` if it is a PEM file with at least one certificate, else raise UsageError."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise UsageError(
            f"{path} holds no certificate in PEM form",
            hint="a PEM file has blocks -----BEGIN CERTIFICATE-----;"
            " `openssl x509 -inform der -in FILE` writes one from DER",
        ) from error
    except OSError as error:
        raise unreadable(f"the certificates {path}", error) from error
    return path
