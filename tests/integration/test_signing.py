"""Real signatures with temporary keyrings: sign, verify, tamper, refuse."""

from __future__ import annotations

import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from refusals import refused
from trimaran.engines import BuiltImage, store
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import RunError, UsageError
from trimaran.files import sha256
from trimaran.images import definition
from trimaran.provenance import signing
from trimaran.reporting import Silent

pytestmark = [pytest.mark.engine("apptainer"), pytest.mark.timeout(280)]

PASSPHRASE = "correct horse"


def new_key(keyring: Path, owner: str, passphrase: str = "") -> str:
    """Create a small key, to save time, and return its fingerprint."""
    env = {**os.environ, "APPTAINER_KEYSDIR": str(keyring)}
    program = Apptainer().executable
    subprocess.run(
        [program, "key", "newpair", "--name", owner, "--email", f"{owner}@example.org",
         "--comment", "", "--password", passphrase, "--push=false", "--bit-length", "2048"],
        env=env, check=True, capture_output=True, stdin=subprocess.DEVNULL,
    )
    listed = subprocess.run(
        [program, "key", "list", "--secret"], env=env, check=True, capture_output=True, text=True
    )
    return next(
        line.split()[-1] for line in reversed(listed.stdout.splitlines()) if "Fingerprint" in line
    )


@pytest.fixture(scope="module")
def built(tiny: definition.Image, engine_cache: Path) -> BuiltImage:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))
        return Apptainer().build(tiny, base=None, offline=False, reporter=Silent())


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a keyring with one key, and the fingerprint of the key."""
    keyring = tmp_path_factory.mktemp("keys")
    return keyring, new_key(keyring, "maker")


@pytest.fixture(scope="module")
def signed_once(
    built: BuiltImage, maker: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    sif = Path(shutil.copy(built.reference, tmp_path_factory.mktemp("signed") / "signed.sif"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("APPTAINER_KEYSDIR", str(maker[0]))
        signing.sign(sif, signing.choose_key(None), no_passphrase)
    return sif


@pytest.fixture
def keyring(maker: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Use the keyring of `maker`, and return the fingerprint of its key."""
    monkeypatch.setenv("APPTAINER_KEYSDIR", str(maker[0]))
    return maker[1]


@pytest.fixture
def unsigned(built: BuiltImage, tmp_path: Path) -> Path:
    return Path(shutil.copy(built.reference, tmp_path / "image.sif"))


@pytest.fixture
def signed(signed_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(signed_once, tmp_path / "image.sif"))


def no_passphrase() -> str:
    raise AssertionError("a key without passphrase needs none")


def trimaran(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from trimaran.cli import main; main()", *words],
        input=stdin, capture_output=True, text=True, check=False, timeout=300,
    )


def test_sign_and_verify(unsigned: Path, keyring: str) -> None:
    done = trimaran("sign", str(unsigned))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"sha256:{sha256(unsigned)}  {unsigned}\n"
    assert os.listdir(unsigned.parent).count("image.sif") == 1  # noqa: PTH208
    assert not list(unsigned.parent.glob("part-*"))
    spaced = f"{keyring[:20].lower()} {keyring[20:]}"  # as people copy it
    done = trimaran("verify", str(unsigned), "--key", spaced)
    assert done.returncode == 0, done.stderr
    assert keyring in done.stdout
    again = trimaran("sign", str(unsigned))
    assert again.returncode == 2
    assert "already" in again.stderr


def test_the_image_runs_as_before(signed: Path) -> None:
    done = subprocess.run(
        [Apptainer().executable, "--quiet", "run", str(signed), "-c", "print(6 * 7)"],
        capture_output=True, text=True, check=False,
    )
    assert done.stdout == "42\n"


@pytest.mark.usefixtures("keyring")
def test_an_unsigned_file_is_refused(unsigned: Path) -> None:
    with refused("signature-missing", unsigned, kind=RunError):
        signing.signers(unsigned)
    assert trimaran("verify", str(unsigned)).returncode == 4


