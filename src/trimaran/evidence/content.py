"""Compute the hash of the content of evidence, and detect edited files by this hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from trimaran import files, paths
from trimaran.report.history import RESULTS

SCHEMA = 1
"""Version of the schema of evidence: the value of the key `schema`."""

HASH = "sha256"
"""Key of evidence whose value is the hash of all other keys and their values."""

LISTED = "without-hash.sha256"
"""File in `site/results` with the SHA-256 of older evidence, which contains no hash. The format is
the output of `sha256sum`."""


def digest(content: Mapping[str, object]) -> str:
    """Return the SHA-256 of evidence without its key `sha256`.

    It is the hash of the JSON text with sorted keys, without spaces and line breaks, and with
    non-ASCII characters escaped. Therefore it does not depend on the layout of the file.
    """
    text = json.dumps({key: value for key, value in content.items() if key != HASH},
                      sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(content: Mapping[str, object]) -> dict[str, object]:
    """Return `content` with two more keys: `schema`, and `sha256`, the hash of all other keys."""
    whole = {"schema": SCHEMA, **content}
    return {**whole, HASH: digest(whole)}


def listed() -> frozenset[str]:
    """Return the SHA-256 of each older evidence file, which does not contain its own hash.

    The hashes are read from the file `LISTED`; without this file, the set is empty.
    """
    path = paths.repository() / RESULTS / LISTED
    if not path.is_file():
        return frozenset()
    return frozenset(line.split(" ")[0] for line in files.read_text(path).splitlines())


def fault(content: Mapping[str, object], raw: bytes, known: frozenset[str]) -> str | None:
    """Return the fault of evidence that was edited or has no hash, or None if there is no fault.

    Args:
        content: the parsed content of the file.
        raw: the bytes of the file.
        known: the SHA-256 of the older evidence files, which do not contain their own hash; see
            `listed`.
    """
    told = content.get(HASH)
    if told is None:
        if hashlib.sha256(raw).hexdigest() in known:
            return None
        return (f"is missing, and the file is none of those that {RESULTS}/{LISTED} lists, which"
                " were published before evidence had a hash")
    found = digest(content)
    if told != found:
        return f"the content was edited: it has the SHA-256 {found}, not {str(told)[:64]}"
    return None
