"""Get one file whose SHA-256 is known: resumed, verified before use, from the first good source.

The bytes grow in `<name>.part` beside the destination and are renamed onto it
only when their hash is right, so a file under its own name is always whole. A
`.part` outlives Ctrl-C, a dropped connection and a killed process, and the next
call goes on from it, from whichever source. No ETag has to outlive the process:
the hash pins the content, and a resumed file that turns out wrong is fetched
once more from its first byte before the source is blamed.
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

from trimaran.errors import RunError, TrimaranError
from trimaran.files import (
    IN_CACHE,
    SPARE_BYTES,
    check_space,
    is_still,
    resumable,
    set_aside,
    writing,
)
from trimaran.files import sha256 as sha256_of
from trimaran.net.transfer import SourceFailed, SourceSilent, ask_again, is_remote, place, transfer
from trimaran.reporting import Reporter

PATIENCE = (5.0, 15.0)
"""Seconds to wait before all sources are asked again, where one was silent: a network recovers."""


def fetch(
    urls: Sequence[str],
    destination: Path,
    *,
    sha256: str,
    size: int | None,
    offline: bool,
    reporter: Reporter,
    error: type[TrimaranError] = RunError,
    session: requests.Session | None = None,
) -> Path:
    """Return `destination`, holding the file with this `sha256`; get it if it is not there.

    Args:
        urls: http(s) and file URLs or plain paths, tried in order.
        destination: where the file shall lie; its folder is made.
        sha256: the expected hash, in hex.
        size: the expected size in bytes, if known: lets space be checked beforehand.
        offline: use only what is there and local sources; never touch the network.
        reporter: is shown a bar, and warned of each source that fails.
        error: what to raise when no source gives the file.
        session: asks the sources, where they want a login.

    Raises:
        TrimaranError: of class `error`; says what each source did wrong and what to do.
        Interrupted: on Ctrl-C; the `.part` is kept.
    """
    job = _Job(destination, sha256.lower(), size, reporter, error, session)
    with (
        resumable(f"downloading {destination.name}"),
        writing(f"write {destination}", destination, hint=IN_CACHE, error=error),
    ):
        if not job.is_there():
            destination.parent.mkdir(parents=True, exist_ok=True)
            job.get(urls, offline)
    return destination


@dataclass(frozen=True)
class _Job:
    """One file to get."""

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
        """Return True if the destination is right; a wrong file there is moved aside."""
        if not self.destination.is_file():
            self._clear(self.destination)
            return False
        found = sha256_of(self.destination)
        if found != self.sha256:
            self.reporter.warn(f"{self.destination}: {self._refuse(self.destination, found)}")
            return False
        return True

    def get(self, urls: Sequence[str], offline: bool) -> None:
        """Complete the `.part` from the first of `urls` that can, and rename it."""
        if self._finished_by_now():
            return
        usable = [url for url in urls if not (offline and is_remote(url))]
        for pause in (*PATIENCE, None):
            failed: list[SourceFailed] = []
            if self._from_any(usable, failed):
                return
            if pause is None or not any(isinstance(one, SourceSilent) for one in failed):
                break
            self.reporter.note(f"{self.name}: asking again in {pause:g} s")
            time.sleep(pause)
            ask_again()
        failures = [f"  {url}\n    {one}" for url, one in zip(usable, failed, strict=True)]
        where = next((url for url in urls if is_remote(url)), None)
        by_hand = f"put {where or self.name} at {self.destination} (SHA-256 {self.sha256})"
        if offline:
            raise self.error(
                "\n".join([f"{self.name} is missing, and offline forbids the network", *failures]),
                hint=f"run it once with the network, or {by_hand}",
            )
        raise self.error(
            "\n".join([f"no source gives {self.name}:", *failures]),
            hint=f"check the network (HTTPS_PROXY, REQUESTS_CA_BUNDLE), or {by_hand}",
        )

    def _from_any(self, urls: Sequence[str], failed: list[SourceFailed]) -> bool:
        """Return whether one of `urls` gave the file; `failed` gets why each did not."""
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
        """Return True if an earlier call left a whole `.part`, or another process has just won."""
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
                self.reporter.note(f"{self.name}: what was resumed is wrong, starting anew")
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
        """Rename a right `.part` onto the destination; return the hash of a wrong one."""
        part.flush()
        os.fsync(part.fileno())
        found = sha256_of(self.part)
        if found != self.sha256:
            return found
        self.part.replace(self.destination)
        return None

    def _refuse(self, path: Path, found: str) -> str:
        aside = self.destination.with_name(f"{self.name}.refused-{found[:8]}")
        path.replace(aside)
        return (
            f"wrong SHA-256, refused: expected {self.sha256}, found {found}"
            f" (kept aside as {aside.name})"
        )

    def _clear(self, path: Path) -> None:
        """Set aside what is no file: a folder, or a link that leads nowhere.

        A file may have come there in between, from another process.
        """
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                self.reporter.warn(f"{path} is no file; set aside as {set_aside(path).name}")

    @contextlib.contextmanager
    def _partial(self) -> Iterator[IO[bytes]]:
        """Open the `.part` for this process alone, after waiting for one that is filling it."""
        while True:
            self._clear(self.part)
            with self.part.open("ab") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self.reporter.note(f"{self.name}: another process is getting it; waiting")
                    fcntl.flock(file, fcntl.LOCK_EX)
                except OSError:
                    pass  # a file system without locks: the hash still guards
                if is_still(file, self.part):  # and was not renamed by the other process
                    try:
                        yield file
                    finally:
                        self._drop_if_empty(file)
                    return

    def _drop_if_empty(self, file: IO[bytes]) -> None:
        if os.fstat(file.fileno()).st_size == 0:
            self.part.unlink(missing_ok=True)
