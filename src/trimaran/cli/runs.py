"""Commands that run, judge and compare: `run`, `resume`, `report` and `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from trimaran.cli.common import (
    Base,
    EngineName,
    Json,
    Offline,
    RecipeName,
    Settings,
    app,
    command,
    conclude,
    emit,
    load_image,
    say,
    show_assumptions,
    terminal,
)
from trimaran.engines import selection
from trimaran.errors import UsageError

if TYPE_CHECKING:
    from trimaran.site_file import Site


DataFolders = Annotated[
    list[str] | None,
    typer.Option(
        "--data", metavar="[NAME=]PATH",
        help="Packed data to use: a folder, or a SquashFS image of one (repeatable).",
    ),
]
Initial = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Checkpoint that the run begins with, for recipes of a second stage."
    ),
]
RunFolder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Run directory to make.")
]
Overlay = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Overlay on the image; the run cannot be published as "
                                      "evidence."),
]
Venv = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Virtual environment whose packages come before the image's; the run cannot be "
             "published as evidence.",
    ),
]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the exact command and run nothing.")]


@command(app, network=True)
def run(
    site: Site,
    recipe: RecipeName,
    engine: EngineName = "auto",
    data: DataFolders = None,
    initial: Initial = None,
    out: RunFolder = None,
    settings: Settings = None,
    base: Base = None,
    offline: Offline = False,
    overlay: Overlay = None,
    venv: Venv = None,
    dry_run: DryRun = False,
) -> None:
    """Prepare data and image, run a recipe, and judge the run.

    Missing data and images are prepared first. The run directory gets run.json, metrics.jsonl, the
    log, the checkpoints and the report.

    Example: trimaran run resnet-imagenet/cpu-quickstart
    """
    from trimaran.recipes import library
    from trimaran.run import additions, inputs, pipeline
    from trimaran.run.request import Request

    chosen, file = selection.select(engine), library.load(recipe)
    request = Request(
        recipe=file, engine=chosen, changes=library.parse_changes(settings or []),
        folders=inputs.given(file, data or []), initial=initial, out=out, base=base,
        offline=offline, site=site,
        extension=additions.extension(
            load_image(file.recipe.image.name), chosen, overlay=overlay, venv=venv
        ),
    )
    if dry_run:
        with terminal().bar("looking for data and image", None):
            planned = pipeline.plan(request)
        show_assumptions(file.recipe)
        say(pipeline.script(planned))
        return
    _judge(pipeline.execute(request, terminal()))


@command(app, "resume", network=True)
def resume_run(site: Site, run_dir: RunDirectory) -> None:
    """Continue a stopped run from its newest checkpoint, and judge it.

    The recipe, the data and the image must be those of the first part of the run. run.json and the
    report list each continuation. A submitted run is queued again.

    Example: trimaran resume runs/resnet-imagenet/cpu-quickstart/20261121-120000
    """
    from trimaran.cluster import jobs
    from trimaran.run import resume, run_directory

    refuse_folder(run_dir, "checkpoints of its own")
    if run_directory.load(run_dir).job is not None:
        done = jobs.again(run_dir, terminal())
        terminal().note(f"job {done.job}")
        say(done.directory)
        return
    resume.resume(run_dir, site, terminal())
    _judge(run_dir)


def refuse_folder(path: Path, what: str) -> None:
    """Check that `path` is not a folder of several runs.

    Args:
        path: the path that the user gave.
        what: text for the message: what each single run of a folder has, such as "a separate log".

    Raises:
        UsageError: `path` is a folder of several runs; the hint names these runs.
    """
    from trimaran.cluster import several
    from trimaran.report import scaling

    if runs := [*scaling.folders(path).values(), *several.folders(path)]:
        raise UsageError(f"{path} is a folder of runs: each of them has {what}",
                         code="argument-invalid",
                         hint="name one of its runs: " + ", ".join(map(str, runs)))


def _judge(directory: Path) -> NoReturn:
    """Judge a run that has just completed (the last step of `run` and `resume`), and exit."""
    from trimaran.report import report
    from trimaran.run.pipeline import STEPS

    with terminal().step(STEPS, STEPS, "verdict and report"):
        record, verdict = report.write(directory)
    conclude(directory, record, verdict)


@command(app, "report")
def report_run(
    run_dir: RunDirectory,
    as_json: Json = False,
    evidence: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the evidence to FILE; `evidence add` names "
                                          "the file itself."),
    ] = None,
) -> None:
    """Judge a finished run again and rewrite its report.

    For a scaling series, all its runs are judged.

    Example: trimaran report runs/resnet-imagenet/cpu-quickstart/20261121-120000
    """
    from trimaran.evidence import writing
    from trimaran.report import report, scaling

    if (run_dir / scaling.FILE).is_file():
        _conclude_series(run_dir, evidence, as_json)
    refuse_folder(run_dir, "a verdict of its own")
    record, verdict, written = report.write_if_allowed(run_dir, terminal())
    if evidence is not None:
        writing.write(run_dir, record, verdict, evidence)
    conclude(run_dir, record, verdict, as_json, written=written)


def _conclude_series(folder: Path, evidence: Path | None, as_json: bool) -> NoReturn:
    from trimaran.report import scaling
    from trimaran.verdict.metrics import EXIT_CODES as VERDICT_CODES
    from trimaran.verdict.metrics import worst

    if evidence is not None:
        raise UsageError(f"--evidence: {folder} is a scaling series, and evidence is written for"
                         " one run", code="argument-invalid",
                         hint="name one of its run directories")
    points, missing = scaling.write(folder)
    emit([
        {
            "nodes": point.nodes, "ranks": point.ranks,
            point.metric: f"{point.rate:,.1f} {point.unit}", "speed-up": f"{point.speedup:.2f}",
            "efficiency": f"{point.efficiency:.0%}", "verdict": point.outcome,
        }
        for point in points
    ], f"scaling of {scaling.load(folder).recipe}", as_json)
    if not as_json:
        say(f"report  {folder / 'scaling.md'}")
    if missing:
        raise UsageError(f"{len(missing)} of {len(missing) + len(points)} runs are missing: "
                         + "; ".join(str(run) for run in missing), code="series-incomplete",
                         hint=f"`trimaran status {folder}` shows their states")
    raise typer.Exit(VERDICT_CODES[worst([point.outcome for point in points])])


@command(app, "compare")
def compare_runs(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run directories, series, files of evidence."),
    ],
    pool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help="Treat runs as repeats although they differ in this: image, machine or "
                 "recipe-file (repeatable).",
        ),
    ] = None,
    as_json: Json = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page with curves, as one file."),
    ] = None,
) -> None:
    """Compare runs, and judge whether differences are more than noise.

    Runs of one recipe, machine and image form a group of repeats. The group of the first run is the
    baseline of the others. If the app card names variants, such as strategies, groups are also
    compared in time per epoch, accuracy, bytes sent and lines of code. Exits with 0 even if runs
    differ, with 2 when runs cannot be compared or are not finished, and with 4 when the files of a
    run disagree.

    Example: trimaran compare runs/a runs/b site/results/resnet-imagenet/cpu-quickstart/*.json
    """
    from trimaran.cli.terminal import show_table
    from trimaran.compare import comparison, explain

    result, groups = comparison.compare(runs, pool or [])
    if html is not None:
        explain.write(html, result, groups)
    if as_json:
        say(result.model_dump_json(indent=2))
        return
    for table in explain.tables(result):
        show_table(table.title, table.columns, table.rows)
    for line in [*explain.sentences(result), *result.notes]:
        say(line)
