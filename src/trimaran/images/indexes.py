"""Find Python packages on the package indexes that pip's configuration names.

PyPI is the default. A mirror, further indexes and folders of wheels are read from pip's
environment variables and configuration files. A file is accepted only if its SHA-256 is in the
lock.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

import requests
from platformdirs import site_config_path
from pydantic import BaseModel, ValidationError

from trimaran import paths
from trimaran.net import web
from trimaran.parsing import JSON_BYTES, parse_json

PYPI = "https://pypi.org/simple"
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
PAGE_SECONDS = 300.0
"""Timeout in seconds for one page of an index; some have several megabytes."""

FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
"""The pattern of accepted file names, which excludes paths."""


@dataclass(frozen=True)
class File:
    """A file of an index, with the hash and the size in bytes that the index states."""

    filename: str
    url: str
    sha256: str
    size: int | None


@dataclass
class Sources:
    """The package indexes and the folders of wheels that pip would use, in pip's order.

    Attributes:
        indexes: simple indexes, http(s) or file URLs.
        find_links: folders with wheels.
        silent: index that did not answer -> the reason; such an index is not requested again.
    """

    indexes: tuple[str, ...]
    find_links: tuple[Path, ...]
    silent: dict[str, str] = field(default_factory=dict)

    def files(self, project: str) -> Iterable[File]:
        """Yield the files of `project`, the files of the first index first."""
        for index in self.indexes:
            if index not in self.silent:
                try:
                    yield from _listing(index, project)
                except (requests.RequestException, OSError, ValueError) as error:
                    self.silent[index] = _reason(error)

    def local(self, filename: str) -> list[str]:
        """Return the paths of the files with this name in the find-links folders."""
        candidates = [folder / filename for folder in self.find_links]
        return [str(path) for path in candidates if path.is_file()]


def configured() -> Sources:
    """Return the sources that pip would use on this machine."""
    settings: dict[str, str] = {}
    for path in _config_files():
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip itself reports a broken file
        for section in ("global", "download"):
            if parser.has_section(section):
                settings |= {k.replace("_", "-"): v for k, v in parser.items(section)}
    for key in ("index-url", "extra-index-url", "find-links"):
        variable = "PIP_" + key.upper().replace("-", "_")
        settings[key] = os.environ.get(variable, settings.get(key, ""))
    indexes = [settings["index-url"].strip() or PYPI, *settings["extra-index-url"].split()]
    folders = [_local_path(word) for word in settings["find-links"].split()]
    return Sources(
        tuple(dict.fromkeys(index.rstrip("/") for index in indexes)),
        tuple(folder for folder in folders if folder is not None and folder.is_dir()),
    )


def _config_files() -> list[Path]:
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    return [
        Path("/etc/pip.conf"),
        site_config_path("pip") / "pip.conf",
        *([home / ".pip/pip.conf"] if (home := paths.home()) else []),
        *([config / "pip/pip.conf"] if (config := paths.user_folder("XDG_CONFIG_HOME", ".config"))
          else []),
        Path(sys.prefix) / "pip.conf",
        *([Path(named)] if named else []),
    ]


def _local_path(word: str) -> Path | None:
    parts = urlsplit(word)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return Path(word) if parts.scheme == "" else None


def _listing(index: str, project: str) -> list[File]:
    """Return the files of `project` in one simple index (PEP 503 or PEP 691)."""
    page = f"{index}/{project}/"
    folder = _local_path(index) if urlsplit(index).scheme == "file" else None
    if folder is not None:
        listing = folder / project / "index.html"
        text = listing.read_text(encoding="utf-8") if listing.is_file() else ""
        return _parse_html(text, page)
    answer = web.answer(page, headers={"Accept": ACCEPT}, most=JSON_BYTES, seconds=PAGE_SECONDS)
    if answer.status == 404:
        return []
    if answer.status >= 400:
        raise ValueError(answer.phrase)
    text = answer.content.decode("utf-8", errors="replace")
    if "json" in answer.headers.get("Content-Type", ""):
        return _parse_json(text, answer.url)
    return _parse_html(text, answer.url)


def _parse_json(text: str, page: str) -> list[File]:
    try:
        listing = _Page.model_validate(parse_json(text))
    except ValidationError as error:
        raise ValueError("the answer is not a page of a package index") from error
    return [
        File(entry.filename, urljoin(page, entry.url), entry.hashes["sha256"], entry.size)
        for entry in listing.files
        if "sha256" in entry.hashes and FILENAME.fullmatch(entry.filename)
    ]


def _parse_html(text: str, page: str) -> list[File]:
    links = _Links()
    try:
        links.feed(text)
    except AssertionError as error:  # html.parser raises it for some invalid markup
        raise ValueError("the answer is not a page of a package index") from error
    files = []
    for href in links.hrefs:
        url, fragment = urldefrag(urljoin(page, href))
        if fragment.startswith("sha256="):
            filename = unquote(urlsplit(url).path.rpartition("/")[2])
            if not FILENAME.fullmatch(filename):
                continue
            files.append(File(filename, url, fragment.removeprefix("sha256="), None))
    return files


class _Entry(BaseModel):
    """The description of a file in the JSON form of an index, with the keys that are used here."""

    filename: str
    url: str
    hashes: dict[str, str]
    size: int | None = None


class _Page(BaseModel):
    files: list[_Entry]


class _Links(HTMLParser):
    """A parser that collects the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the target of a link."""
        if tag == "a":
            self.hrefs += [value for key, value in attrs if key == "href" and value]


def _reason(error: Exception) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted (see --ca-bundle)"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error) or type(error).__name__
