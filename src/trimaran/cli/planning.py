"""The command `plan`, which predicts the throughput, time, energy and cost of a recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimaran.cli.common import Json, app, command, complete, say
from trimaran.cli.submissions import LARGEST, numbers
from trimaran.errors import UsageError

if TYPE_CHECKING:
    from trimaran.plan.prediction import Plan
    from trimaran.plan.situation import Situation


@command(app)
def plan(
    recipe: Annotated[
        str | None,
        typer.Argument(help="Name of the recipe.", autocompletion=complete("recipes"),
                       show_default=False),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Target to predict for, instead of the recipe's."),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Numbers of nodes.", show_default="1,2,4,8, or 1 if"
                     " the target states no link between nodes"),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="R", help="Samples per second of one device that you measured."),
    ] = None,
    from_run: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Run directory: start from the rate that it measured."),
    ] = None,
    link: Annotated[
        list[Path] | None,
        typer.Option(metavar="RESULT", help="Run directory of `collectives` or its"
                     " collectives.json: take the link between the ranks from it. Give it again"
                     " for the other link."),
    ] = None,
    price: Annotated[
        float | None, typer.Option(metavar="P", help="Price of a node for an hour."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw the speed-up, as SVG."),
    ] = None,
    validate: Annotated[
        bool,
        typer.Option("--validate", help="Compare predictions with all published series."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Predict the throughput, time, energy and cost of a recipe.

    Nothing is run. The prediction starts from a published rate of the device, if a recipe has one,
    else from the device's peak rates; it is never shown as a verdict. Links, power and memory are
    those of the target; --from-run and --link take measured constants instead.

    Example: trimaran plan resnet-imagenet/v100x8-throughput --nodes 1,2,4,8 --price 12.5

    Example: trimaran plan --validate
    """
    if validate == (recipe is not None):
        raise UsageError("give either a recipe or --validate", code="arguments-conflict",
                         hint="`trimaran list recipes` lists the recipes")
    given = {
        "--target": target, "--nodes": nodes, "--rate": rate, "--from-run": from_run,
        "--link": link or None, "--price": price, "--plot": plot,
    }
    _check(given, validate)
    if recipe is None:
        _show_comparison(as_json)
        return
    counts = None
    if nodes is not None:
        counts = sorted({*numbers("--nodes", nodes, 1, LARGEST, "1,2,4,8")})
    found = _made(recipe, target, counts, rate, from_run, link or [], price)
    _show_plan(found, plot, as_json)


def _check(given: dict[str, Any], validate: bool) -> None:
    """Check the options, each of which is None if it was not given.

    Raises:
        UsageError: two options contradict each other, or a number is not in its range.
    """
    used = [option for option, value in given.items() if value is not None]
    if validate and used:
        raise UsageError(f"--validate does not use {', '.join(used)}", code="arguments-conflict",
                         hint="leave them out, or name a recipe instead of --validate")
    for option in ("--rate", "--price"):
        value = given[option]
        if value is not None and not 0 < value < 1e12:
            raise UsageError(f"{option} {value:g}: must be a number above 0 and below 1e12",
                             code="argument-invalid")
    if {"--rate", "--from-run"} <= {*used}:
        raise UsageError("--rate and --from-run both give the rate of a device",
                         code="arguments-conflict", hint="leave one of them out")


def _made(
    recipe: str, target: str | None, nodes: list[int] | None, rate: float | None,
    run: Path | None, links: list[Path], price: float | None,
) -> Plan:
    from trimaran.plan import calibration, prediction, situation

    where = situation.of(recipe, target)
    for path in links:
        where = calibration.with_link(where, path)
    return prediction.make(where, nodes or where.usual_nodes, rate=rate, run=run, price=price)


def _show_plan(found: Plan, plot: Path | None, as_json: bool) -> None:
    from trimaran.cli.terminal import show_table
    from trimaran.files import write_atomic
    from trimaran.plan import prediction, tables

    if plot is not None:
        write_atomic(plot, tables.picture(found))
    if as_json:
        say(json.dumps(prediction.document(found), indent=2))
        return
    show_table(*tables.table(found))
    for line in tables.sentences(found):
        say(line)
    if found.situation.target_name == found.situation.recipe.target:
        verb = "run" if _can_run_here(found.situation) else "submit"
        say(f"To check it on the machine: trimaran {verb} {found.situation.recipe_name}")


def _can_run_here(situation: Situation) -> bool:
    """Return whether `trimaran run` accepts the recipe.

    It refuses a whole series, and a recipe that needs a batch system.
    """
    from trimaran.recipes import library
    from trimaran.run.machines import needs_batch_system

    stem, _, point = situation.recipe_name.partition("@")
    whole = library.definition(stem).series is not None and not point
    return not whole and not needs_batch_system(situation.recipe)


def _show_comparison(as_json: bool) -> None:
    from trimaran.cli.terminal import show_table
    from trimaran.plan import tables, validation

    points = validation.table()
    if as_json:
        say(json.dumps(tables.comparison(points), indent=2))
    else:
        show_table(*tables.compared(points))
