"""Commands for clusters: submit, status, logs, cancel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.common import (
    Json,
    Offline,
    RecipeName,
    Settings,
    app,
    command,
    emit,
    say,
    terminal,
)
from trimaran.cli.runs import DataFolders, Initial, RunDirectory, RunFolder

if TYPE_CHECKING:
    from trimaran.sites import Site

ClusterName = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME", help="One of the site file's; default: its first."),
]
RunDirectories = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[RUN]...", help="Run directories; default: all below runs/."),
]


site_app = typer.Typer(
    help="The site file: what holds on this machine.\n\nExample: trimaran site show",
    no_args_is_help=True, rich_markup_mode=None,
)
app.add_typer(site_app, name="site")


@site_app.command("init")
def init_site(
    name: Annotated[str, typer.Option("--cluster", help="What to call the cluster.")] = "here",
    file: Annotated[
        Path | None,
        typer.Option("--site", envvar="TRIMARAN_SITE", metavar="FILE", help="Site file to make."),
    ] = None,
) -> None:
    """Make a site file with what this login node tells of its cluster; none is ever changed.

    Example: trimaran site init --cluster ourcluster
    """
    from trimaran import sites
    from trimaran.cluster import detect

    place = file or sites.default_path()
    detect.write(place, name, detect.found())
    say(place)
    say(place.read_text().rstrip())


@command(site_app, "show")
def show_site(site: Site) -> None:
    """Print what the site file says, with the defaults of what it leaves out.

    Example: trimaran site show
    """
    import yaml

    say(yaml.safe_dump(site.model_dump(mode="json", by_alias=True), sort_keys=False).rstrip())


@command(app, network=True)
def submit(
    site: Site,
    recipe: RecipeName,
    cluster: ClusterName = None,
    data: DataFolders = None,
    initial: Initial = None,
    out: RunFolder = None,
    settings: Settings = None,
    offline: Offline = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the batch script and queue nothing.")
    ] = False,
) -> None:
    """Give a recipe to the cluster's batch system (Slurm), and go on with it at its time limit.

    Data and image are made here first. The nodes need Apptainer and the run directory's file
    system, no Python. Its verdict: trimaran report RUN.

    Example: trimaran submit resnet-imagenet/cpu-2node-smoke
    """
    from trimaran.cluster import submit as jobs
    from trimaran.engines import apptainer
    from trimaran.recipes import library
    from trimaran.recipes.command import parse_changes
    from trimaran.runs import inputs
    from trimaran.runs.pipeline import Request

    name, facts = jobs.choose(site, cluster)
    file = library.load(recipe)
    elsewhere = dry_run and apptainer.program() is None
    request = Request(
        recipe=file, engine=apptainer.Apptainer("apptainer" if elsewhere else None),
        changes=parse_changes(settings or []), folders=inputs.given(file, data or []),
        initial=initial, out=out, offline=offline, site=site, queued=True,
    )
    if dry_run:
        say(jobs.preview(request, facts).removesuffix("\n"))
        return
    done = jobs.submit(request, name, facts, terminal())
    terminal().note(f"job {done.job} of {name}; trimaran status, trimaran logs -f RUN")
    say(done.directory)


@command(app)
def status(runs: RunDirectories = None, as_json: Json = False) -> None:
    """Tell how submitted runs stand: queued, running, at which step, ended and why.

    Example: trimaran status
    """
    from trimaran.cluster import watch

    rows = watch.look(runs or watch.found(Path("runs")))
    emit([
        {
            "name": str(row.directory), "job": row.job, "state": row.state, "nodes": row.nodes,
            "links": row.links, "step": "" if row.step is None else row.step, "why": row.reason,
        }
        for row in rows
    ], "submitted runs", as_json)


@command(app)
def logs(
    run: RunDirectory,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until the job ends.")
    ] = False,
) -> None:
    """Print what a submitted run says.

    Example: trimaran logs -f runs/resnet-imagenet/cpu-2node-smoke/20261121-120000
    """
    from trimaran.cluster import watch

    watch.follow(run, say, on=follow)


@command(app)
def cancel(run: RunDirectory) -> None:
    """End the job of a submitted run; its checkpoints stay, and `resume` goes on with it.

    Example: trimaran cancel runs/resnet-imagenet/cpu-2node-smoke/20261121-120000
    """
    from trimaran.cluster import watch

    say(f"job {watch.cancel(run)} cancelled")
