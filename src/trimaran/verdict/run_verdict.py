"""Judge a run directory: compare its files with each other, then judge the metrics.

The files are not signed. The comparison finds damage and accidental changes, but not a consistent
forgery of all files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from trimaran.architectures import MACHINES
from trimaran.data import contracts
from trimaran.data.contracts import Contract
from trimaran.engines import selection
from trimaran.errors import RunError, UsageError, unreadable
from trimaran.files import read_plain
from trimaran.launch.specification import LaunchSpec
from trimaran.parsing import parse_json
from trimaran.recipes import targets
from trimaran.recipes.cards import Card
from trimaran.recipes.library import RecipeFile, real_changes
from trimaran.recipes.recipe import SYNTHETIC, Recipe
from trimaran.run import carriers, inputs, job_chain, launch_spec, run_directory
from trimaran.run.additions import Extension
from trimaran.run.job_chain import Link
from trimaran.run.launch_spec import Places
from trimaran.run.record import InitialRecord, JobRecord, RunRecord
from trimaran.run.run_directory import METRICS, RESULT, recipe_as_run
from trimaran.run.site_settings import SiteSettings
from trimaran.verdict import metrics
from trimaran.verdict.metrics import Event, Verdict


@dataclass(frozen=True)
class JudgedRun:
    """A completed run and its verdict; the files of the run agree with each other."""

    directory: Path
    record: RunRecord
    recipe: RecipeFile
    events: Sequence[Event]
    verdict: Verdict


def judge(directory: Path) -> JudgedRun:
    """Return the verdict of the run in `directory`; no file is written.

    Raises:
        UsageError: `directory` is not a run directory, the run has not completed, or its recipe
            was changed after the run.
        RunError: Files of the run are missing, damaged or disagree.
    """
    record = run_directory.load(directory)
    if record.status != "completed":
        raise UsageError(
            f"the run in {directory} is {record.status}, not completed, so it has no verdict",
            code="run-incomplete", hint=f"see the log in {directory / 'log.txt'}",
        )
    recipe = recipe_as_run(directory, record)
    card = recipe.card.card
    changed = real_changes(recipe.recipe, card, record.recipe.changed)
    events = metrics.read_events(directory / METRICS)
    checked = check(directory, record, recipe.recipe, card, events, changed)
    judged = metrics.judge_metrics(
        recipe.recipe,
        card,
        events,
        changed=[*changed, *(["nodes"] if record.recipe.nodes else [])],
        other_data=other_data(record),
        site=record.site_changes,
        unlike=[*targets.unlike(recipe.recipe.target, record.hosts),
                *(["an emulated processor"] if record.image.emulated else [])],
        image_digest=record.image.digest,
        checked=checked,
        fabric=record.fabric,
        several_nodes=bool(record.nodes),
    )
    return JudgedRun(directory, record, recipe, events, judged)


def check(
    directory: Path, record: RunRecord, recipe: Recipe, card: Card, events: Sequence[Event],
    changed: Sequence[str],
) -> list[str]:
    """Compare the files of a completed run.

    Args:
        directory: the run directory.
        record: content of `run.json`.
        recipe: the recipe, whose hash agrees with `record`.
        card: the card of its app.
        events: the events in `metrics.jsonl`.
        changed: arguments of the command line that change the experiment.

    Returns:
        One line for each comparison, to print with the verdict.

    Raises:
        RunError: Files disagree; the message lists all disagreements.
    """
    result = _result(directory / RESULT)
    faults = [
        *ended(record), *_changed_files(directory, record), *_command(record, recipe),
        *_image(record), *_metrics(record, recipe, card, events, changed),
        *_outcome(events, result, card),
        *(chain_faults(directory, record, recipe, last_step(events))
          if record.job else []),
    ]
    if faults:
        raise RunError(
            "\n".join([f"the run in {directory} is damaged: its files disagree", *faults]),
            code="run-inconsistent",
            hint="there is no verdict; use an undamaged copy, or run the recipe again",
        )
    chain = []
    if record.job is not None:
        chain = ["the links of the job chain belong to the jobs of this run, and have the number of"
                 " nodes of the recipe; job.sh is the script that was submitted"]
    hashes = "as in run.json" if record.files else "not in run.json, which is of an older version"
    return [
        "recipe.yaml has the SHA-256 that run.json names",
        "the launch specification in run.json follows from the recipe with its changes and from the"
        " image, and gives the recorded command" if record.launch else
        "run.json, of an older version, has no launch specification: its command was not compared",
        f"the run ended with exit status 0 and success at step {last_step(events)}: run.json,"
        f" {METRICS} and {RESULT} agree, also about the last evaluation",
        *chain,
        f"SHA-256 of {METRICS} and {RESULT}: {hashes}",
    ]


def other_data(record: RunRecord) -> str | None:
    """Return which data sets of a run differ from the pinned hashes; None if all agree."""
    others = [
        f"the data set {data.name} of the run is not the one that its contract pins (dataset.json"
        f" {data.sha256[:12]}…)"
        for data in record.data
        if (pinned := _pinned(data.name)) and data.sha256 not in pinned
    ]
    return "; ".join(others) or None


def _pinned(name: str) -> Collection[str]:
    if name not in contracts.names():
        return ()  # this checkout has no contract
    contract = contracts.load(name)
    return contract.packed.known if isinstance(contract, Contract) and contract.packed else ()


def _result(path: Path) -> Mapping[str, object]:
    try:
        content = parse_json(read_plain(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unreadable(path, error, RunError) from error
    except ValueError as error:
        raise RunError(f"{path}: {error}", code="file-invalid") from error
    return content if isinstance(content, dict) else {}


def ended(record: RunRecord) -> Iterator[str]:
    """Yield the faults in the exit status and the times of a completed run."""
    if record.exit_status != 0:
        yield f"run.json: the status is completed, but the exit status is {record.exit_status}"
    # Only the times of the last part of the run are compared: they are from the clock of one
    # machine.
    begun = record.resumed[-1].started if record.resumed else record.started
    if record.ended is None or record.ended < begun:
        yield f"run.json: the run started {begun}, but ended {record.ended}"


def _changed_files(directory: Path, record: RunRecord) -> Iterator[str]:
    actual = run_directory.hashes(directory) if record.files else {}
    if carriers.LOG in record.files and record.fabric is None:
        yield f"{carriers.LOG}: the job kept it, but run.json names no fabric"
    for name, listed in record.files.items():
        if name not in actual:
            yield f"{name}: the file is missing, but run.json has its SHA-256"
        elif actual[name] != listed:
            yield f"{name}: the SHA-256 is {actual[name]}, but run.json has {listed}"


def _command(record: RunRecord, recipe: Recipe) -> Iterator[str]:
    """Yield how the data, launch specification and command of a run differ from the recipe."""
    names = [data.name for data in record.data]
    if names != list(recipe.data):
        yield (f"run.json: the run read {', '.join(names) or 'no data'},"
               f" but the recipe has {', '.join(recipe.data) or 'none'}")
        return
    launch = record.launch
    if launch is None:
        return
    for difference in launch_spec.differences(launch, _expected(record, launch, recipe)):
        yield f"run.json: the launch does not follow from the recipe with its changes: {difference}"
    try:
        rendered = launch_spec.command(launch)
    except (ValueError, UsageError) as error:
        yield f"run.json: the launch has no command: {error}"
        return
    if (list(rendered.argv), dict(rendered.env)) != (record.command.argv, record.command.env):
        yield "run.json: the command does not follow from the launch"


def _expected(record: RunRecord, launch: LaunchSpec, recipe: Recipe) -> LaunchSpec:
    """Return the launch specification that the run should have had, for comparison with `launch`.

    It is built again from the recipe and the other records of the run. Values that depend on the
    machine are copied from `launch`: the path of the run directory, the use of file system images
    for data sets, and options of the engine.
    """
    images = {mount.source for mount in launch.mounts if mount.image}
    added = {modification.kind: Path(modification.path) for modification in record.modified}
    first = Path(record.initial.path) if record.initial else None
    places = Places(
        {data.name: inputs.mount(recipe, data.name, data.path, image=data.path in images)
         for data in record.data},
        next((mount.source for mount in launch.mounts if mount.writable), ""),
        inputs.initial_mounts(first),
    )
    return launch_spec.specification(
        recipe, record.recipe.changed, record.image.image, launch.node, places,
        module=launch.module, extension=Extension(added.get("overlay"), added.get("venv")),
        site=record.site or SiteSettings(),
    )


def _image(record: RunRecord) -> Iterator[str]:
    """Yield contradictions between the recorded command and the recorded engine and image."""
    image, launch = record.image, record.launch
    programs = selection.row(image.engine).programs
    if not programs:
        if image.digest is not None:
            yield f"run.json: the engine {image.engine} has no images, but the record has a digest"
        return
    if image.digest is None:
        yield "run.json: the image has no digest"
    if launch is not None and Path(str(launch.node.program)).name not in programs:
        yield f"run.json: the command does not run {image.engine}"
    if launch is not None and launch.node.image != image.reference:
        yield f"run.json: the command does not run {image.reference}"
    if image.architecture is not None and not image.emulated:
        machine = MACHINES[image.architecture]
        for other in sorted({host.architecture for host in record.hosts} - {machine}):
            yield f"run.json: the image is for {machine}, but a machine of the run is {other}"


def _metrics(
    record: RunRecord, recipe: Recipe, card: Card, events: Sequence[Event], changed: Sequence[str]
) -> Iterator[str]:
    """Yield the reasons why the metrics cannot come from one complete run of this recipe."""
    keys = [event.key for event in events]
    if keys.count("run_start") != 1:
        yield f"{METRICS} has {keys.count('run_start')} events run_start, not 1"
    stop = events[-1] if events else None
    if stop is None or stop.key != "run_stop" or stop.metadata.get("status") != "success":
        yield f"{METRICS} does not end with run_stop and success; the file is incomplete"
    steps = [step for event in events if (step := event.number("step")) is not None]
    if steps != sorted(steps):
        yield f"{METRICS}: the steps decrease"
    arguments = {**recipe.args, **record.recipe.changed}
    wanted: dict[str, list[object]] = {}  # lists, because values may not be hashable
    if "seed" in arguments:
        wanted["seed"] = [arguments["seed"]]
    # The metrics count clips or token sequences, whereas the recipe counts recordings or documents.
    others_than_samples = {"sequence", "text"} & set(card.data.kinds)
    reads = arguments.get(SYNTHETIC) is not True and not others_than_samples
    if reads and len(recipe.data) == 1 and not changed:
        use = next(iter(recipe.data.values()))
        others: list[object] = [count for split, count in use.samples.items() if split != "train"]
        wanted["train_samples"] = [use.samples.get("train")]
        wanted["eval_samples"] = others or wanted["train_samples"]
    for event in events:
        if event.key in wanted and event.value not in wanted[event.key]:
            other = " or ".join(str(value) for value in wanted[event.key])
            yield f"{METRICS}: {event.key} is {event.value!r}, but the recipe has {other}"


def _outcome(events: Sequence[Event], result: Mapping[str, object], card: Card) -> Iterator[str]:
    if result.get("status") != "success":
        yield f"{RESULT} is missing, or its status is not success"
        return
    if result.get("steps") != last_step(events):
        yield f"{RESULT} has {result.get('steps')} steps, {METRICS} ends at {last_step(events)}"
    scores = result.get("evaluation")
    for metric in card.metrics.values():
        if metric.result is None:
            continue
        last = next((event.value for event in reversed(events) if event.key == metric.key), None)
        score = scores.get(metric.result) if isinstance(scores, dict) else None
        if score != last:
            yield (f"{RESULT}: {metric.result} is {score}, the last {metric.key} of {METRICS}"
                   f" is {last}")


def last_step(events: Sequence[Event]) -> int | None:
    """Return the step of the last event, or None if there is no event or it has no step."""
    return events[-1].number("step") if events else None


def chain_faults(
    directory: Path, record: RunRecord, recipe: Recipe, last_step: int | None
) -> Iterator[str]:
    """Yield the contradictions between the files of a submitted run that has completed.

    Args:
        directory: the run directory.
        record: content of `run.json`, combined with the records of the run's jobs.
        recipe: the recipe, with the requested number of nodes.
        last_step: last step in the metrics; None: the metrics contain no step.
    """
    if record.job is not None:
        yield from _script(directory, record.job)
    links = job_chain.read(directory)
    if not links:
        yield f"run.json: the status is {record.status}, but {job_chain.FOLDER} has no link"
        return
    if record.initial is not None:
        yield from _initial(record.initial, links)
    queued = {_sequence(number) for number in job_chain.numbers(directory)}
    for link in links:
        name = f"{job_chain.FOLDER}/link-{link.number:04}.json"
        yield from (f"{name}: {fault}" for fault in _link(link, recipe, last_step))
        if _sequence(link.job) not in queued:
            place = f"{job_chain.FOLDER}/{job_chain.QUEUED}"
            yield f"{name}: the job is {link.job}, which {place} does not list"
    missing = {METRICS, RESULT} - set(record.files)
    if missing:
        yield (f"{job_chain.FOLDER}/link-{links[-1].number:04}.end.json: the SHA-256 of"
               f" {' and '.join(sorted(missing))} is missing")


def chain_notes(directory: Path) -> list[str]:
    """Return a note for each job that began at an earlier step than the previous job had reached.

    Each job of the run in `directory` continues the training of the previous job. It begins
    earlier, for example, if the user removed checkpoints. The training is complete nevertheless, so
    that this is a note and not a fault.
    """
    return [
        f"link {link.number} began at step {link.step}, but the previous link ended at step"
        f" {previous.end.step}: checkpoints were removed between them"
        for previous, link in pairwise(job_chain.read(directory))
        if previous.end is not None and link.step < previous.end.step
    ]


def _script(directory: Path, job: JobRecord) -> Iterator[str]:
    for name, submitted in job_chain.submitted_files(job).items():
        try:
            digest = hashlib.sha256(read_plain(directory / name)).hexdigest()
        except (OSError, UsageError) as error:
            yield f"{name} cannot be read: {error}"
            continue
        if digest != submitted:
            yield f"{name}: the SHA-256 is {digest}, but run.json has {submitted}"


def _link(link: Link, recipe: Recipe, last_step: int | None) -> Iterator[str]:
    wanted, least = recipe.resources.nodes, recipe.resources.min_nodes
    if not (least or wanted) <= len(link.hosts) <= wanted:
        yield f"the job had {len(link.hosts)} nodes, but the recipe has {wanted}"
    steps = [link.step] if link.end is None else [link.step, link.end.step]
    if max(steps) > (last_step or 0):
        yield f"the step is {max(steps)}, but {METRICS} ends at step {last_step}"
    if link.end is not None and link.end.ended < link.started:
        yield f"the job started {link.started}, but ended {link.end.ended}"


def _initial(initial: InitialRecord, links: Sequence[Link]) -> Iterator[str]:
    """Yield the faults in the records of the checkpoint that the run started from."""
    if initial.sha256 is None:
        yield f"{job_chain.FOLDER}/link-0001.json: the SHA-256 of {initial.path} is missing"
    for link in links:
        if link.initial not in (None, initial.sha256):
            yield (f"{job_chain.FOLDER}/link-{link.number:04}.json: the SHA-256 of {initial.path}"
                   f" is {link.initial}, but the run started from {initial.sha256}")


def _sequence(number: str) -> str:
    """Return a job number without the server's name: `7` for `7.server`."""
    return re.split(r"[.;]", number, maxsplit=1)[0]
