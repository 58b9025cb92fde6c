"""Commands for clusters: `submit`, `status`, `logs`, `cancel` and `site`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.common import (
    Json,
    Offline,
    RecipeNames,
    Settings,
    app,
    command,
    emit,
    say,
    show_assumptions,
    terminal,
)
from trimaran.cli.runs import DataFolders, Initial, RunDirectory, RunFolder, refuse_folder
from trimaran.cli.submissions import Ways, folders
from trimaran.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from trimaran.run.request import Request
    from trimaran.site_file import Cluster, Site

LAST = 50
"""Maximum number of ended runs that `status` shows."""

ClusterName = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME", help="Cluster of the site file; default: the first "
                                                   "one."),
]
NodeCounts = Annotated[
    str | None,
    typer.Option(
        metavar="N[,N]...",
        help="Number of nodes; several numbers make a scaling series with one job each.",
    ),
]
RunDirectories = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[RUN]...", help="Run directories; default: all."),
]


site_app = typer.Typer(
    help="Make or show the site file, which describes this machine.\n\nExample: trimaran site show",
    no_args_is_help=True, rich_markup_mode=None,
)
app.add_typer(site_app, name="site")


@site_app.command("init")
def init_site(
    name: Annotated[str, typer.Option("--cluster", help="Name of the cluster.")] = "here",
    file: Annotated[
        Path | None,
        typer.Option("--site", envvar="TRIMARAN_SITE", metavar="FILE", help="Site file to make."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Accept all values of the batch system without questions.")
    ] = False,
) -> None:
    """Make a site file from what this login node reports.

    An existing file is never changed. On a terminal, each value is shown first: Enter accepts it,
    another answer replaces it.

    Example: trimaran site init --cluster ourcluster
    """
    from trimaran import site_file
    from trimaran.cluster import detect_site

    place = file or site_file.default_path()
    if place is None:
        raise UsageError("no place for the site file: the home directory is unknown",
                         code="home-unknown", hint="set HOME, or name a file: --site FILE")
    detect_site.refuse_old(place, name)
    facts = detect_site.detect(terminal())
    asks = not yes and sys.stdin.isatty()
    if asks:
        facts |= _answers(detect_site.questions(facts))
    facts |= detect_site.architecture(facts, terminal())
    if asks:
        facts |= _answers(detect_site.questions(facts, detect_site.LAST_QUESTIONS))
    if most := detect_site.limit(facts, terminal()):
        terminal().note(f"time limit of partition {facts['partition']}: {most}")
    detect_site.write(place, name, facts)
    say(place)
    say(place.read_text(encoding="utf-8").rstrip())


def _answers(questions: Mapping[str, tuple[str, str]]) -> dict[str, object]:
    """Ask the user each question on the terminal; return the values for the site file by key.

    `questions` has the text and the default answer of each question.
    """
    from trimaran.cluster import detect_site
    from trimaran.terminal_safety import visible

    return {
        key: detect_site.answered(key, typer.prompt(
            question, default=visible(taken), show_default=bool(taken), err=True))
        for key, (question, taken) in questions.items()
    }


@command(site_app, "show")
def show_site(site: Site) -> None:
    """Print the site file with the defaults that it leaves out.

    Example: trimaran site show
    """
    import yaml

    say(yaml.safe_dump(site.model_dump(mode="json", by_alias=True), sort_keys=False).rstrip())


@command(app, network=True)
def submit(
    site: Site,
    named: RecipeNames,
    cluster: ClusterName = None,
    nodes: NodeCounts = None,
    data: DataFolders = None,
    initial: Initial = None,
    out: RunFolder = None,
    settings: Settings = None,
    together: Annotated[
        bool, typer.Option("--together", help="Train all recipes on one node, as one job.")
    ] = False,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N[,N]...", help="With --together: train each recipe with each of "
                                              "these seeds."),
    ] = None,
    chain: Annotated[
        bool, typer.Option("--chain", help="Start each recipe from the last checkpoint of the "
                                           "recipe before it.")
    ] = False,
    offline: Offline = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the batch script and queue nothing.")
    ] = False,
    form: Annotated[
        str | None,
        typer.Option(metavar="FORM", help="With --dry-run: print it in another form: docker."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Submit even if a check shows that the job cannot work.")
    ] = False,
) -> None:
    """Submit a recipe, or several, to the cluster's batch system.

    The site file names Slurm, PBS or LSF. The quick checks of `trimaran doctor` run first. Then the
    data and the image are prepared on this machine. The compute nodes need Apptainer and the file
    system of the run directory, but no Python. A job that reaches its time limit is queued again
    and continues. `trimaran report RUN` prints the verdict.

    With --together, each training gets an equal share of the cores and one GPU at most, and has a
    verdict of its own; the image and the data are copied to the node once. With --chain, each run
    is queued when the run before it has completed.

    Example: trimaran submit resnet-imagenet/cpu-2node-smoke

    Example: trimaran submit resnet-imagenet/cpu-quickstart --together --seeds 1,2,3,4

    Example: trimaran submit APP/FIRST APP/SECOND --chain
    """
    from trimaran.cluster import submission
    from trimaran.doctor import examination
    from trimaran.engines import apptainer
    from trimaran.recipes import library
    from trimaran.run.request import Request

    ways = Ways(nodes, seeds, together, chain, form)
    ways.check(named, dry_run=dry_run)
    name, facts = submission.choose(site, cluster)
    elsewhere = dry_run and apptainer.program() is None
    engine = apptainer.Apptainer("apptainer" if elsewhere else None)
    trainings = ways.trainings(named, library.parse_changes(settings or []))
    files = [file for file, _ in trainings]
    requests = [
        Request(
            recipe=file, engine=engine, changes=changes,
            folders=folders(file, files, data or []), initial=initial, out=out, offline=offline,
            site=site, queued=True,
        )
        for file, changes in trainings
    ]
    if dry_run:
        _preview(ways, requests, facts)
        return
    ways.check_requests(requests, facts)
    if not force:
        examination.refuse([
            examination.situation(site, facts, request.recipe) for request in requests
        ])
    say(ways.submit(requests, name, facts, terminal()))


def _preview(ways: Ways, requests: Sequence[Request], cluster: Cluster) -> None:
    for request in requests:
        show_assumptions(request.recipe.recipe)
    for text in ways.previews(requests, cluster):
        say(text.removesuffix("\n"))


@command(app)
def status(site: Site, runs: RunDirectories = None, as_json: Json = False) -> None:
    """Show the state of submitted runs: queued, running or ended.

    Without arguments, the command lists the queued and running runs below runs/ and in the
    clusters' scratch folders, and the 50 runs that were submitted last. For a scaling series, and
    for the folder of runs that were submitted together or as a chain, all its runs are shown. The
    state of a run whose batch system does not answer is unknown; if you named that run, the exit
    code is 4.

    Example: trimaran status
    """
    from trimaran.cluster import watch

    named = [point for run in runs or [] for point in _runs_of(run)]
    rows = watch.look(named, terminal()) if named else watch.overview(
        watch.find(watch.folders(site)), terminal()
    )
    if not runs and not as_json:
        shown = [row for row in rows[:-LAST] if row.state not in watch.ENDED] + rows[-LAST:]
        if len(shown) < len(rows):
            terminal().note(f"{len(rows) - len(shown):,} more runs have ended;"
                            " `trimaran status --json` lists all")
        rows = shown
    emit([
        {
            "name": str(row.directory), "job": row.job, "state": row.state, "nodes": row.nodes,
            "links": row.links, "step": "" if row.step is None else row.step, "why": row.reason,
        }
        for row in rows
    ], "submitted runs", as_json)
    if named and any(row.state == watch.UNKNOWN for row in rows):
        raise typer.Exit(ExitCode.RUN)


@command(app)
def logs(
    run: RunDirectory,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until the job ends.")
    ] = False,
) -> None:
    """Print the log of a submitted run.

    Example: trimaran logs -f runs/resnet-imagenet/cpu-2node-smoke/20261121-120000
    """
    from trimaran.cluster import watch

    refuse_folder(run, "a separate log")
    watch.follow(run, say, on=follow)


@command(app)
def cancel(site: Site, run: RunDirectory) -> None:
    """Cancel the job of a submitted run; its checkpoints stay.

    `trimaran resume` continues the run. For a scaling series or a folder of several runs, all
    queued and running jobs are cancelled. A job that several trainings share ends for all of
    them. If no job is queued or running, the command removes the copies of images and data that
    ended jobs of the run have left on the local disk of this machine.

    Example: trimaran cancel runs/resnet-imagenet/cpu-2node-smoke/20261121-120000
    """
    from trimaran.cluster import jobs, node_copies

    runs = _runs_of(run)
    try:
        for job in jobs.cancel(runs, terminal()):
            say(f"job {job} cancelled")
    except UsageError as error:
        removed = node_copies.remove_ended(site, runs)
        if not removed:
            raise
        terminal().note(error.message)
        for copies in removed:
            say(f"removed {copies.path}, left by job {copies.job}")


def _runs_of(run: Path) -> list[Path]:
    """Return the submitted runs in the folder `run`, or `run` itself if it is a run directory.

    Print a note for each run of the folder that was not submitted.
    """
    from trimaran.cluster import several
    from trimaran.report import scaling

    points = [*scaling.folders(run).values(), *several.folders(run)]
    for point in points:
        if not point.is_dir():
            terminal().note(f"{point} was not submitted")
    return [point for point in points if point.is_dir()] or [run]
