"""Sign SIF files and verify their PGP signatures, with Apptainer and the keyring of the user.

A signature becomes part of the SIF and changes its SHA-256. A recipe pins the digest of the signed
file. Keys stay in Apptainer's keyring; no key server is used.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trimaran import architectures, engines, process
from trimaran.engines import store
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import RunError, UsageError
from trimaran.files import check_space, sha256
from trimaran.images.definition import Image
from trimaran.parsing import parse_json

KEYRING = ("APPTAINER_KEYSDIR", "APPTAINER_CONFIGDIR")
"""Environment variables that contain the path of Apptainer's keyring, if the keyring is not below
the home folder."""

_KEY = re.compile(r"^(\d+)\)\s+User:\s+(.*)$(?:\n\s+.*)*?\n\s+Fingerprint:\s+(\w{40})$", re.M)
_OBJECT = re.compile(r"^(\d+)\s+\|(\w+)\s+\|[^|]*\|[^|]*\|(.+)$", re.M)
_ENTITY = re.compile(r"^\s*Entity:\s+(\w{40})$", re.M)
_PROMPT = "Enter key passphrase"
_SPOILT = re.compile(r"compromised|not signed|not associated with object group|signature not found")


@dataclass(frozen=True)
class Key:
    """A private key: its number in the keyring, its fingerprint and its owner."""

    index: int
    fingerprint: str
    owner: str

    def __str__(self) -> str:
        return f"{self.index}) {self.fingerprint}  {self.owner}"


@dataclass(frozen=True)
class Signer:
    """The fingerprint and owner of a PGP key whose signature of an image is valid."""

    fingerprint: str
    owner: str


def file_of(image: Image) -> Path:
    """Return the path of the SIF of `image` in the cache.

    Raises:
        BuildError: The image is not built.
    """
    return Path(engines.require(Apptainer(), image).reference)


def choose_key(index: int | None) -> Key:
    """Return the private key with the number `index`, or the only key if `index` is None.

    Raises:
        UsageError: The keyring has no private key, no key with this number, or several keys while
            `index` is None.
    """
    listed = _apptainer("key", "list", "--secret").stdout
    keys = [Key(int(number), name, owner) for number, owner, name in _KEY.findall(listed)]
    if not keys:
        raise UsageError(
            "Apptainer's keyring has no private key", code="key-missing",
            hint="`apptainer key newpair` creates a key that a passphrase protects",
        )
    if index is None and len(keys) == 1:
        return keys[0]
    for key in keys:
        if key.index == index:
            return key
    problem = "has several private keys" if index is None else f"has no private key {index}"
    raise UsageError(
        "\n".join([f"Apptainer's keyring {problem}:", *(f"  {key}" for key in keys)]),
        code="key-ambiguous" if index is None else "key-missing",
        hint="choose a key with --key-index",
    )


def sign(sif: Path, key: Key, ask: Callable[[], str]) -> str:
    """Add a signature by `key` to the file `sif`; return its new digest, `sha256:…`.

    A copy is signed and verified, then renamed, so that `sif` is complete at every moment. The
    record of an image in the cache gets the new digest.

    Args:
        sif: path of the SIF.
        key: the private key, from `choose_key`.
        ask: function that returns the passphrase of the key; it is called only if the key has a
            passphrase.

    Raises:
        UsageError: This key has signed the file already, or the passphrase is wrong.
        RunError: The file differs from the built image, or Apptainer cannot sign it.
    """
    record = store.record_of(sif)
    if record is not None and (fault := store.damage(record)):
        raise RunError(f"{fault}; the image was not signed", code="image-damaged",
                       hint=f"`trimaran build {record.name}"
                       f"{architectures.option(record.architecture)}` renames it and builds it"
                       " again")
    if any(object_.is_signature for object_ in _objects(sif)):
        present = signers(sif)  # raises for an invalid signature: a new one does not repair it
        if key.fingerprint in {signer.fingerprint for signer in present}:
            raise UsageError(f"{sif} is signed by {key.fingerprint} already",
                             code="signature-exists")
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
    """Return the signers of `sif`; each signer has a valid signature of the whole file.

    Apptainer requires that signatures cover every object of the file, and that each signature is by
    a key of the keyring. This function also requires one group of objects, because two signers
    could otherwise have signed one part each.

    Raises:
        UsageError: The file is not a SIF.
        RunError: The file is not signed, was changed after it was signed, or is signed by an
            unknown key.
    """
    objects = _objects(sif)
    result = _apptainer("verify", "--local", "--json", str(sif))
    if result.returncode != 0:
        raise _refusal(sif, objects, result.stderr)
    if len({object_.group for object_ in objects if not object_.is_signature}) != 1:
        raise RunError(f"{sif} has several groups of objects, which may have different signers",
                       code="signature-invalid")
    owners = {
        str(entry["Signer"]["Fingerprint"]).upper(): str(entry["Signer"]["Name"])
        for entry in parse_json(result.stdout)["SignerKeys"]
    }
    return [Signer(fingerprint, owner) for fingerprint, owner in owners.items()]


def require(sif: Path, accepted: Sequence[Sequence[str]]) -> Signer:
    """Return the first accepted signer of `sif`.

    Args:
        sif: path of the SIF.
        accepted: lists of fingerprints; each list must contain at least one of the signers. Empty:
            every key of the keyring is accepted.

    Raises:
        UsageError: The file is not a SIF.
        RunError: The file has no valid signature (see `signers`), or a list of `accepted` contains
            none of its signers.
    """
    found = signers(sif)
    for wanted in accepted:
        if not {signer.fingerprint for signer in found} & set(wanted):
            raise RunError(
                f"{sif} is signed by {_names(found)}, not by {' or '.join(wanted)}",
                code="signer-refused",
                hint="get the image from a trusted source, or accept the signer's fingerprint",
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
        raise UsageError(f"{sif} is not a SIF file: {_last(result.stderr)}", code="image-invalid")
    return objects


def _sign(sif: Path, key: Key, ask: Callable[[], str]) -> None:
    words = ("sign", "--keyidx", str(key.index), str(sif))
    result = _apptainer(*words)
    if result.returncode != 0 and _PROMPT in result.stdout:
        # Apptainer reads the passphrase from standard input if that is not a terminal.
        result = _apptainer(*words, stdin=ask() + "\n")
        if result.returncode != 0:
            raise UsageError(f"Apptainer refuses the passphrase of key {key.index}:"
                             f" {_last(result.stderr)}", code="passphrase-wrong")
    if result.returncode != 0:
        raise RunError(f"Apptainer cannot sign {sif.name}: {_last(result.stderr)}",
                       code="program-failed")


def _refusal(sif: Path, objects: Sequence[_Object], output: str) -> RunError:
    """Return the error for a SIF that Apptainer could not verify; `output` is its error output."""
    signatures = [object_ for object_ in objects if object_.is_signature]
    if not signatures:
        return RunError(f"{sif} is not signed", code="signature-missing",
                        hint="`trimaran sign` signs an image")
    if _SPOILT.search(output):
        return RunError(f"{sif} was changed after it was signed: {_last(output)}",
                        code="signature-invalid", hint="do not use the file; get another copy")
    if "unknown entity" in output:
        shown = [_apptainer("sif", "info", signature.number, str(sif)) for signature in signatures]
        claimed = dict.fromkeys(name for info in shown for name in _ENTITY.findall(info.stdout))
        return RunError(
            f"{sif} names the signers {' and '.join(claimed)}, but Apptainer's keyring lacks a key"
            " of these, so no signature was verified", code="signer-unknown",
            hint="get the signer's public key from a trusted source, then run"
            " `apptainer key import FILE`",
        )
    return RunError(f"the signature of {sif} is not valid: {_last(output)}",
                    code="signature-invalid", hint="do not use the file; get another copy")


def _names(found: Sequence[Signer]) -> str:
    return " and ".join(f"{signer.fingerprint} ({signer.owner})" for signer in found)


def _last(text: str) -> str:
    """Return the last line of Apptainer's output, without its log level."""
    lines = text.strip().splitlines()
    return lines[-1].partition(":")[2].strip() or lines[-1] if lines else "no reason given"


def _apptainer(*words: str, stdin: str | None = None) -> process.Result:
    engine = Apptainer()
    env = engine.environment()
    env |= {name: os.environ[name] for name in KEYRING if name in os.environ}
    return process.run([engine.executable, *words], env=env, stdin=stdin)
