"""The report of a run: verdict, curves and provenance as Markdown, HTML, PNG, SVG and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from pydantic import BaseModel

from trimaran import recipes, runs, targets, verdict
from trimaran.command import real_changes
from trimaran.errors import UsageError
from trimaran.files import write_atomic
from trimaran.recipes import RecipeFile
from trimaran.runs import RunRecord
from trimaran.verdict import Event, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pydantic.main import IncEx

# Okabe and Ito's colours, which readers with any colour vision tell apart.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"


class Evidence(BaseModel):
    """`verdict.json`: all that is needed to believe or doubt the verdict, in one file."""

    run: RunRecord
    verdict: Verdict


# What tells of the machine's users and folders and nothing of the result. The exact
# arguments stay known: they are the recipe's, which is there by its hash, and the changes.
_PRIVATE: dict[str, IncEx | bool] = {
    "command": True,
    "image": {"reference"},
    "data": {"path"},
    "initial": {"path"},
    "host": {"hostname"},
    "resumed": {"__all__": {"host": {"hostname"}}},
    "environment": {"argv"},
}


def write_evidence(directory: Path, file: Path) -> None:
    """Write the verdict of a judged run to `file`, without folders and names of the machine.

    Raises:
        UsageError: the run was not in a container, its image was modified, or `file` exists.
    """
    text = (directory / "verdict.json").read_text(encoding="utf-8")
    evidence = Evidence.model_validate_json(text)
    if not evidence.run.image.publishable:
        raise UsageError(
            f"the run in {directory} was not in a container: it is no evidence",
            hint="run it with --engine apptainer or podman",
        )
    if evidence.run.modified:
        raise UsageError(
            f"the image of the run in {directory} was modified ({_added(evidence.run)}):"
            " it is no evidence",
            hint="run it without --overlay and --venv; build what is needed into an image",
        )
    if file.exists():
        raise UsageError(f"{file} exists: evidence is never overwritten")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, evidence.model_dump_json(indent=2, exclude={"run": _PRIVATE}) + "\n")


def write(directory: Path) -> tuple[RunRecord, Verdict]:
    """Judge the run in `directory` and write its report files there.

    Writes `verdict.json`, `curves.svg`, `curves.png`, `report.md` and `report.html`.

    Raises:
        UsageError: no run directory, a run that has not completed, or a recipe
            that is not the one that was run.
    """
    record = runs.load(directory)
    if record.status != "completed":
        raise UsageError(
            f"the run in {directory} is {record.status}, not completed: there is nothing to judge",
            hint=f"its log is {directory / 'log.txt'}",
        )
    recipe = recipe_as_run(directory, record)
    events = verdict.read_events(directory / "metrics.jsonl")
    target = targets.load(recipe.recipe.target)
    unlike = [text for host in record.hosts for text in targets.differences(target, host)]
    judged = verdict.judge(
        recipe.recipe,
        events,
        changed=real_changes(recipe.recipe, record.recipe.changed),
        unlike=list(dict.fromkeys(unlike)),
    )
    _draw(directory, recipe.name, events)
    _render(directory, recipe, record, judged)
    return record, judged


def notes(record: RunRecord) -> list[str]:
    """Return what a reader of the verdict must know about the circumstances of the run."""
    said = []
    if not record.image.publishable:
        said.append("not in a container: not publishable as evidence")
    if record.modified:
        said.append(f"the image was modified ({_added(record)}): not publishable as evidence")
    for part in record.resumed:
        said.append(f"stopped, and resumed at {part.started.isoformat(timespec='seconds')}")
    if record.git.dirty or any(part.git.dirty for part in record.resumed):
        said.append("the checkout had uncommitted changes")
    return said


def _added(record: RunRecord) -> str:
    return ", ".join(f"{added.kind} {added.path}" for added in record.modified)


def recipe_as_run(directory: Path, record: RunRecord) -> RecipeFile:
    """Load the copy of the recipe that the run directory holds, and check that it is untouched."""
    path = directory / "recipe.yaml"
    recipe = recipes.load_copy(path, record.recipe.name)
    if recipe.sha256 != record.recipe.sha256:
        raise UsageError(f"{path} is not the recipe that was run (run.json has another SHA-256)")
    return recipe


def _render(directory: Path, recipe: RecipeFile, record: RunRecord, judged: Verdict) -> None:
    svg = (directory / "curves.svg").read_text(encoding="utf-8")
    values = {
        "recipe": recipe,
        "record": record,
        "verdict": judged,
        "notes": notes(record),
        "duration": str(timedelta(seconds=round(record.seconds or 0))),
        "svg": svg[svg.index("<svg") :],
    }
    environment = Environment(
        loader=PackageLoader("trimaran"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for name in ("report.md", "report.html"):
        write_atomic(directory / name, environment.get_template(f"{name}.j2").render(values))
    evidence = Evidence(run=record, verdict=judged)
    write_atomic(directory / "verdict.json", evidence.model_dump_json(indent=2) + "\n")


def _draw(directory: Path, title: str, events: Sequence[Event]) -> None:
    """Draw loss, top-1 and throughput over the steps of the run."""
    import matplotlib as mpl

    mpl.use("Agg")  # no display is there, and none is needed
    from matplotlib import pyplot as plt

    plt.rcParams["svg.hashsalt"] = "trimaran"  # the same run gives the same file
    figure, (loss, accuracy, speed) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    _curve(loss, events, "train_loss", "training", BLUE)
    _curve(loss, events, "eval_loss", "evaluation", ORANGE, marker="o")
    loss.set(title="loss", xlabel="step", yscale="log")
    _curve(accuracy, events, "eval_accuracy", "top-1", GREEN, marker="o", factor=100)
    accuracy.set(title="evaluation top-1, %", xlabel="step")
    _curve(speed, events, "throughput", "training", BLUE)
    speed.set(title="throughput, img/s", xlabel="step", ylim=(0, None))
    for axes in (loss, accuracy, speed):
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)
    figure.suptitle(title)
    figure.savefig(directory / "curves.svg", metadata={"Date": None})
    figure.savefig(directory / "curves.png", dpi=110)
    plt.close(figure)


def _curve(
    axes: Axes,
    events: Sequence[Event],
    key: str,
    label: str,
    color: str,
    *,
    marker: str | None = None,
    factor: float = 1.0,
) -> None:
    points = [
        (event.number("step") or 0, event.value * factor)
        for event in events
        if event.key == key and isinstance(event.value, int | float)
    ]
    if points:
        steps, values = zip(*points, strict=True)
        axes.plot(steps, values, label=label, color=color, marker=marker, markersize=4)
