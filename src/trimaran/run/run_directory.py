"""Run directories: one execution each, with its provenance in `run.json`."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from trimaran import __version__, paths, process
from trimaran.engines import commands
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
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.options import Argument
from trimaran.run import job_chain, launch_spec
from trimaran.run.extensions import Modification
from trimaran.run.initial import InitialRecord
from trimaran.run.record import (
    CommandRecord,
    DataRecord,
    GitRecord,
    ImageRecord,
    JobRecord,
    RecipeRecord,
    ResumptionRecord,
    RunRecord,
    Status,
)
from trimaran.run.site_settings import SiteSettings

RUNS = "runs"
"""The folder in which run directories are made, unless the user names one."""

LOCK = ".lock"

RESERVE = ".reserve"
"""Space in the run directory for its last words: where the disk is full, `run.json` still ends."""

_RESERVED_BYTES = 1 << 17
_LEAST_BYTES = 1 << 24  # a run that begins on a fuller disk cannot even keep its log
METRICS, RESULT = "metrics.jsonl", "result.json"
"""What an app leaves (app contract), and a verdict rests on."""

RECIPE, CARD = "recipe.yaml", "app.yaml"
"""What a run is judged by: copies, for both may change."""


def new_directory(recipe: RecipeFile, out: Path | None, place: Path | None = None) -> Path:
    """Return the path of a run directory that does not exist yet (or is empty); not created.

    Without `out` it is one below `runs` in `place`, by default the working directory.

    Raises:
        UsageError: `out` holds something: a run is never overwritten.
    """
    if out is not None:
        refuse_used(out)
        return out.absolute()
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    base = (place or Path.cwd()) / RUNS / recipe.name / stamp
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{stamp}-{number}")
    return path


def refuse_used(out: Path) -> None:
    """Refuse a run directory that holds something.

    Raises:
        UsageError: a run is never overwritten.
    """
    # The lock alone is what a run that was killed before it began has left.
    if out.exists() and (not out.is_dir() or any(path.name != LOCK for path in out.iterdir())):
        raise UsageError(
            f"{out} exists and is not empty: a run is never overwritten",
            hint="choose another --out, or leave it out",
        )


@contextmanager
def claim(recipe: RecipeFile, out: Path | None) -> Iterator[tuple[Path, int]]:
    """Make the run directory, and yield it with the descriptor of its lock, before anything else.

    Where nothing was begun in it, it is gone again afterwards.

    Raises:
        UsageError: `out` holds something, or another run has it.
        RunError: it cannot be made.
    """
    directory, made = _made(recipe, out)
    with alone(directory) as lock:
        refuse_used(directory)  # now that nobody else begins a run in it
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
    """Return the run directory, and whether it was made here: an empty `out` may be there."""
    while True:
        directory = new_directory(recipe, out)
        with writing(f"make the run directory {directory}", directory, hint="choose another --out"):
            try:
                directory.mkdir(parents=True)
                return directory, True
            except FileExistsError:
                if out is not None and directory.is_dir():
                    return directory, False
                if not directory.is_dir():  # a link to nowhere; else another run was faster
                    raise RunError(f"cannot make the run directory {directory}") from None


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
    """Fill `directory` with recipe and card, and a `run.json` that says "running".

    One for a batch system, `job`, says "queued".

    Raises:
        RunError: it cannot be written, or another run began there, on a file system without locks.
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
    """Return the `run.json` of a run that begins here and now."""
    return RunRecord(
        status="running", trimaran=__version__, recipe=recipe_record(recipe, changed),
        image=image, data=data, launch=launch, git=git, host=host_facts(),
        started=datetime.now(timezone.utc),
        command=CommandRecord(
            argv=list(command.argv), env=dict(command.env), shell=paste_line(command)
        ),
    )


def recipe_record(recipe: RecipeFile, changed: dict[str, Argument]) -> RecipeRecord:
    """Return which recipe is run, and with which changes."""
    return RecipeRecord(
        name=recipe.name, sha256=recipe.sha256, card_sha256=recipe.card.sha256, changed=changed,
        nodes=recipe.nodes,
    )


