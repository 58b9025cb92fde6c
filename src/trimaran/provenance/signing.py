"""PGP signatures of SIF files, made and checked by Apptainer with the user's own keyring.

A signature becomes part of the SIF, so the file's SHA-256 changes: what a recipe pins is
the digest of the signed file. Keys stay in Apptainer's keyring, and no key server is asked.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trimaran import engines, process
from trimaran.engines import store
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import RunError, UsageError
from trimaran.files import check_space, sha256
from trimaran.images.definition import Image
from trimaran.parsing import parse_json

KEYRING = ("APPTAINER_KEYSDIR", "APPTAINER_CONFIGDIR")
"""Variables that say where Apptainer's keyring is, if not below the home folder."""

_KEY = re.compile(r"^(\d+)\)\s+User:\s+(.*)$(?:\n\s+.*)*?\n\s+Fingerprint:\s+(\w{40})$", re.M)
_OBJECT = re.compile(r"^(\d+)\s+\|(\w+)\s+\|[^|]*\|[^|]*\|(.+)$", re.M)
_ENTITY = re.compile(r"^\s*Entity:\s+(\w{40})$", re.M)
_PROMPT = "Enter key passphrase"
_SPOILT = re.compile(r"compromised|not signed|not associated with object group|signature not found")


@dataclass(frozen=True)
class Key:
    """A private key of the keyring: its number there, fingerprint and owner."""

    index: int
    fingerprint: str
    owner: str

    def __str__(self) -> str:
        return f"{self.index}) {self.fingerprint}  {self.owner}"


@dataclass(frozen=True)
class Signer:
    """Whose valid signature an image has."""

    fingerprint: str
    owner: str


def file_of(image: Image) -> Path:
    """Return the SIF in the cache of the image; BuildError: it is not built."""
    return Path(engines.require(Apptainer(), image).reference)


def choose_key(index: int | None) -> Key:
    """Return the private key with this number, or the only one there is.

    Raises:
        UsageError: there is none, none of that number, or more than one to choose from.
    """
    listed = _apptainer("key", "list", "--secret").stdout
    keys = [Key(int(number), name, owner) for number, owner, name in _KEY.findall(listed)]
    if not keys:
        raise UsageError(
            "Apptainer's keyring holds no private key to sign with",
            hint="`apptainer key newpair` makes one, protected by a passphrase",
        )
    if index is None and len(keys) == 1:
        return keys[0]
    for key in keys:
        if key.index == index:
            return key
    problem = "there are several keys" if index is None else f"there is no key {index}"
    raise UsageError(
        "\n".join([f"{problem} in Apptainer's keyring:", *(f"  {key}" for key in keys)]),
        hint="choose one with --key-index",
    )


def sign(sif: Path, key: Key, ask: Callable[[], str]) -> str:
    """Add a signature by `key` to the file `sif`; return its new digest, `sha256:…`.

    A copy is signed and checked, then renamed: `sif` is whole at every moment. The record
    of an image in the cache gets the new digest.

    Args:
        sif: the file.
        key: from `choose_key`.
        ask: gives the key's passphrase; called only if the key has one.

    Raises:
        UsageError: this key has signed the file already, or the passphrase is wrong.
        RunError: the file is not as it was built, or Apptainer cannot sign it.
    """
    record = store.record_of(sif)
    if record is not None and (fault := store.damage(record)):
        raise RunError(f"{fault}; it is not signed",
                       hint=f"`trimaran build {record.name}` sets it aside and makes it anew")
    if any(object_.is_signature for object_ in _objects(sif)):
        found = signers(sif)  # a signature that does not hold would spoil the new one as well
        if key.fingerprint in {signer.fingerprint for signer in found}:
            raise UsageError(f"{sif} is signed by {key.fingerprint} already")
    check_space(sif.parent, sif.stat().st_size, "a copy to sign", RunError)
    with tempfile.TemporaryDirectory(prefix="part-", dir=sif.parent) as folder:
        copy = Path(shutil.copy(sif, folder))
        _sign(copy, key, ask)
        require(copy, [[key.fingerprint]])
        digest, size = f"sha256:{sha256(copy)}", copy.stat().st_size
        copy.replace(sif)
    if record is not None:
        store.save(replace(record, digest=digest, size=size))
    return digest


