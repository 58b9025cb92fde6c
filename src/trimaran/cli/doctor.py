"""The command `doctor`: whether this machine, a recipe and the nodes of a cluster fit together."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.cluster import ClusterName
from trimaran.cli.common import Json, app, command, complete, say, terminal
from trimaran.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from trimaran.doctor.examination import Row
    from trimaran.site_file import Site

LEVELS = {"ok": "green", "warn": "yellow", "fail": "red"}
"""Level of a finding -> its colour on a terminal."""

MOST_NODES = 10_000
"""Maximum number of nodes that one job examines."""


@command(app, "doctor")
def examine_machine(
    site: Site,
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", autocompletion=complete("recipes"), show_default=False,
                       help="Also check what this recipe and its image need."),
    ] = None,
    cluster: ClusterName = None,
    nodes: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=MOST_NODES,
                     help="Also examine N nodes of the cluster, by a job of its batch system."),
    ] = None,
    queue_seconds: Annotated[
        int,
        typer.Option(metavar="SECONDS", min=1, help="With --nodes: time limit for the start of the"
                                                    " job."),
    ] = 600,
    as_json: Json = False,
) -> None:
    """Check this machine, a recipe, and the nodes of a cluster.

    Without arguments: whether this machine builds images and runs recipes. With a recipe: whether
    its image fits the drivers, libraries and MPI that are found. With --cluster NAME --nodes N: on
    N nodes of the cluster, too. The reference lists all findings. Exits with 4 when something that
    runs need is broken.

    Example: trimaran doctor resnet-imagenet/cpu-2node-smoke
    """
    from trimaran.cluster import jobs
    from trimaran.doctor import examination
    from trimaran.recipes import library

    file = library.load(recipe) if recipe is not None else None
    name, facts = (None, None) if cluster is None and nodes is None else jobs.choose(site, cluster)
    if nodes is not None and not site.clusters:
        raise UsageError("--nodes: the site file defines no cluster", code="argument-invalid",
                         hint="trimaran site init")
    about = examination.situation(site, facts, file)
    found = examination.examine(about, (recipe, name), nodes, terminal(), queue_seconds)
    if as_json:
        say(found.model_dump_json(indent=2))
    else:
        _show(examination.rows(found))
    if found.level == "fail":
        raise typer.Exit(ExitCode.RUN)


def _show(rows: Iterable[Row]) -> None:
    """Print one table for each group of findings."""
    from rich.text import Text

    from trimaran.cli.terminal import show_table

    for group, members in groupby(rows, key=lambda row: row.group):
        show_table(group, ["name", "level", "cause", "remedy"], [
            [row.id, Text(row.level.upper(), LEVELS[row.level]), "\n".join(row.causes),
             "\n".join(row.remedies)]
            for row in members
        ])
