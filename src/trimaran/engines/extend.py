"""Make a virtual environment with packages that an image lacks, for `run --venv`.

The Python and the pip of the image make the environment in a container, so that the packages fit
the image, and packages of the image are not installed a second time. A record in the environment
lists the installed files with their hashes, and the digest of the image.
"""

from __future__ import annotations

import os
import shutil
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import BaseModel

from trimaran import parsing, process
from trimaran.engines import BuiltImage, Engine, Setting, commands, require
from trimaran.engines.selection import no_images
from trimaran.errors import BuildError, UsageError
from trimaran.files import sha256, write_atomic
from trimaran.images import definition, indexes
from trimaran.images.definition import Image
from trimaran.images.parts import VENV
from trimaran.launch.specification import Command, Mount
from trimaran.reporting import Reporter

RECORD = "trimaran.json"
LOCK = "requirements.lock"

# Our images contain pip as a wheel, which runs without installation; images of a vendor have it
# installed.
_PIP = """
import glob, os, sys
python, *words = sys.argv[1:]
wheels = glob.glob("/usr/share/python-wheels/pip-*.whl")
os.execv(python, [python, *([wheels[0] + "/pip"] if wheels else ["-m", "pip"]), *words])
"""
_OPTIONS = (
    # Wheels only: images have no compiler, and no code of a package is executed.
    "--only-binary", ":all:", "--no-compile", "--no-cache-dir", "--no-input",
    "--disable-pip-version-check", "--root-user-action=ignore", "--progress-bar", "off",
)
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)


class Added(BaseModel):
    """An installed package, and the SHA-256 of its wheel."""

    name: str
    version: str
    sha256: str


class Record(BaseModel):
    """The content of `trimaran.json` in the environment.

    Attributes:
        image: name of the image; the environment uses the Python of this image.
        digest: digest of the image.
        asked: the requested packages, as the user wrote them.
        packages: the installed packages.
    """

    image: str
    digest: str | None
    asked: tuple[str, ...]
    packages: tuple[Added, ...]


def extend(
    engine: Engine, image: Image, asked: Sequence[str], out: Path, *, find_links: Sequence[Path],
    offline: bool, reporter: Reporter,
) -> Record:
    """Make the virtual environment `out` with the packages `asked`, for `image`.

    Args:
        engine: the engine of the image.
        image: the image; the environment uses its Python.
        asked: requirements of pip, such as `timm>=1.0,<2`.
        out: the folder to make.
        find_links: folders with wheels, in addition to the folders in pip's configuration.
        offline: take wheels from folders only.
        reporter: shows progress.

    Raises:
        UsageError: a requirement is invalid, `out` exists, or the engine has no images.
        BuildError: the image is not built, or pip cannot install a package.
    """
    if not engine.container:
        raise no_images(engine.name)
    for text in asked:
        _check(text)
    built = require(engine, image)
    _make_new(out)
    try:
        folders = [*map(Path.absolute, find_links), *indexes.configured().find_links]
        with reporter.bar(f"installing {' '.join(asked)}", None):
            site = f"lib/python{definition.interpreter(image).version}/site-packages"
            packages = _fill(engine, built, site, asked, out, folders, offline, reporter)
        found = Record(image=image.name, digest=built.digest, asked=tuple(asked),
                       packages=tuple(packages))
        write_atomic(out / LOCK, "".join(
            f"{one.name}=={one.version} --hash=sha256:{one.sha256}\n" for one in packages
        ))
        write_atomic(out / RECORD, found.model_dump_json(indent=1) + "\n")
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    return found


def _make_new(out: Path) -> None:
    if os.path.lexists(out):
        raise UsageError(f"{out} exists", code="file-exists",
                         hint="choose another --out, or remove it")
    try:
        out.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"cannot make {out}: {error.strerror}", code="file-unwritable",
                         hint="choose another --out") from error


def _check(text: str) -> None:
    try:
        Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(
            f"'{text}' does not name a package", code="argument-invalid",
            hint="for example einops or 'timm>=1.0,<2'; put your own wheels into a folder for"
            " --find-links",
        ) from error


def _fill(
    engine: Engine, built: BuiltImage, site: str, asked: Sequence[str], out: Path,
    folders: Sequence[Path], offline: bool, reporter: Reporter,
) -> list[Added]:
    """Create the virtual environment in `out`, and return the packages installed into it."""
    work = out / "work"  # pip unpacks here: /tmp of a container is small
    work.mkdir()
    mounts = [Mount(str(out), str(out), writable=True),
              *(Mount(str(folder), str(folder)) for folder in dict.fromkeys(folders))]
    env = {"TMPDIR": str(work), **({} if offline else _network(work))}
    if folders:
        env["PIP_FIND_LINKS"] = " ".join(map(str, folders))

    def python(*words: str) -> None:
        command = engine.python(built, words, Setting(mounts, env, network=not offline))
        if errors := _errors(command, reporter):
            raise BuildError(
                f"{' '.join(asked)} cannot be installed beside {built.name}:\n" + "\n".join(errors),
                code="install-failed",
                hint="with --offline, wheels come only from --find-links" if offline else None,
            )

    python("-m", "venv", "--without-pip", str(out))
    (out / site / "image.pth").write_text(
        f"import site; site.addsitedir('{VENV}/{site}')\n", encoding="utf-8"
    )
    python(
        "-c", _PIP, str(out / "bin/python"), "install", "--report", str(work / "report.json"),
        *_OPTIONS, *(["--no-index"] if offline else []), *asked,
    )
    report = parsing.parse_json((work / "report.json").read_text(encoding="utf-8"))
    shutil.rmtree(work)
    return [_added(entry) for entry in report["install"]]


def _errors(command: Command, reporter: Reporter) -> list[str]:
    """Run `command`, and return [] if it succeeds.

    If it fails, return the lines of its output that begin with `ERROR:`, or else the last lines.
    """
    output: list[str] = []

    def keep(line: str) -> None:
        output.append(line)
        reporter.detail(line)

    if process.stream(command.argv, None, reporter, env=command.env, on_line=keep) == 0:
        return []
    return [line for line in output if line.startswith("ERROR:")] or output[-10:] or ["failed"]


def _network(work: Path) -> dict[str, str]:
    """Return variables with which pip uses this machine's package indexes, proxy and certificates.

    The file with the certificates is copied to the folder `work`, which is mounted in the
    container.
    """
    first, *more = indexes.configured().indexes
    env = {name: os.environ[name] for name in commands.FOR_THE_NETWORK
           if name in os.environ and not name.startswith("SSL_")}
    env["PIP_INDEX_URL"] = first
    if more:
        env["PIP_EXTRA_INDEX_URL"] = " ".join(more)
    known = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *_BUNDLES)
    bundle = next((path for path in known if path and Path(path).is_file()), None)
    if bundle is not None:
        env["PIP_CERT"] = str(shutil.copyfile(bundle, work / "certificates.pem"))
    return env


def _added(entry: dict[str, dict[str, str]]) -> Added:
    source: dict[str, object] = dict(entry["download_info"])
    archive = source.get("archive_info")
    hash_ = archive.get("hash", "") if isinstance(archive, dict) else ""
    url = urlsplit(str(source["url"]))
    if not hash_ and url.scheme == "file":  # pip reports no hash of a file from a folder
        hash_ = f"sha256={sha256(Path(url2pathname(url.path)))}"
    about = entry["metadata"]
    return Added(name=about["name"], version=about["version"], sha256=hash_.removeprefix("sha256="))