def signers(sif: Path) -> list[Signer]:
    """Return who has signed `sif`, each with a signature that holds for all of the file.

    Apptainer itself insists that every object of the file is covered and every signature
    by a key of the keyring; that there is one group of objects is required here, so that
    no two signers each vouch for a part.

    Raises:
        RunError: not signed, changed after it was signed, or signed by an unknown key.
    """
    objects = _objects(sif)
    result = _apptainer("verify", "--local", "--json", str(sif))
    if result.returncode != 0:
        raise _refusal(sif, objects, result.stderr)
    if len({object_.group for object_ in objects if not object_.is_signature}) != 1:
        raise RunError(f"{sif} has several groups of objects, which may have different signers")
    found = {
        str(entry["Signer"]["Fingerprint"]).upper(): str(entry["Signer"]["Name"])
        for entry in parse_json(result.stdout)["SignerKeys"]
    }
    return [Signer(fingerprint, owner) for fingerprint, owner in found.items()]


def require(sif: Path, accepted: Sequence[Sequence[str]]) -> Signer:
    """Return the first signer of `sif`, having a valid one in each list of `accepted`.

    Args:
        sif: the file.
        accepted: lists of fingerprints; with none, any key of the keyring will do.

    Raises:
        RunError: no such signature, for the reasons of `signers` or by another key.
    """
    found = signers(sif)
    for wanted in accepted:
        if not {signer.fingerprint for signer in found} & set(wanted):
            raise RunError(
                f"{sif} is signed by {_names(found)}, and not by {' or '.join(wanted)}",
                hint="get the image from whom you trust, or accept the signer's fingerprint",
            )
    all_wanted = {fingerprint for wanted in accepted for fingerprint in wanted}
    return next((signer for signer in found if signer.fingerprint in all_wanted), found[0])


@dataclass(frozen=True)
class _Object:
    """One object of a SIF file, as `apptainer sif list` shows it."""

    number: str
    group: str
    kind: str

    @property
    def is_signature(self) -> bool:
        return self.kind.startswith("Signature")


def _objects(sif: Path) -> list[_Object]:
    result = _apptainer("sif", "list", str(sif))
    objects = [_Object(*found) for found in _OBJECT.findall(result.stdout)]
    if result.returncode != 0 or not objects:
        raise UsageError(f"{sif} is no SIF file: {_last(result.stderr)}")
    return objects


def _sign(sif: Path, key: Key, ask: Callable[[], str]) -> None:
    words = ("sign", "--keyidx", str(key.index), str(sif))
    result = _apptainer(*words)
    if result.returncode != 0 and _PROMPT in result.stdout:
        # Apptainer reads it from standard input where that is no terminal.
        result = _apptainer(*words, stdin=ask() + "\n")
        if result.returncode != 0:
            raise UsageError(f"the passphrase of key {key.index} is not accepted:"
                             f" {_last(result.stderr)}")
    if result.returncode != 0:
        raise RunError(f"Apptainer cannot sign {sif.name}: {_last(result.stderr)}")


def _refusal(sif: Path, objects: Sequence[_Object], said: str) -> RunError:
    """Return the error for a file that Apptainer does not verify, given what it said."""
    signatures = [object_ for object_ in objects if object_.is_signature]
    if not signatures:
        return RunError(f"{sif} is not signed", hint="its maker signs it with `trimaran sign`")
    if _SPOILT.search(said):
        return RunError(f"{sif} has changed after it was signed: {_last(said)}",
                        hint="do not use it; get it anew")
    if "unknown entity" in said:
        shown = [_apptainer("sif", "info", signature.number, str(sif)) for signature in signatures]
        claimed = dict.fromkeys(name for info in shown for name in _ENTITY.findall(info.stdout))
        return RunError(
            f"{sif} claims to be signed by {' and '.join(claimed)}; not all of these keys"
            " are in Apptainer's keyring, so nothing is verified",
            hint="get the signer's public key in a way you trust, then `apptainer key import FILE`",
        )
    return RunError(f"the signature of {sif} does not hold: {_last(said)}")


def _names(found: Sequence[Signer]) -> str:
    return " and ".join(f"{signer.fingerprint} ({signer.owner})" for signer in found)


def _last(text: str) -> str:
    """Return the last line of what Apptainer said, without its level."""
    lines = text.strip().splitlines()
    return lines[-1].partition(":")[2].strip() or lines[-1] if lines else "no reason given"


def _apptainer(*words: str, stdin: str | None = None) -> process.Result:
    engine = Apptainer()
    env = engine.environment()
    env |= {name: os.environ[name] for name in KEYRING if name in os.environ}
    return process.run([engine.executable, *words], env=env, stdin=stdin)