@pytest.mark.usefixtures("keyring")
def test_a_flipped_byte_is_found_wherever_it_is(signed: Path) -> None:
    whole = signed.read_bytes()
    listed = subprocess.run(
        [Apptainer().executable, "sif", "list", str(signed)], capture_output=True, text=True,
        check=True,
    ).stdout
    spans = [line.split("|")[3].strip() for line in listed.splitlines() if "|" in line][1:]
    assert len(spans) == 5  # definition, two records, file system, signature
    for span in spans:
        start, end = map(int, span.split("-"))
        middle = (start + end) // 2
        spoilt = bytearray(whole)
        spoilt[middle] ^= 1
        signed.write_bytes(spoilt)
        with refused("signature-invalid", signed, kind=RunError):
            signing.signers(signed)


@pytest.mark.usefixtures("keyring")
@pytest.mark.parametrize("group", ["0", "1", "2"])
def test_what_is_added_after_signing_is_found(signed: Path, group: str) -> None:
    more = signed.with_name("more")
    more.write_bytes(bytes(4096))
    subprocess.run(
        [Apptainer().executable, "sif", "add", "--datatype", "4", "--parttype", "4", "--partfs",
         "2", "--partarch", "2", "--groupid", group, str(signed), str(more)],
        check=True, capture_output=True,
    )
    with refused("signature-invalid", signed, kind=RunError):
        signing.signers(signed)


def test_two_signers_of_two_groups_vouch_for_nothing(signed: Path, keyring: str) -> None:
    more = signed.with_name("more")
    more.write_bytes(bytes(4096))
    program = Apptainer().executable
    for words in (
        ["sif", "add", "--datatype", "4", "--parttype", "4", "--partfs", "2", "--partarch", "2",
         "--groupid", "2", str(signed), str(more)],
        ["sign", "--group-id", "2", str(signed)],
        ["verify", "--local", str(signed)],
    ):
        subprocess.run([program, *words], check=True, capture_output=True)
    with refused("signature-invalid", "groups", kind=RunError):
        signing.require(signed, [[keyring]])


def test_another_key_than_the_wanted_one_is_refused(signed: Path, keyring: str) -> None:
    other = "0" * 40
    with refused("signer-refused", keyring, other, kind=RunError):
        signing.require(signed, [[other]])
    with refused("signer-refused", other, kind=RunError):
        signing.require(signed, [[keyring], [other]])
    assert signing.require(signed, [[other, keyring], [keyring]]).fingerprint == keyring
    done = trimaran("verify", str(signed), "--key", "ABC")
    assert done.returncode == 2
    assert "[argument-invalid]" in done.stderr


