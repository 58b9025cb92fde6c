"""The command `tune`, which searches faster settings of a recipe by short runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimaran.cli.common import (
    Base,
    EngineName,
    Json,
    Offline,
    RecipeName,
    app,
    command,
    say,
    terminal,
)
from trimaran.cli.runs import DataFolders, Initial
from trimaran.engines import selection
from trimaran.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from trimaran.site_file import Site

LONGEST_MINUTES = 10_000


@command(app, network=True)
def tune(
    site: Site,
    recipe: RecipeName,
    engine: EngineName = "auto",
    minutes: Annotated[
        float, typer.Option(metavar="M", help="Time of search and confirmation in minutes."),
    ] = 10,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Parameter to leave as in the recipe, such as precision "
                                          "(repeatable)."),
    ] = None,
    data: DataFolders = None,
    initial: Initial = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to make for trials and recipe."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw the trials, as SVG."),
    ] = None,
    base: Base = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Search faster settings of a recipe by short runs on this machine.

    The global batch stays the same. The fastest settings are compared with the recipe in
    alternating runs. If they are really faster, a new recipe is written, which is marked as tuned;
    otherwise the result is "no difference". Missing data and images are prepared first.

    Example: trimaran tune resnet-imagenet/cpu-quickstart --minutes 8
    """
    from trimaran.recipes import library
    from trimaran.run import inputs
    from trimaran.run.request import Request
    from trimaran.tune import tuning

    if not 0 < minutes <= LONGEST_MINUTES:
        raise UsageError(f"--minutes {minutes:g}: must be above 0, and at most {LONGEST_MINUTES}",
                         code="argument-invalid")
    if plot is not None and (plot.is_dir() or not plot.parent.is_dir()):
        raise UsageError(f"--plot {plot}: not a file in an existing folder",
                         code="argument-invalid")
    chosen, file = selection.select(engine), library.load(recipe)
    request = Request(
        recipe=file, engine=chosen, changes={}, folders=inputs.given(file, data or []),
        initial=initial, out=out, base=base, offline=offline, site=site,
    )
    record, folder = tuning.tune(request, tuning.Options(minutes, keep or []), terminal())
    _show(record, folder, plot, as_json)


def _show(record: Any, folder: Path, plot: Path | None, as_json: bool) -> None:
    """Print the trials and the result, and draw the plot."""
    from trimaran.cli.terminal import show_table
    from trimaran.files import write_atomic
    from trimaran.process import shell_line
    from trimaran.tune import record as records

    if as_json:
        say(record.model_dump_json(indent=2))
    else:
        show_table(*records.table(record))
        for line in records.conclusion(record):
            say(line)
        if record.written is not None:
            say(f"recipe  {folder / 'recipes' / record.written}.yaml")
            say("To run it: " + shell_line(
                ["trimaran", "run", record.written, "--recipes", str(folder)]))
        say(f"trials  {folder}")
    if plot is not None and (drawn := records.picture(record)) is not None:
        write_atomic(plot, drawn)
    if record.outcome == "interrupted":
        raise Interrupted("the tuning was stopped", hint=f"the trials are in {folder}")
