"""Map the licence names of Debian and Python packages to SPDX identifiers and to kinds.

Debian's copyright files and the metadata of Python packages use various names. A name with one
meaning is mapped to its SPDX identifier; an ambiguous name ("BSD License") has no identifier.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from cyclonedx import spdx
from pydantic import AfterValidator

from trimaran import paths, strict

_NAMES = {
    "apache 2.0": "Apache-2.0", "apache-2": "Apache-2.0", "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0", "apache 2.0 license": "Apache-2.0",
    "artistic": "Artistic-1.0-Perl", "artistic-2": "Artistic-2.0",
    "boost-1.0": "BSL-1.0", "bsl-1": "BSL-1.0",
    "cc0": "CC0-1.0", "expat": "MIT", "mit license": "MIT", "isc license (iscl)": "ISC",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0", "mpl-2": "MPL-2.0",
    "python software foundation license": "PSF-2.0", "psf": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}
_GNU = re.compile(r"(A?GPL|LGPL|GFDL)(-NIV)?-?v?(\d)(?:\.(\d))?(\+?)", re.IGNORECASE)

GROUPS = (
    ("proprietary", r"proprietary|nvidia|eula|cuda"),
    ("documentation", r"GFDL"),
    ("weak copyleft", r"LGPL|MPL|EPL|CDDL|Sleepycat"),
    ("copyleft", r"A?GPL"),
    ("public domain", r"public.domain|CC0|Unlicense|0BSD|PD(-|$)"),
    ("permissive", r"MIT|BSD|Apache|ISC|Zlib|PSF|Python|X11|BSL|Boost|Expat|Artistic|Unicode"
                   r"|HPND|OpenSSL|libpng|FSFAP|FSFULLR|FTL|TCL|W3C|BZIP"),
)
"""Pairs of a kind of licence and a pattern. A licence has the first kind whose pattern matches the
beginning of a word in the name of the licence."""

UNSTATED, OTHER = "not stated", "other"
"""Kinds of licences for two special cases: the package states no licence, and the name of the
licence matches no pattern in `GROUPS`."""

KINDS = (*(group for group, _ in GROUPS), OTHER, UNSTATED)
"""All kinds of licences, in the order in which tables list them."""


def _expression(text: str) -> str:
    if not spdx.is_supported_id(text) and not spdx.is_expression(text):
        raise ValueError(f"'{text}' is not an SPDX identifier or expression")
    return text


class Settled(strict.Model):
    """The licence that a person has determined by reading a copyright file, and the reason."""

    packages: tuple[str, ...]
    licence: Annotated[str, AfterValidator(_expression)]
    reason: str


class _File(strict.Model):
    debian: tuple[Settled, ...]


@functools.cache
def settled(path: Path | None = None) -> Mapping[str, Settled]:
    """Return the entries of `containers/licences.yaml` by Debian package."""
    entries = strict.load(_File, path or paths.repository() / "containers/licences.yaml").debian
    return {name: entry for entry in entries for name in entry.packages}


def identifier(name: str) -> str | None:
    """Return the SPDX identifier of the licence `name`, or None if there is none."""
    gnu = _GNU.fullmatch(name)
    if gnu is None:
        return _NAMES.get(name.lower()) or spdx.fixup_id(name)
    family, invariants, major, minor, later = gnu.groups()
    parts = [family.upper(), f"{major}.{minor or 0}"]
    if invariants:
        parts += ["no", "invariants"]
    return spdx.fixup_id("-".join([*parts, "or-later" if later else "only"]))


def groups(names: Iterable[str]) -> set[str]:
    """Return the kinds of the licences in `names`; one name may combine several licences."""
    words = [word for name in names for word in re.split(r"\s+(?:and|or|and/or)\s+|,\s", name,
                                                         flags=re.IGNORECASE)]
    return {_group(word) for word in words} or {UNSTATED}


def _group(name: str) -> str:
    for group, pattern in GROUPS:
        if re.search(rf"(?<![a-z])(?:{pattern})", name, re.IGNORECASE):
            return group
    return OTHER


def summary(packages: Iterable[Iterable[str]]) -> dict[str, int]:
    """Return the number of packages with each kind of licence; a package may have several kinds."""
    counts: dict[str, int] = {}
    for names in packages:
        for group in groups(names):
            counts[group] = counts.get(group, 0) + 1
    return {kind: counts[kind] for kind in KINDS if kind in counts}
