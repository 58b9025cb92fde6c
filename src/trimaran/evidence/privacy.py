"""Find and remove private facts in evidence: paths, addresses, and names of users and hosts."""

from __future__ import annotations

import getpass
import ipaddress
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from trimaran.parsing import Location
from trimaran.terminal_safety import visible

_PATH = re.compile(
    r"file:/[^\s,;'\"]+|\b[A-Za-z]:\\[^\s,;'\"]+"
    r"|(?<![\w./])(?:~[\w.-]*|\.{1,2})?/[\w.~+@%$-][^\s,;:'\"()\[\]]*"
    r"|(?<![\w/])(?:home|users)/[\w.-]+[^\s,;:'\"()\[\]]*"
)
"""Pattern of a path: absolute, in a home folder, relative with `./` or `../`, or a Windows path."""

_SYSTEM = re.compile(
    r"/(?:usr|lib|lib64|bin|sbin|proc|sys|dev|opt/trimaran|opt/rocm)(?:/(?!\.\.)[\w.+@-]+)*/?"
)
"""Pattern of a path that the operating system or the image determines; it is not private."""

_INSIDE = re.compile(r"/(?:data|out|initial\.?[\w-]*)(?:/(?!\.\.)[\w.+@-]+)*/?")
"""Pattern of a path in the container of a run (`run/launch_spec.py`), which is allowed only in the
command of the run."""

_ADDRESS = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\w)"
    r"|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,8}[0-9A-Fa-f.]*(?![\w:])"
)
"""Pattern of a text that may be an IPv4 address, an IPv6 address or a hardware (MAC) address."""

_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5,7}[0-9A-Fa-f]{2}")

_HOST = re.compile(
    r"(?<![\w.@-])(?:[a-z0-9][a-z0-9-]*\.)+(?:ac|at|au|be|br|ca|ch|cloud|cluster|cn|com|corp|cz|de"
    r"|dk|edu|es|eu|fi|fr|gov|gr|home|hpc|internal|int|intranet|jp|kr|lan|local|localdomain|mil|net"
    r"|nl|no|org|pl|se|tw|uk|us)(?![\w-]|\.\w)", re.IGNORECASE,
)
"""Pattern of the full name of a host in a public domain or in a common private domain."""

_USER = re.compile(r"(?<![\w.+-])[\w.+-]+@(?!sha256\b|\d+\b)[A-Za-z][\w.-]*")
"""Pattern of `user@host` and of mail addresses, but not of one run of a series (`RECIPE@4`) or of
an image with its digest (`IMAGE@sha256:...`)."""

_TELLING = re.compile(
    r"(?:.*_)?(?:HOST|HOSTNAME|HOSTLIST|HOSTFILE|NODENAME|NODELIST|USER|USERNAME|LOGNAME|HOME|PWD"
    r"|ADDR|ADDRESS|ENDPOINT|ACCOUNT|TOKEN|SECRET|PASSWORD|CREDENTIALS?|UUID|SERIAL)",
    re.IGNORECASE,
)
"""Pattern of keys and names of environment variables, such as `SLURM_JOB_USER`, whose values are
names of hosts or users, addresses or secrets."""

_GENERIC = frozenset({
    "admin", "build", "debian", "docker", "host", "localhost", "node", "root", "runner", "test",
    "ubuntu", "user", "vagrant",
})
"""Common names of users and hosts, which identify no person and no machine."""

REMOVED = "[removed]"

_PUBLIC = frozenset({("run", "recipe", "name"), ("run", "image", "name")})
"""Key paths of the names of recipe and image. They are public, even if they contain the name of a
user or host."""


def names_here() -> list[str]:
    """Return the names of this host and this user, without common names such as `localhost`."""
    found = [platform.node(), *(os.environ.get(key, "") for key in ("USER", "LOGNAME"))]
    with suppress(OSError, KeyError):
        found.append(getpass.getuser())
    return telling(found)


def telling(names: Iterable[str]) -> list[str]:
    """Return each name and its part before the first dot; these texts would reveal a host or user.

    Common names (`_GENERIC`) and names of one or two characters are left out.
    """
    every = [part for name in names for part in (name, name.partition(".")[0])]
    return [name for name in dict.fromkeys(every) if len(name) > 2 and name not in _GENERIC]


