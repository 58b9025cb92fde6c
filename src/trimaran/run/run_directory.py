"""Create, read and complete run directories; `run.json` in each of them records the run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from trimaran import __version__, paths, process
from trimaran.errors import RunError, UsageError, unreadable
from trimaran.files import (
    LINES_BYTES,
    check_space,
    leads_outside,
    locked,
    named,
    open_plain,
    read_plain,
    write_atomic,
    writing,
)
from trimaran.hostfacts import host_facts
from trimaran.launch.specification import Command, LaunchSpec
from trimaran.parsing import parse_json
from trimaran.recipes import cards, library
from trimaran.recipes.cards import Argument
from trimaran.recipes.library import RecipeFile
from trimaran.run import carriers, job_chain, launch_spec
from trimaran.run.additions import Modification
from trimaran.run.record import (
    CommandRecord,
    DataRecord,
    GitRecord,
    ImageRecord,
    InitialRecord,
    JobRecord,
    RecipeRecord,
    ResumptionRecord,
    RunRecord,
    Status,
)
from trimaran.run.site_settings import SiteSettings

RUNS = "runs"
"""Folder in which run directories are created, unless the user chooses another path."""

LOCK = ".lock"

RESERVE = ".reserve"
"""File that reserves space, so that `run.json` can be completed even if the disk is full."""

COMPILED = ".caches"
"""Folder in which an image keeps compiled code (`images/compiler_caches.sh`) until the run ends.

