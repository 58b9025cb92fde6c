"""Download one file with a known SHA-256 from the first source that works, and verify it.

The bytes are written to `<name>.part` next to the destination, which is renamed to the destination
only if its hash is right. A file with its final name is therefore always complete. A `.part` stays
after Ctrl-C, a dropped connection or a killed process, and the next call resumes it, from any
source. ETags are not stored, because the hash determines the content. If a resumed file has a wrong
hash, it is downloaded once more from its first byte before the next source is tried.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import requests

from trimaran import files
from trimaran.errors import RunError, TrimaranError
from trimaran.files import IN_CACHE, SPARE_BYTES, check_space, is_still, set_aside
from trimaran.net.transfer import SourceFailed, SourceSilent, ask_again, is_remote, place, transfer
from trimaran.reporting import Reporter

PATIENCE = (5.0, 15.0)
"""Seconds to wait before each new attempt with all sources, if a source did not answer."""


def fetch(
    urls: Sequence[str], destination: Path, *, sha256: str, size: int | None, offline: bool,
    reporter: Reporter, error: type[TrimaranError] = RunError,
    session: requests.Session | None = None,
) -> Path:
    """Download the file with this `sha256` to `destination`, unless it exists; return its path.

    Args:
        urls: http(s) and file URLs or plain paths, tried in order.
        destination: path of the file; its folder is created.
        sha256: the expected hash, in hexadecimal.
        size: the expected size in bytes (None: unknown); the free space is checked with it.
        offline: use only an existing file and local sources, and never the network.
        reporter: shows a progress bar, and a warning for each source that fails.
        error: the class of the errors that are raised.
        session: sends the requests, for sources that need a login (None: a new session).

    Raises:
        TrimaranError: No source provides the file; the message contains the reason of each
            source. The error has the class `error`.
        Interrupted: the user pressed Ctrl-C; the `.part` is kept.
    """
    job = _Job(destination, sha256.lower(), size, reporter, error, session)
    with (
        files.resumable(f"downloading {destination.name}"),
        files.writing(f"write {destination}", destination, hint=IN_CACHE, error=error),
    ):
        if not job.is_there():
            destination.parent.mkdir(parents=True, exist_ok=True)
            job.get(urls, offline)
    return destination


@dataclass(frozen=True)
class _Job:
    """One file to download."""

    destination: Path
    sha256: str
    size: int | None
    reporter: Reporter
    error: type[TrimaranError]
    session: requests.Session | None

    @property
    def name(self) -> str:
        return self.destination.name

    @property
    def part(self) -> Path:
        return self.destination.with_name(f"{self.name}.part")

    def is_there(self) -> bool:
        """Return True if the destination has the right hash.

        A file with another hash is renamed to `<name>.refused-<hash>`.
        """
        if not self.destination.is_file():
            self._clear(self.destination)
            return False
        found = files.sha256(self.destination)
        if found != self.sha256:
            self.reporter.warn(f"{self.destination}: {self._refuse(self.destination, found)}")
            return False
        return True

    def get(self, urls: Sequence[str], offline: bool) -> None:
        """Complete the `.part` from the first of `urls` that works, and give it its final name."""
        if self._finished_by_now():
            return
        usable = [url for url in urls if not (offline and is_remote(url))]
        for pause in (*PATIENCE, None):
            failed: list[SourceFailed] = []
            if self._from_any(usable, failed):
                return
            if pause is None or not any(isinstance(one, SourceSilent) for one in failed):
                break
            self.reporter.note(f"{self.name}: trying again in {pause:g} s")
            time.sleep(pause)
            ask_again()
        failures = [f"  {url}\n    {one}" for url, one in zip(usable, failed, strict=True)]
        where = next((url for url in urls if is_remote(url)), None)
        by_hand = f"copy {where or self.name} to {self.destination} (SHA-256 {self.sha256})"
        if offline:
            raise self.error(
                "\n".join([f"{self.name} is missing, and --offline forbids downloads", *failures]),
                code="download-offline",
                hint=f"run the command once with network access, or {by_hand}",
            )
        raise self.error(
            "\n".join([f"no source provides {self.name}:", *failures]), code="download-failed",
            hint=f"check the network (HTTPS_PROXY, REQUESTS_CA_BUNDLE), or {by_hand}",
        )

    def _from_any(self, urls: Sequence[str], failed: list[SourceFailed]) -> bool:
        """Return True if one of `urls` provided the file; add the failures to `failed`."""
        for number, url in enumerate(urls, start=1):
            try:
                if self._from(url):
                    return True
            except SourceFailed as problem:
                failed.append(problem)
                if number < len(urls):
                    self.reporter.warn(
                        f"{self.name}: {place(url)}: {problem}; trying {place(urls[number])}"
                    )
        return False

    def _finished_by_now(self) -> bool:
        """Rename the `.part` to the destination if it is complete.

        Returns:
            Whether the destination is complete now; another process may have completed it.
        """
        if not self.part.exists():
            return False
        with self._partial() as part:
            return self.is_there() or self._rename_if_right(part) is None

    def _from(self, url: str) -> bool:
        with self._partial() as part:
            if self.is_there():
                return True
            have = os.fstat(part.fileno()).st_size
            if self.size is not None:
                check_space(
                    self.destination.parent, self.size - have + SPARE_BYTES, self.name, self.error
                )
            old_bytes = self._transfer(url, part)
            found = self._rename_if_right(part)
            if found and old_bytes:
                self.reporter.note(f"{self.name}: the resumed file is wrong, starting again")
                part.truncate(0)
                self._transfer(url, part)
                found = self._rename_if_right(part)
            if found:
                raise SourceFailed(self._refuse(self.part, found))
            return True

    def _transfer(self, url: str, part: IO[bytes]) -> bool:
        return transfer(
            url, part, name=self.name, size=self.size, reporter=self.reporter,
            session=self.session,
        )

    def _rename_if_right(self, part: IO[bytes]) -> str | None:
        """If the hash of the `.part` is right, rename it to the destination and return None.

        Otherwise, return the hash that was found.
        """
        part.flush()
        os.fsync(part.fileno())
        found = files.sha256(self.part)
        if found != self.sha256:
            return found
        self.part.replace(self.destination)
        return None

    def _refuse(self, path: Path, found: str) -> str:
        aside = self.destination.with_name(f"{self.name}.refused-{found[:8]}")
        path.replace(aside)
        return (
            f"wrong SHA-256: expected {self.sha256}, found {found} (renamed to {aside.name})"
        )

    def _clear(self, path: Path) -> None:
        """Rename `path` to `<name>.damaged` if it is a folder, a link or no regular file."""
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                self.reporter.warn(f"{path} is not a file; renamed to {set_aside(path).name}")

    @contextlib.contextmanager
    def _partial(self) -> Iterator[IO[bytes]]:
        """Open the `.part` with an exclusive lock; wait while another process has the lock."""
        while True:
            self._clear(self.part)
            with self.part.open("ab") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self.reporter.note(f"{self.name}: waiting for the download by another process")
                    fcntl.flock(file, fcntl.LOCK_EX)
                except OSError:
                    pass  # the file system has no locks; the hash still protects the file
                if is_still(file, self.part):  # not renamed by the other process
                    try:
                        yield file
                    finally:
                        if os.fstat(file.fileno()).st_size == 0:
                            self.part.unlink(missing_ok=True)
                    return
