"""Whether the files of a run tell the same: what a verdict rests on, beside the numbers.

None of them is signed, so this finds damage and careless changes, not a forger of all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from trimaran.data import contracts
from trimaran.data.contracts import Contract
from trimaran.engines import selection
from trimaran.errors import RunError, UsageError
from trimaran.files import read_plain
from trimaran.launch.specification import LaunchSpec
from trimaran.parsing import parse_json
from trimaran.recipes.cards import Card
from trimaran.recipes.command import real_changes
from trimaran.recipes.recipe import SYNTHETIC, Recipe
from trimaran.run import initial, inputs, launch_spec, run_directory
from trimaran.run.extensions import Extension
from trimaran.run.launch_spec import Places
from trimaran.run.record import RunRecord
from trimaran.run.run_directory import METRICS, RESULT
from trimaran.run.site_settings import SiteSettings
from trimaran.verdict import chain_consistency
from trimaran.verdict.metrics_log import Event


def check(
    directory: Path, record: RunRecord, recipe: Recipe, card: Card, events: Sequence[Event]
) -> list[str]:
    """Compare what the files of a completed run say; `recipe` has the hash that `record` names.

    Returns:
        What was compared, a line for each, for the reader of the verdict.

    Raises:
        RunError: something disagrees; all of it is named.
    """
    result = _result(directory / RESULT)
    faults = [
        *ended(record), *_changed_files(directory, record), *_command(record, recipe),
        *_image(record), *_metrics(record, recipe, card, events),
        *_outcome(events, result, card),
        *(chain_consistency.faults(directory, record, recipe, last_step(events))
          if record.job else []),
    ]
    if faults:
        raise RunError(
            "\n".join([f"the run in {directory} is damaged: its files disagree", *faults]),
            hint="nothing is judged; take an undamaged copy, or run the recipe again",
        )
    said = []
    if record.job is not None:
        said = ["the links of the chain are of this run's jobs, on as many nodes as the recipe has,"
                " and job.sh is the script that was submitted"]
    hashes = "as run.json says" if record.files else "which run.json, of an older version, has not"
    return [
        "recipe.yaml has the SHA-256 that run.json names",
        "the launch specification in run.json is that of the recipe with its changes, in the image"
        " named there, and the command is what it renders to" if record.launch else
        "run.json, of an older version, has no launch specification: its command was not compared",
        f"the run ended with exit status 0 and success at step {last_step(events)}: run.json,"
        f" {METRICS} and {RESULT} agree, in the last evaluation, too",
        *said,
        f"SHA-256 of {METRICS} and {RESULT}: {hashes}",
    ]


def other_data(record: RunRecord) -> str | None:
    """Return in what the data of a run are not those that their contract pins, if they are not."""
    others = [
        f"the run read another {data.name} than its contract pins (dataset.json"
        f" {data.sha256[:12]}…)"
        for data in record.data
        if (pinned := _pinned(data.name)) and data.sha256 not in pinned
    ]
    return "; ".join(others) or None


def _pinned(name: str) -> Collection[str]:
    if name not in contracts.names():
        return ()  # nobody says here what they are
    contract = contracts.load(name)
    return contract.packed.known if isinstance(contract, Contract) and contract.packed else ()


def _result(path: Path) -> Mapping[str, object]:
    try:
        found = parse_json(read_plain(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}


def ended(record: RunRecord) -> Iterator[str]:
    """Tell what is wrong with how a completed run ended, and when."""
    if record.exit_status != 0:
        yield f"run.json: completed, but the exit status is {record.exit_status}"
    # Of its last part: clocks of two machines may differ.
    begun = record.resumed[-1].started if record.resumed else record.started
    if record.ended is None or record.ended < begun:
        yield f"run.json: started {begun}, ended {record.ended}"


def _changed_files(directory: Path, record: RunRecord) -> Iterator[str]:
    found = run_directory.hashes(directory) if record.files else {}
    for name, listed in record.files.items():
        if found.get(name) != listed:
            yield f"{name}: SHA-256 {found.get(name) or 'of nothing'}, run.json says {listed}"


def _command(record: RunRecord, recipe: Recipe) -> Iterator[str]:
    """Compare the launch specification with the recipe's, and the command with both."""
    names = [data.name for data in record.data]
    if names != list(recipe.data):
        yield (f"run.json: the run read {', '.join(names) or 'no data'},"
               f" the recipe has {', '.join(recipe.data) or 'none'}")
        return
    launch = record.launch
    if launch is None:
        return
    for difference in launch_spec.differences(launch, _expected(record, launch, recipe)):
        yield f"run.json: the launch is not that of the recipe with its changes: {difference}"
    try:
        rendered = launch_spec.command(launch)
    except (ValueError, UsageError) as error:
        yield f"run.json: the launch gives no command: {error}"
        return
    if (list(rendered.argv), dict(rendered.env)) != (record.command.argv, record.command.env):
        yield "run.json: the command is not that of the launch"