A run that can be resumed keeps the folder, so that it does not compile again.
"""

_RESERVED_BYTES = 1 << 17
_LEAST_BYTES = 1 << 24  # with less free space a run could not even write its log
METRICS, RESULT = "metrics.jsonl", "result.json"
"""Files that the app writes (app contract) and the verdict reads."""

RECIPE, CARD = "recipe.yaml", "app.yaml"
"""Copies of the recipe and the app card for the verdict, because the originals may change."""


def new_directory(
    recipe: RecipeFile, out: Path | None, place: Path | None = None, name: str | None = None
) -> Path:
    """Return the path for a new run directory, without creating it.

    Args:
        recipe: the recipe of the run.
        out: the path, which must not exist or must be empty; None: a path below `runs` in `place`.
        place: the folder that contains `runs`; None: the working directory.
        name: path below `runs`; None: the name of the recipe.

    Raises:
        UsageError: `out` contains files.
    """
    if out is not None:
        refuse_used(out)
        return out.absolute()
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    base = (place or Path.cwd()) / RUNS / (name or recipe.name) / stamp
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{stamp}-{number}")
    return path


def refuse_used(out: Path) -> None:
    """Check that the run directory `out` does not exist or is empty.

    Raises:
        UsageError: `out` contains files: a run is never overwritten.
    """
    # A directory that contains only the lock file is left from a run that was killed early.
    if out.exists() and (not out.is_dir() or any(path.name != LOCK for path in out.iterdir())):
        raise UsageError(
            f"{out} exists and is not empty: a run is never overwritten", code="run-not-empty",
            hint="choose another --out, or leave it out",
        )


@contextmanager
def claim(recipe: RecipeFile, out: Path | None) -> Iterator[tuple[Path, int]]:
    """Create and lock the run directory; yield its path and the descriptor of its lock.

    The path is `out`, or a new path below `runs` if `out` is None. A directory that this call
    created is deleted afterwards if no run was started in it.

    Raises:
        UsageError: `out` contains files, or another run has locked it.
        RunError: the directory cannot be created, or the disk space is too small.
    """
    directory, made = _made(recipe, out)
    with alone(directory) as lock:
        refuse_used(directory)  # again, now that the directory is locked
        try:
            check_space(directory, _LEAST_BYTES, f"a run in {directory}", RunError,
                        hint="free some space there, or choose another --out")
            yield directory, lock
        finally:
            with suppress(OSError):
                if [path.name for path in directory.iterdir()] == [LOCK]:
                    (directory / LOCK).unlink()
                    if made:
                        directory.rmdir()


def _made(recipe: RecipeFile, out: Path | None) -> tuple[Path, bool]:
    """Create the run directory if needed; return its path, and whether this call created it."""
    while True:
        directory = new_directory(recipe, out)
        with writing(f"make the run directory {directory}", directory, hint="choose another --out"):
            try:
                directory.mkdir(parents=True)
                return directory, True
            except FileExistsError:
                if out is not None and directory.is_dir():
                    return directory, False
                if not directory.is_dir():  # a broken link; otherwise another run created it first
                    raise RunError(f"cannot make the run directory {directory}: it is a file",
                                   code="file-exists", hint="choose another --out") from None


def start(
    directory: Path,
    recipe: RecipeFile,
    changed: dict[str, Argument],
    image: ImageRecord,
    data: list[DataRecord],
    launch: LaunchSpec,
    modified: Sequence[Modification] = (),
    initial: InitialRecord | None = None,
    site: SiteSettings | None = None,
    job: JobRecord | None = None,
) -> RunRecord:
    """Write the recipe, the app card and `run.json` into `directory`, and return the record.

    The status of the run is "running", or "queued" if `job` describes a submission.

    Raises:
        RunError: the directory cannot be written, or another run was started in it, which can only
            happen on a file system without locks.
    """
    record = new_record(recipe, changed, image, data, launch, launch_spec.command(launch),
                        git_state(recipe.path.parent))
    record = record.model_copy(update={
        "status": "running" if job is None else "queued",
        "modified": list(modified), "initial": initial, "site": site, "job": job,
    })
    with writing(f"write the run directory {directory}", directory):
        directory.mkdir(parents=True, exist_ok=True)
        _copy(recipe.path, directory / RECIPE)
        _copy(recipe.card.path, directory / CARD)
        if job is None:
            _reserve(directory)
        _write(directory, record)
    return record


def new_record(
    recipe: RecipeFile, changed: dict[str, Argument], image: ImageRecord, data: list[DataRecord],
    launch: LaunchSpec, command: Command, git: GitRecord,
) -> RunRecord:
    """Return the record of a run that begins now on this machine."""
    return RunRecord(
        status="running", trimaran=__version__, recipe=recipe_record(recipe, changed),
        image=image, data=data, launch=launch, git=git, host=host_facts(),
        started=datetime.now(timezone.utc),
        command=CommandRecord(
            argv=list(command.argv), env=dict(command.env), shell=paste_line(command)
        ),
    )


def recipe_record(recipe: RecipeFile, changed: dict[str, Argument]) -> RecipeRecord:
    """Return the entry of `run.json` for the recipe and its `changed` arguments."""
    return RecipeRecord(
        name=recipe.name, sha256=recipe.sha256, card_sha256=recipe.card.sha256, changed=changed,
        nodes=recipe.nodes,
    )


def _copy(source: Path, to: Path) -> None:
    copy = open_plain(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(copy, "wb") as file:
        file.write(source.read_bytes())


def go_on(directory: Path, record: RunRecord) -> RunRecord:
    """Record in `run.json` that a stopped run is running again, with an entry for this resumption.

    Return the new content of `run.json`.
    """
    part = ResumptionRecord(
        started=datetime.now(timezone.utc), trimaran=__version__,
        git=git_state(paths.repository()), host=host_facts(),
    )
    again = record.model_copy(update={
        "status": "running", "resumed": [*record.resumed, part], "ended": None,
        "exit_status": None, "files": {},
    })
    _reserve(directory)
    _write(directory, again)
    return again


def _reserve(directory: Path) -> None:
    path = directory / RESERVE
    with named(path), os.fdopen(open_plain(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
        file.write(os.urandom(_RESERVED_BYTES))  # some file systems do not store zeros
        os.fsync(file.fileno())


def alone(directory: Path) -> AbstractContextManager[int]:
    """Lock a run, so that no other process starts or resumes it at the same time.

    The returned context manager yields the file descriptor of the lock. An app that inherits the
    descriptor keeps the run locked if this process ends first.

    Raises:
        UsageError: another process holds the lock.
    """
    return locked(directory / LOCK, f"the run in {directory} is running")


def refuse_foreign(directory: Path) -> None:
    """Check that the app would read and write only files in the run directory.

    Raises:
        UsageError: a symbolic link leads out of the directory, or the directory contains something
            that is neither a file nor a folder.
    """
    if (path := leads_outside(directory)) is not None:
        raise UsageError(
            f"{path} is a link out of the run directory, or a special file; the app must not"
            " use it",
            code="path-outside", hint="replace it by the file or folder itself, or remove it",
        )
    for path in sorted(job_chain.place(directory).glob("*")):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise UsageError(f"{path} is not a plain file: the script of the job would write to it",
                             code="path-outside", hint="remove it")


def finish(directory: Path, record: RunRecord, status: Status, exit_status: int) -> RunRecord:
    """Complete `run.json` with the result of the run and the environment that the app reported."""
    ended = datetime.now(timezone.utc)
    begun = record.resumed[-1].started if record.resumed else record.started
    done = record.model_copy(update={
        "status": status, "ended": ended, "exit_status": exit_status,
        "seconds": round((record.seconds or 0) + (ended - begun).total_seconds(), 1),
        "environment": _environment(directory), "files": hashes(directory),
    })
    (directory / RESERVE).unlink(missing_ok=True)
    _write(directory, done)
    if status == "completed":
        shutil.rmtree(directory / COMPILED, ignore_errors=True)
    return done


def hashes(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that the app has written and the verdict reads."""
    found = {}
    for name in (METRICS, RESULT, carriers.LOG):
        with suppress(OSError, UsageError):  # the verdict reports a missing or unreadable file
            found[name] = hashlib.sha256(
                read_plain(directory / name, LINES_BYTES)
            ).hexdigest()
    return found