def test_an_unknown_signer_is_refused_without_asking_a_key_server(
    signed: Path, maker: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    asked: list[bytes],
) -> None:
    monkeypatch.setenv("APPTAINER_KEYSDIR", str(tmp_path / "empty"))
    with refused("signer-unknown", maker[1], kind=RunError):
        signing.signers(signed)
    assert asked == []
    # The proxy does see who asks: Apptainer by itself goes to a key server.
    subprocess.run([Apptainer().executable, "verify", str(signed)], check=False,
                   capture_output=True, timeout=300)
    assert asked


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Return the web requests of the test: a proxy records all of them, and answers none."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        def listen() -> None:
            while True:
                connection, _ = server.accept()
                with connection:
                    request = connection.recv(4096)
                    if request == b"stop":
                        return
                    heard.append(request)

        thread = threading.Thread(target=listen)
        thread.start()
        address = server.getsockname()
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{address[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        yield heard
        with socket.create_connection(address) as connection:
            connection.sendall(b"stop")
        thread.join()


def test_without_a_key_signing_says_how_to_make_one(
    unsigned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPTAINER_KEYSDIR", str(tmp_path / "empty"))
    before = sha256(unsigned)
    done = trimaran("sign", str(unsigned))
    assert done.returncode == 2
    assert "[key-missing]" in done.stderr
    assert sha256(unsigned) == before


def test_several_keys_have_to_be_told_apart(
    unsigned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPTAINER_KEYSDIR", str(tmp_path / "keys"))
    first, second = (new_key(tmp_path / "keys", owner) for owner in ("one", "two"))
    with refused("key-ambiguous", f"0) {first}", f"1) {second}", kind=UsageError):
        signing.choose_key(None)
    with refused("key-missing", "2", kind=UsageError):
        signing.choose_key(2)
    done = trimaran("sign", str(unsigned), "--key-index", "1")
    assert done.returncode == 0, done.stderr
    assert [signer.fingerprint for signer in signing.signers(unsigned)] == [second]


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a keyring whose key has a passphrase."""
    keyring = tmp_path_factory.mktemp("protected")
    new_key(keyring, "careful", PASSPHRASE)
    return keyring


def test_a_passphrase_comes_from_standard_input(
    unsigned: Path, protected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPTAINER_KEYSDIR", str(protected))
    before = sha256(unsigned)
    for guess in ("", "guess-17\n"):
        done = trimaran("sign", str(unsigned), stdin=guess)
        assert done.returncode == 2
        assert "[passphrase-wrong]" in done.stderr
        assert "guess-17" not in done.stderr
    assert sha256(unsigned) == before
    done = trimaran("sign", str(unsigned), stdin=f"{PASSPHRASE}\n")
    assert done.returncode == 0, done.stderr
    assert PASSPHRASE not in done.stdout + done.stderr


def test_a_passphrase_is_asked_for_unseen_on_a_terminal(
    unsigned: Path, protected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPTAINER_KEYSDIR", str(protected))
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", "from trimaran.cli import main; main()", "sign", str(unsigned)],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    ) as child:
        os.close(theirs)
        said = b""
        while b"Passphrase of the key" not in said:
            said += os.read(ours, 1024)
        while termios.tcgetattr(ours)[3] & termios.ECHO:
            time.sleep(0.05)  # what is typed before the echo is off is thrown away
        os.write(ours, f"{PASSPHRASE}\n".encode())
        assert child.wait(timeout=300) == 0
        said += os.read(ours, 4096)
    os.close(ours)
    assert b"signed by" in said
    assert PASSPHRASE.encode() not in said


def test_the_record_of_an_image_follows_its_signature(
    built: BuiltImage, tiny: definition.Image, engine_cache: Path, tmp_path: Path, keyring: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = tmp_path / "own"
    shutil.copytree(engine_cache / "images", cache / "images")
    monkeypatch.setenv("TRIMARAN_CACHE", str(cache))
    (record_file,) = (cache / "images").glob("tiny-*.apptainer.json")
    sif = cache / "images" / Path(built.reference).name
    record_file.write_text(
        json.dumps({**json.loads(record_file.read_text()), "reference": str(sif)})
    )
    digest = signing.sign(sif, signing.choose_key(None), no_passphrase)
    assert digest != built.digest
    found = Apptainer().find(tiny)
    assert found is not None
    assert (found.digest, found.size) == (digest, sif.stat().st_size)
    record = store.record_of(sif)
    assert record is not None
    assert record.inputs == built.inputs

    with sif.open("r+b") as file:
        file.seek(50_000)
        [byte] = file.read(1)
        file.seek(50_000)
        file.write(bytes([byte ^ 1]))
    with refused("image-damaged", sif, kind=RunError):
        signing.sign(sif, signing.choose_key(None), no_passphrase)


def test_what_is_no_sif_is_a_mistake_of_usage(tmp_path: Path) -> None:
    text = tmp_path / "text.sif"
    text.write_text("no image")
    done = trimaran("verify", str(text))
    assert done.returncode == 2
    assert "[image-invalid]" in done.stderr
    assert "[file-missing]" in trimaran("verify", "missing.sif").stderr
    assert "[name-unknown]" in trimaran("verify", "torch-cp").stderr