def name_in(text: str, names: Iterable[str]) -> str | None:
    """Return the first name that occurs in `text` as a whole word, or None.

    The names are those of `telling(names)`, which leaves out short and common names. A word
    consists of ASCII letters and digits: `node7` occurs in `log-node7.txt`, but not in `node70`.
    Upper and lower case are equal.
    """
    return next((name for name in telling(names) if re.search(
        rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", text, re.IGNORECASE)), None)


def faults(content: object, names: Iterable[str]) -> Iterator[tuple[Location, str]]:
    """Yield the key path of each private text in `content`, and the kind of the private fact.

    Texts with control characters are reported, too, because evidence has none.

    Args:
        content: parsed JSON.
        names: further names of users and hosts.
    """
    known = _any_of(names)
    for at, text in _texts(content):
        if visible(text) != text or "\n" in text or "\t" in text:
            yield at, "contains control characters"
        elif _is_telling(at) and text != REMOVED:
            yield at, "names a host, a user, an address or a secret"
        else:
            kinds = (kind for kind, _ in _private(text, at, known))
            if (kind := next(kinds, None)) is not None:
                yield at, f"contains {kind}"


def cleaned(content: Any, names: Iterable[str]) -> Any:
    """Return a copy of `content` in which `[path]`, `[user]` and the like replace private facts.

    Args:
        content: data that can be written as JSON.
        names: further names of users and hosts.
    """
    return _cleaned(content, (), _any_of(names))


def _cleaned(value: Any, at: Location, known: re.Pattern[str] | None) -> Any:
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, below in value.items():
            name = whole = _without(visible(key), at, known)
            number = 1
            while name in found:  # as two paths, which are both replaced by `[path]`
                number += 1
                name = f"{whole}-{number}"
            found[name] = _cleaned(below, (*at, key), known)
        return found
    if isinstance(value, list):
        return [_cleaned(below, (*at, number), known) for number, below in enumerate(value)]
    if not isinstance(value, str):
        return value
    if at in _PUBLIC:
        return value
    return REMOVED if _is_telling(at) else _without(visible(value), at, known)


def _without(text: str, at: Location, known: re.Pattern[str] | None) -> str:
    kept, end = [], 0
    found = sorted(_private(text, at, known),
                   key=lambda one: (one[1].start(), -one[1].end()))
    for kind, match in found:
        if match.start() >= end:
            kept += [text[end:match.start()], f"[{kind.split()[-1]}]"]
            end = match.end()
    return " ".join("".join([*kept, text[end:]]).split("\n")).replace("\t", " ")


def _texts(value: object, at: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield all texts of parsed JSON, including keys, and the key path of each text."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for key, below in value.items():
            if not _is_telling((*at, key)):
                yield (*at, key), str(key)
            yield from _texts(below, (*at, key))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from _texts(below, (*at, number))


def _is_telling(at: Location) -> bool:
    """Return whether the value at a key path is private because its key matches `_TELLING`.

    Only keys below `run.environment` and `run.site` are tested.
    """
    return (at[:2] in (("run", "environment"), ("run", "site")) and len(at) > 2
            and isinstance(at[-1], str) and _TELLING.fullmatch(at[-1]) is not None)


def _any_of(names: Iterable[str]) -> re.Pattern[str] | None:
    words = sorted(map(re.escape, telling(names)), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(words)})(?![\w-])") if words else None


def _private(
    text: str, at: Location, known: re.Pattern[str] | None
) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield each private fact in a text: a description of its kind, and the match in the text."""
    tests: list[tuple[str, re.Pattern[str], Callable[[str], bool]]] = [
        ("a path", _PATH, lambda path: not _is_public_path(path, at)),
        ("a user", _USER, lambda user: True),
        ("an address", _ADDRESS, lambda address: _is_address(address) and not _is_version(at)),
    ]
    # The basis of an expectation is the source in the recipe, which may be an internet address.
    if at[-1:] != ("basis",):
        tests.append(("the name of a host", _HOST, lambda host: True))
    if known is not None and at not in _PUBLIC and at[-1:] != ("basis",):
        tests.append(("the name of a user or host", known, lambda name: True))
    for kind, pattern, holds in tests:
        yield from ((kind, match) for match in pattern.finditer(text) if holds(match[0]))


def _is_public_path(path: str, at: Location) -> bool:
    if _SYSTEM.fullmatch(path):
        return True
    return at[:2] == ("run", "command") and _INSIDE.fullmatch(path) is not None


def _is_version(at: Location) -> bool:
    """Return whether the text at a key path is a package version, which may resemble an address."""
    return at[:3] == ("run", "environment", "packages")


def _is_address(text: str) -> bool:
    """Return whether a text is an address that identifies a device or a network."""
    if _MAC.fullmatch(text):
        return True
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)