def load(directory: Path, *, chain: bool = True) -> RunRecord:
    """Return the record in `run.json` of a run directory.

    If `chain` is true and a batch system started the run, the record is combined with the links of
    the job chain, that is, the records of each start.

    Raises:
        UsageError: `directory` is not a run directory, or `run.json` or a link is damaged.
    """
    path = directory / "run.json"
    try:
        # The name of a folder may not be UTF-8; it is only shown to the user.
        record = RunRecord.model_validate_json(read_plain(path).decode(errors="replace"))
    except FileNotFoundError as error:
        raise UsageError(
            f"{directory} is not a run directory: it has no run.json", code="run-missing",
            hint="runs are below runs/<app>/<recipe>/ unless --out named another place",
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error
    except ValidationError as error:
        raise UsageError(f"{path} is damaged: {error.errors()[0]['msg']}", code="run-damaged",
                         hint="use an undamaged copy of the run") from error
    if chain and record.job is not None:
        record = job_chain.fold(record, directory)
    wanted = record.site and record.site.fabric
    record = record.model_copy(
        update={"fabric": carriers.read(directory, wanted) if wanted else None}
    )
    if record.environment is None:  # run.sh of a bundle cannot check whether the file is JSON
        record = record.model_copy(update={"environment": _environment(directory)})
    return record


def keep_fabric(directory: Path, record: RunRecord) -> None:
    """Write `record.fabric`, the networks between the nodes of the job, into `run.json`.

    The job script cannot update `run.json`, and so Trimaran does it afterwards.

    The file of another user is not changed, because the new file would have another owner.
    `verdict.json` and the report contain the networks in any case.

    Raises:
        UsageError: `run.json` is damaged.
        OSError: `run.json` cannot be written.
    """
    path = directory / "run.json"
    if record.fabric is None or path.stat().st_uid != os.getuid():
        return
    try:
        content = parse_json(read_plain(path))
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}", code="run-damaged",
                         hint="use an undamaged copy of the run") from error
    networks = record.fabric.model_dump()
    if isinstance(content, dict) and content.get("fabric") != networks:
        content["fabric"] = networks
        write_atomic(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def paste_line(command: Command) -> str:
    """Return a shell line that runs the command with exactly its recorded variables."""
    assignments = [f"{key}={value}" for key, value in command.env.items()]
    return process.shell_line(["env", "-i", *assignments, *command.argv])


def _write(directory: Path, record: RunRecord) -> None:
    write_atomic(directory / "run.json", record.model_dump_json(indent=2) + "\n")


def _environment(directory: Path) -> dict[str, object] | None:
    """Return the app's `environment.json`, or None if the file is missing or damaged."""
    try:
        content = parse_json(read_plain(directory / "environment.json"))
    except (OSError, ValueError, UsageError):
        return None
    return content if isinstance(content, dict) else None


def git_state(folder: Path) -> GitRecord:
    """Return the state of the Git checkout that contains `folder`.

    All values are None if `folder` is not in a checkout.
    """
    head = process.git(folder, "rev-parse", "HEAD")
    changes = process.git(folder, "status", "--porcelain", "--untracked-files=no")
    return GitRecord(revision=head, dirty=None if head is None else bool(changes))


def recipe_as_run(directory: Path, record: RunRecord) -> RecipeFile:
    """Load the copies of the recipe and the app card in the run directory, and check their hashes.

    Runs of older versions have no copy of the card; the card of this checkout is used for them.

    Raises:
        UsageError: a copy cannot be read, or differs from its hash in `run.json`.
    """
    used = record.recipe
    recipe = _intact_copy(directory / RECIPE, "recipe", used.sha256)
    if used.card_sha256 is None:
        card = cards.load(used.name.partition("/")[0])
    else:
        copy = _intact_copy(directory / CARD, "app card", used.card_sha256)
        card = cards.load_copy(copy)
    return library.on_nodes(library.load_copy(recipe, used.name, card), used.nodes)


def _intact_copy(path: Path, what: str, digest: str) -> Path:
    try:
        found = hashlib.sha256(read_plain(path)).hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error
    if found != digest:
        raise UsageError(f"{path} is not the {what} of the run: run.json has another SHA-256",
                         code="run-changed", hint="use an undamaged copy of the run")
    return path