def _expected(record: RunRecord, launch: LaunchSpec, recipe: Recipe) -> LaunchSpec:
    """Return the specification that follows from the recipe and the other records of the run.

    From `launch` itself come what only the machine knew: where the run directory was, which of
    the data sets were file system images, and the engine's own options.
    """
    images = {mount.source for mount in launch.mounts if mount.image}
    added = {one.kind: Path(one.path) for one in record.modified}
    first = Path(record.initial.path) if record.initial else None
    places = Places(
        {data.name: inputs.mount(recipe, data.name, data.path, image=data.path in images)
         for data in record.data},
        next((mount.source for mount in launch.mounts if mount.writable), ""),
        initial.mounts(first),
    )
    return launch_spec.specification(
        recipe, record.recipe.changed, record.image.image, launch.node, places,
        module=launch.module, extension=Extension(added.get("overlay"), added.get("venv")),
        site=record.site or SiteSettings(),
    )


def _image(record: RunRecord) -> Iterator[str]:
    """Compare engine and digest of the image with the program that ran it."""
    image, launch = record.image, record.launch
    programs = selection.row(image.engine).programs
    if not programs:
        if image.digest is not None:
            yield f"run.json: the engine {image.engine} has no images, but there is a digest"
        return
    if image.digest is None:
        yield "run.json: the image has no digest"
    if launch is not None and Path(str(launch.node.program)).name not in programs:
        yield f"run.json: the command does not run {image.engine}"
    if launch is not None and launch.node.image != image.reference:
        yield f"run.json: the command does not run {image.reference}"


def _metrics(
    record: RunRecord, recipe: Recipe, card: Card, events: Sequence[Event]
) -> Iterator[str]:
    """Check that the metrics are those of one whole run of this recipe."""
    keys = [event.key for event in events]
    if keys.count("run_start") != 1:
        yield f"{METRICS}: run_start is there {keys.count('run_start')} times, not once"
    stop = events[-1] if events else None
    if stop is None or stop.key != "run_stop" or stop.metadata.get("status") != "success":
        yield f"{METRICS} does not end with run_stop and success: it is cut short"
    steps = [step for event in events if (step := event.number("step")) is not None]
    if steps != sorted(steps):
        yield f"{METRICS}: its steps go backwards"
    arguments = {**recipe.args, **record.recipe.changed}
    wanted: dict[str, list[object]] = {}  # no sets: what a run tells may be a list
    if "seed" in arguments:
        wanted["seed"] = [arguments["seed"]]
    # Of a sequence there are as many clips as its length gives, and a training tells those.
    reads = arguments.get(SYNTHETIC) is not True and "sequence" not in card.data.kinds
    if reads and len(recipe.data) == 1 and not real_changes(recipe, card, record.recipe.changed):
        use = next(iter(recipe.data.values()))
        others: list[object] = [count for split, count in use.samples.items() if split != "train"]
        wanted["train_samples"] = [use.samples.get("train")]
        wanted["eval_samples"] = others or wanted["train_samples"]
    for event in events:
        if event.key in wanted and event.value not in wanted[event.key]:
            other = " or ".join(str(value) for value in wanted[event.key])
            yield f"{METRICS}: {event.key} is {event.value!r}, the recipe has {other}"


def _outcome(events: Sequence[Event], result: Mapping[str, object], card: Card) -> Iterator[str]:
    """Compare the end of the metrics with `result.json`."""
    if result.get("status") != "success":
        yield f"{RESULT} is missing or does not say success"
        return
    if result.get("steps") != last_step(events):
        yield f"{RESULT}: {result.get('steps')} steps, {METRICS} ends at {last_step(events)}"
    scores = result.get("evaluation")
    for metric in card.metrics.values():
        if metric.result is None:
            continue
        last = next((event.value for event in reversed(events) if event.key == metric.key), None)
        found = scores.get(metric.result) if isinstance(scores, dict) else None
        if found != last:
            yield (f"{RESULT}: {metric.result} is {found}, the last {metric.key} of {METRICS}"
                   f" is {last}")


def last_step(events: Sequence[Event]) -> int | None:
    """Return the step at which a run ended."""
    return events[-1].number("step") if events else None
