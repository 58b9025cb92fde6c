"""The command line: arguments in, one call of the library, a table or JSON out, an exit code.

Imports are inside the commands on purpose: `trimaran --help` answers at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from trimaran.errors import ExitCode, TrimaranError

EXIT_CODES = (
    "Exit codes: 0 PASS or done, 1 FAIL, 2 usage, 3 build, 4 run, 5 NO REFERENCE, 130 interrupted."
)

app = typer.Typer(
    help="From a recipe to a verdict: run a reference training in a container and judge it.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich for the help alone takes 0.2 s
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(
    help="Get, verify and list data sets.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(data_app, name="data")


class Kind(str, Enum):
    """What can be listed and shown."""

    APPS = "apps"
    IMAGES = "images"
    TARGETS = "targets"
    RECIPES = "recipes"
    DATA = "data"


def _complete(kind: str) -> Callable[[str], list[str]]:
    """Return a shell completion of the names of `kind`."""

    def names(incomplete: str) -> list[str]:
        from trimaran import catalog

        return [name for name in catalog.names(kind) if name.startswith(incomplete)]

    return names


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Offline = Annotated[bool, typer.Option("--offline", help="Never touch the network.")]
ImageName = Annotated[
    str, typer.Argument(metavar="IMAGE", autocompletion=_complete("images"), show_default=False)
]
DataName = Annotated[
    str, typer.Argument(metavar="DATA", autocompletion=_complete("data"), show_default=False)
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", envvar="ENGINE", metavar="ENGINE",
        help="auto, apptainer, podman or host; auto is Apptainer where it is on PATH, else host.",
    ),
]
Base = Annotated[
    str | None,
    typer.Option(help="Base image instead of the pinned one: a reference, an archive or a SIF."),
]


@app.command("list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.", show_default=False)],
    as_json: Json = False,
) -> None:
    """List apps, images, targets, recipes or data sets.

    Example: trimaran list recipes
    """
    from trimaran import catalog

    rows = catalog.table(kind.value)
    _emit(rows, kind.value, as_json)


@app.command()
def show(
    kind: Annotated[Kind, typer.Argument(help="What to show.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Its name.", show_default=False)],
) -> None:
    """Show one app, image, target, recipe or data set as JSON, checked and complete.

    Example: trimaran show recipes resnet-imagenet/cpu-quickstart
    """
    from trimaran import catalog

    typer.echo(json.dumps(catalog.details(kind.value, name), indent=2))


@app.command()
def lock(image: ImageName) -> None:
    """Resolve an image's packages anew and write its lock files.

    Example: trimaran lock torch-cpu
    """
    from trimaran import images
    from trimaran import lock as locks

    locks.lock(images.load(image), _terminal())


@app.command()
def render(
    image: Annotated[str | None, typer.Argument(help="One image; all by default.")] = None,
    check: Annotated[bool, typer.Option(help="Only say whether the files are current.")] = False,
) -> None:
    """Write image.def and Dockerfile from image.yaml.

    Example: trimaran render --check
    """
    from trimaran import images
    from trimaran import render as rendering

    for name in [image] if image else images.names():
        model = images.load(name)
        if check:
            rendering.check(model)
        else:
            rendering.write(model)


@app.command()
def schema() -> None:
    """Write recipes/schema.json, the JSON schema of a recipe, for editors."""
    from trimaran import catalog

    catalog.write_schema()


@app.command()
def fetch(
    image: ImageName,
    offline: Offline = False,
    python: Annotated[
        str | None, typer.Option(help="Only the wheels, for this Python, as the host engine uses.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Lay the files out in this folder, too.")
    ] = None,
) -> None:
    """Download the locked packages of an image into the wheelhouse, verified.

    Example: trimaran fetch resnet-imagenet-torch-cpu
    """
    from trimaran import images, wheelhouse

    terminal = _terminal()
    for model in images.chain(images.load(image)):
        items = wheelhouse.fetch(model, offline=offline, reporter=terminal, python=python)
        if to is not None:
            wheelhouse.lay_out(model, items, to)


@app.command()
def build(
    image: ImageName, engine: EngineName = "auto", base: Base = None, offline: Offline = False
) -> None:
    """Build an image, and the framework image below it, from its wheelhouse; then test it.

    Example: trimaran build resnet-imagenet-torch-cpu --engine apptainer
    """
    from trimaran import images
    from trimaran.engines.selection import select

    built = select(engine).build(
        images.load(image), base=base, offline=offline, reporter=_terminal()
    )
    typer.echo(built.reference)


@app.command("test-image")
def self_test(image: ImageName, engine: EngineName = "auto") -> None:
    """Run the self-test of a built image.

    Example: trimaran test-image torch-cpu
    """
    from trimaran import images
    from trimaran.engines.selection import select
    from trimaran.errors import BuildError

    chosen = select(engine)
    built = chosen.find(images.load(image))
    if built is None:
        raise BuildError(f"{image} is not built", hint=f"trimaran build {image}")
    chosen.test(built, _terminal())
    typer.echo(f"{image}: self-test passed")


@data_app.command("list")
def data_list(as_json: Json = False) -> None:
    """List data sets and whether they are here."""
    from trimaran import catalog

    _emit(catalog.table("data"), "data", as_json)


@data_app.command("get")
def data_get(name: DataName, offline: Offline = False) -> None:
    """Download, verify and pack a data set.

    Example: trimaran data get fashion-mnist
    """
    from trimaran import data

    typer.echo(data.get(data.load(name), offline=offline, reporter=_terminal()))


@data_app.command("verify")
def data_verify(name: DataName) -> None:
    """Check every file of a data set against its hash.

    Example: trimaran data verify fashion-mnist
    """
    from trimaran import data
    from trimaran.errors import RunError

    faults = data.verify(data.load(name), reporter=_terminal())
    if faults:
        raise RunError("\n".join(faults), hint=f"trimaran data get {name} repairs it")
    typer.echo(f"{name}: every file is as it should be")


@app.command()
def run(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", autocompletion=_complete("recipes"), show_default=False),
    ],
    engine: EngineName = "auto",
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Packed data set to use, read-only.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Run directory to make.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change an argument (again for more)."),
    ] = None,
    base: Base = None,
    offline: Offline = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the exact command and run nothing.")
    ] = False,
) -> None:
    """Run a recipe and judge it: data, image, training, verdict.

    Missing data and images are made first. The run directory gets run.json,
    metrics.jsonl, the log, checkpoints and the report.

    Example: trimaran run resnet-imagenet/cpu-quickstart
    """
    from trimaran import pipeline, recipes
    from trimaran.command import parse_changes
    from trimaran.engines.selection import select

    request = pipeline.Request(
        recipe=recipes.load(recipe), engine=select(engine), changes=parse_changes(settings or []),
        folder=data, out=out, base=base, offline=offline,
    )
    if dry_run:
        typer.echo(pipeline.script(pipeline.plan(request)))
        return
    directory, record, verdict = pipeline.execute(request, _terminal())
    _conclude(directory, record, verdict)


@app.command()
def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    as_json: Json = False,
    evidence: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the evidence, to publish in site/results/."),
    ] = None,
) -> None:
    """Judge a finished run again and rewrite its report.

    Example: trimaran report runs/resnet-imagenet/cpu-quickstart/20261121-120000
    """
    from trimaran import report as reports

    record, verdict = reports.write(run_dir)
    if evidence is not None:
        reports.write_evidence(run_dir, evidence)
    _conclude(run_dir, record, verdict, as_json)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Look at this machine: engine, namespaces, disk, cores, memory, instruction sets.

    Exits with 4 when something needed is broken.
    """
    from trimaran import doctor as doctors

    checks = doctors.examine()
    _emit([check.model_dump() for check in checks], "doctor", as_json)
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(ExitCode.RUN)


def _terminal() -> Any:
    from trimaran.terminal import Terminal

    return Terminal()


def _emit(rows: Iterable[dict[str, Any]], title: str, as_json: bool) -> None:
    found = list(rows)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    from trimaran.terminal import show_table

    columns = list(found[0]) if found else ["nothing here"]
    show_table(title, columns, [[str(row[column]) for column in columns] for row in found])


def _conclude(directory: Path, record: Any, verdict: Any, as_json: bool = False) -> None:
    from trimaran import report as reports
    from trimaran.terminal import show_verdict
    from trimaran.verdict import EXIT_CODES as VERDICT_CODES

    if as_json:
        typer.echo((directory / "verdict.json").read_text(encoding="utf-8"))
    else:
        show_verdict(verdict, record.recipe.name, reports.notes(record))
        typer.echo(f"report  {directory / 'report.html'}")
    raise typer.Exit(VERDICT_CODES[verdict.outcome])


def main() -> None:
    """Run the command line and exit with a documented code; no traceback for a user's mistake."""
    try:
        app()
    except TrimaranError as error:
        from trimaran.terminal import show_error

        show_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