def _copy(source: Path, to: Path) -> None:
    copy = open_plain(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(copy, "wb") as file:
        file.write(source.read_bytes())


def go_on(directory: Path, record: RunRecord) -> RunRecord:
    """Say "running" again in the `run.json` of a run that was stopped."""
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
        file.write(os.urandom(_RESERVED_BYTES))  # zeros take no space on some file systems
        os.fsync(file.fileno())


def alone(directory: Path) -> AbstractContextManager[int]:
    """Hold the lock of a run, and yield its descriptor.

    An app that inherits it keeps the run locked when it outlives this process.

    Raises:
        UsageError: another process has it.
    """
    return locked(directory / LOCK, f"the run in {directory} is going on")


def refuse_foreign(directory: Path) -> None:
    """Refuse a run directory in which the app would write or read what is not of the run.

    Raises:
        UsageError: it has a link that leads out of it, or what is neither file nor folder.
    """
    if (path := leads_outside(directory)) is not None:
        raise UsageError(
            f"{path} leads out of the run directory: it is not followed",
            hint="put the file or folder itself there",
        )
    for path in sorted(job_chain.place(directory).glob("*")):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise UsageError(f"{path} is no plain file: the script of the job would write there",
                             hint="remove it")


def finish(directory: Path, record: RunRecord, status: Status, exit_status: int) -> RunRecord:
    """Complete `run.json` with the end of the run and what the app said of its environment."""
    ended = datetime.now(timezone.utc)
    begun = record.resumed[-1].started if record.resumed else record.started
    done = record.model_copy(update={
        "status": status, "ended": ended, "exit_status": exit_status,
        "seconds": round((record.seconds or 0) + (ended - begun).total_seconds(), 1),
        "environment": _environment(directory), "files": hashes(directory),
    })
    (directory / RESERVE).unlink(missing_ok=True)
    _write(directory, done)
    return done


def hashes(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that a verdict rests on and the app has written."""
    found = {}
    for name in (METRICS, RESULT):
        with suppress(OSError, UsageError):  # who judges the run says what is wrong with it
            found[name] = hashlib.sha256(
                read_plain(directory / name, LINES_BYTES)
            ).hexdigest()
    return found


def load(directory: Path, *, chain: bool = True) -> RunRecord:
    """Read `run.json` of a run directory; with `chain` also what its jobs have left.

    Raises:
        UsageError: `directory` is no run directory, or its `run.json` or a link is damaged.
    """
    path = directory / "run.json"
    try:
        # A folder's name may be no UTF-8; it is there to be read by people.
        record = RunRecord.model_validate_json(read_plain(path).decode(errors="replace"))
    except FileNotFoundError as error:
        raise UsageError(
            f"{directory} is no run directory: it has no run.json",
            hint="runs lie below runs/<app>/<recipe>/ unless --out named another place",
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error
    except ValidationError as error:
        raise UsageError(f"{path} is damaged: {error.errors()[0]['msg']}") from error
    if chain:
        record = job_chain.fold(record, directory)
    if record.environment is None:  # run.sh of a bundle cannot tell whether the file is JSON
        record = record.model_copy(update={"environment": _environment(directory)})
    return record


def paste_line(command: Command) -> str:
    """Return the shell line that gives the same run: an emptied environment, then the command."""
    assignments = [f"{key}={value}" for key, value in command.env.items()]
    return process.shell_line(["env", "-i", *assignments, *command.argv])


def _write(directory: Path, record: RunRecord) -> None:
    write_atomic(directory / "run.json", record.model_dump_json(indent=2) + "\n")


def _environment(directory: Path) -> dict[str, object] | None:
    """Return what the app wrote about its own environment, if it came that far."""
    try:
        content = parse_json(read_plain(directory / "environment.json"))
    except (OSError, ValueError, UsageError):
        return None
    return content if isinstance(content, dict) else None


def git_state(folder: Path) -> GitRecord:
    """Return the state of the checkout that holds `folder`; unknown where it is none."""
    head = commands.git(folder, "rev-parse", "HEAD")
    changes = commands.git(folder, "status", "--porcelain", "--untracked-files=no")
    return GitRecord(revision=head, dirty=None if head is None else bool(changes))
