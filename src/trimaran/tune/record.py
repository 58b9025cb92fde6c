"""Write the record of a tuning (`tuning.json`), and show it as a table, a plot and sentences."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from trimaran.files import write_atomic
from trimaran.hostfacts import HostFacts
from trimaran.report import charts
from trimaran.report.panels import Line, Panel, Point
from trimaran.report.table import Table
from trimaran.strict import Digest, Sha256
from trimaran.tune.derive import shown
from trimaran.tune.space import Value

FILE = "tuning.json"

Outcome = Literal["running", "faster", "no difference", "not confirmed", "interrupted",
                  "failed"]


class TrialRecord(BaseModel):
    """The record of one trial; `changed` has the settings that differ from the recipe."""

    number: int
    changed: dict[str, Value]
    rate: float | None
    failure: str | None
    seconds: float
    directory: str | None


class Confirmation(BaseModel):
    """The result of the confirmation: rates of pairs of runs, and the mean relative gain.

    Each pair has the recipe's rate and the rate with the tuned settings. `gain_low` and `gain_high`
    are the bounds of the confidence interval.
    """

    pairs: list[tuple[float, float]]
    gain: float
    gain_low: float
    gain_high: float


class TuningRecord(BaseModel):
    """The content of `tuning.json`, which is replaced after each trial.

    Attributes:
        steps: number of steps of a trial.
        parameters: values that the search could choose, the recipe's value first.
        best: number of the trial that the search selected.
        failure: which run of the confirmation failed, and why; None if all runs succeeded.
        written: name of the derived recipe in the subfolder `recipes`; None: no recipe was written.
    """

    schema_version: Literal[1] = 1
    outcome: Outcome = "running"
    recipe: str
    sha256: Sha256
    date: date
    host: str
    engine: str
    image_digest: Digest | None
    command: str
    minutes: float
    seed: int
    steps: int
    metric: str
    unit: str
    parameters: dict[str, list[Value]]
    trials: list[TrialRecord] = Field(default_factory=list)
    best: int | None = None
    confirmation: Confirmation | None = None
    failure: str | None = None
    written: str | None = None

    def write(self, folder: Path) -> None:
        """Replace `tuning.json` in `folder`."""
        write_atomic(folder / FILE, self.model_dump_json(indent=2) + "\n")

    def text(self, rate: float) -> str:
        """Return a rate as text with its unit, such as samples/s."""
        return f"{charts.number(rate)} {self.unit}"


def host_words(host: HostFacts) -> str:
    """Return cores, processor, memory and GPUs of the machine `host` as text, without its name."""
    gpus = f", {len(host.accelerators)} x {host.accelerators[0]}" if host.accelerators else ""
    return f"{host.cores} cores of {host.processor}, {host.memory_gib:.0f} GiB{gpus}"


def table(record: TuningRecord) -> Table:
    """Return a table of the trials: the fastest trial is first, and failed trials are last."""
    ordered = sorted(record.trials, key=lambda one: -(one.rate or 0.0))
    return Table(
        f"Trials of {record.recipe}, at most {record.steps} steps each",
        ("trial", record.metric, "changed settings", "seconds"),
        [[str(one.number), one.failure or "failed" if one.rate is None else record.text(one.rate),
          shown(one.changed), f"{one.seconds:.0f}"] for one in ordered],
    )


def picture(record: TuningRecord) -> str | None:
    """Return an SVG plot of the rates of the trials and of the best rate up to each trial.

    Return None if no trial has a rate.
    """
    rates = [(one.number, one.rate) for one in record.trials if one.rate is not None]
    if not rates:
        return None
    found = [Point(number, 0, rate) for number, rate in rates]
    best = [Point(number, 0, max(rate for other, rate in rates if other <= number))
            for number, _ in rates]
    recipe = [Point(number, 0, rates[0][1]) for number, _ in rates]
    panel = Panel(f"{record.metric}, {record.unit}", "plain", [
        Line("trial", found, 0), Line("best so far", best, 1), Line("recipe", recipe, 2)])
    return charts.picture(f"Trials of {record.recipe}", [charts.chart(panel, unit="trial")])


def conclusion(record: TuningRecord) -> list[str]:
    """Return the result of the tuning in sentences."""
    found = {one.number: one for one in record.trials}
    lines = []
    if record.best is not None and (best := found[record.best]).rate is not None:
        lines.append(f"Fastest trial: {record.text(best.rate)} with {shown(best.changed)};"
                     f" the recipe: {record.text(record.trials[0].rate or 0)}.")
    if (seen := record.confirmation) is not None:
        lines.append(f"{len(seen.pairs)} alternating pairs of runs: {seen.gain:+.1%}"
                     f" (95 % interval {seen.gain_low:+.1%} to {seen.gain_high:+.1%}).")
    lines.append(_ENDS[record.outcome].format(failure=record.failure))
    return lines


_ENDS: dict[Outcome, str] = {
    "running": "The tuning has not ended.",
    "faster": "The settings are faster than the recipe on this machine.",
    "no difference": "No setting that was tried is faster than the recipe by more than noise, so no"
                     " recipe was written.",
    "not confirmed": "A run of the confirmation failed ({failure}), so no recipe was written.",
    "interrupted": "Interrupted: the fastest trial is not confirmed, so no recipe was written.",
    "failed": "The tuning failed, so no recipe was written.",
}
