from __future__ import annotations

import time
from pathlib import Path

import pytest

from refusals import refused
from trimaran.errors import BuildError, UsageError
from trimaran.images import lock, resolve

HASH = "a" * 64
GOOD = f"a 1:2-3 debian 20260101T000000Z pool/main/a/a/a_2-3%2bdeb_all.deb 100 {HASH}"


def test_a_line_of_a_lock_is_read(tmp_path: Path) -> None:
    path = tmp_path / "debian.lock"
    path.write_text(f"# comment\n\n{GOOD}\n")
    (package,) = lock.read_debian(path)
    assert (package.filename, package.size) == ("a_2-3+deb_all.deb", 100)


@pytest.mark.parametrize("line", [
    "a", GOOD.replace(" 100 ", " ² "), GOOD.replace(" 100 ", f" {'9' * 5000} "),
    GOOD.replace("debian", "other"), GOOD.replace("pool", "../pool"),
    GOOD.replace("a_2", "..%2f..%2Fa_2"), GOOD + " more", GOOD.replace(HASH, "A" * 64),
])
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "debian.lock"
    path.write_text(f"{GOOD}\n{line}\n")
    with refused("lock-invalid", f"{path}:2: ", kind=UsageError):
        lock.read_debian(path)


def test_a_lock_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "debian.lock"
    path.write_bytes(b"\xff\xfe")
    with refused("lock-invalid", path, kind=UsageError):
        lock.read_debian(path)


@pytest.mark.parametrize("line", [
    "'", "'http://deb.debian.org/debian/a.deb'",
    f"'http://a.example/a.deb' a_1_all.deb 1 SHA256:{HASH}",
    "'http://deb.debian.org/debian/a.deb' a_1_all.deb 1 MD5Sum:0", "'a b' c d e f",
])
def test_what_apt_is_not_known_to_print_is_one_error(line: str) -> None:
    with refused("apt-unexpected", line.split("' ")[0].strip("'"), kind=BuildError):
        resolve._package(line, {"debian": "20260101T000000Z"})


def test_the_date_of_a_release_file_is_utc_wherever_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the snapshot is the file's Date plus one day, in UTC, in every time zone.

    By then, snapshot.debian.org has imported the files.
    """
    (tmp_path / "deb.debian.org_debian_dists_bookworm_InRelease").write_text(
        "Suite: oldstable\nDate: Sat, 06 Sep 2025 09:58:11 UTC\nAcquire-By-Hash: yes\n"
    )
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "JST-9")
        time.tzset()
        assert resolve._snapshots(tmp_path, ["debian"]) == {"debian": "20250907T095811Z"}
    time.tzset()
    with refused("apt-unexpected", "debian-security", kind=BuildError):
        resolve._snapshots(tmp_path, ["debian", "debian-security"])
