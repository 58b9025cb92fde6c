"""The command `doctor`: check whether this machine, a recipe and cluster nodes fit together."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.cluster import ClusterName
from trimaran.cli.common import Json, app, command, complete, say, terminal
from trimaran.errors import ExitCode, TrimaranError, UsageError

if TYPE_CHECKING:
    from trimaran.doctor.examination import Examination, Row
    from trimaran.recipes.library import RecipeFile
    from trimaran.site_file import Cluster, Site

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
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Also measure the nodes that RECIPE will use, for a minute:"
                                       " devices, memory, network, storage."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check this machine, a recipe, and the nodes of a cluster.

    Without arguments, the command checks whether this machine can build images and run recipes.
    With a recipe, it also checks whether the image fits the drivers, libraries and MPI of the
    machine. With --cluster NAME --nodes N, it also checks N nodes of the cluster. With --measure,
    it lists nodes that deviate from the other nodes. Exits with 4 when something is broken that
    trainings need, or a node hangs. The reference lists all findings.

    Example: trimaran doctor resnet-imagenet/cpu-2node-smoke
    """
    from trimaran.cluster import submission
    from trimaran.doctor import examination
    from trimaran.recipes import library

    file = library.load(recipe) if recipe is not None else None
    asked = cluster is not None or nodes is not None
    name, facts = submission.choose(site, cluster) if asked else (None, None)
    if nodes is not None and not site.clusters:
        raise UsageError("--nodes: the site file defines no cluster", code="argument-invalid",
                         hint="trimaran site init")
    if measure and file is None:
        raise UsageError("--measure needs RECIPE, whose cores, GPUs and kind of image are measured",
                         code="argument-missing", hint="trimaran list recipes")
    if measure and cluster is not None and nodes is None:
        raise UsageError("--measure with --cluster needs --nodes: the login node is not measured",
                         code="argument-missing",
                         hint="add --nodes N, or leave out --cluster to measure this machine")
    about = examination.situation(site, facts, file)
    found = examination.examine(about, (recipe, name), nodes, terminal(), queue_seconds)
    if measure and file is not None:
        cluster_nodes = (name, facts, nodes) if nodes is not None else None
        try:
            found = _measured(found, file, site, cluster_nodes, queue_seconds)
        except TrimaranError:
            _print(found, as_json)  # these findings may explain the error
            raise
    elif name is not None:
        found = _with_age(found, name)
    _print(found, as_json)
    if found.level == "fail":
        raise typer.Exit(ExitCode.RUN)


def _measured(
    found: Examination, file: RecipeFile, site: Site,
    place: tuple[str | None, Cluster | None, int] | None, queue_seconds: float,
) -> Examination:
    """Measure this machine or nodes of a cluster, and write the evidence of the measurement.

    Return the examination `found` with the findings of the measurement added.
    """
    from trimaran.doctor import evidence, measuring

    name = None
    if place is not None and place[0] is not None and place[1] is not None:
        name = place[0]
        done = measuring.on_nodes(file, site, name, place[1], place[2], terminal(), queue_seconds)
    else:
        done = measuring.here(file, site, terminal())
    path = evidence.write(done, name, file.name)
    terminal().note(f"evidence, valid for {evidence.VALID.days} days: {path}")
    return measuring.joined(found, done.findings)


def _with_age(found: Examination, cluster: str) -> Examination:
    """Return the examination `found` with the age of the last measurement of `cluster` added."""
    from trimaran.doctor import evidence

    own, *others = found.nodes
    more = (*own.findings, *evidence.age(cluster))
    return found.model_copy(update={
        "nodes": (own.model_copy(update={"findings": more}), *others)
    })


def _print(found: Examination, as_json: bool) -> None:
    from trimaran.doctor import examination

    if as_json:
        say(found.model_dump_json(indent=2))
    else:
        _show(examination.rows(found))


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
