"""Definitions that all commands share: the application, option types, tables and verdicts."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from trimaran import __version__, architectures, process
from trimaran.architectures import ARCHITECTURES, Architecture
from trimaran.engines.selection import AUTO, ENGINES
from trimaran.errors import Interrupted, TrimaranError

if TYPE_CHECKING:
    from trimaran.images.definition import Image
    from trimaran.recipes.recipe import Recipe
    from trimaran.run.record import RunRecord
    from trimaran.site_file import Site

EPILOG = (
    "Example: trimaran list recipes\n\n"
    "Example: trimaran run resnet-imagenet/cpu-quickstart\n\n"
    "Exit codes: 0 PASS or done, 1 FAIL, 2 usage, 3 build, 4 run, 5 NO REFERENCE, 70 a fault of "
    "Trimaran, 130 interrupted, 141 broken pipe."
)


GROUPS = {
    "Run and judge": ("plan", "run", "resume", "report", "compare", "tune", "evidence"),
    "Cluster": ("submit", "status", "logs", "cancel", "site"),
    "Data": ("data",),
    "Images": ("build", "test-image", "extend", "lock", "fetch", "render"),
    "Supply chain": ("pull", "push", "publish", "sign", "verify", "sbom", "audit", "bundle",
                     "unbundle"),
    "Inspect and clean": ("list", "show", "inspect", "doctor", "cache", "schema"),
}
"""Heading in `trimaran --help` -> the commands below it, in the order in which they are shown."""


class TopLevel(TyperGroup):
    """The commands of `trimaran`, which are listed in groups in the help.

    Ctrl-C, SIGTERM and a closed terminal end a command after it has cleaned up.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each group of commands."""
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                summaries = [(name, self.commands[name].get_short_help_str(formatter.width))
                             for name in names]
                formatter.write_dl(summaries, col_max=12)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; if a signal stops it, raise an error after its cleanup."""
        try:
            with process.handling(process.interrupt):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted(
                "stopped by the user", code="stopped",
                hint="finished work is kept, and no file is left half-written; the same command"
                " continues from there",
            ) from None
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # of pydantic, in Typer
            raise


app = typer.Typer(
    cls=TopLevel,
    help="From a recipe to a verdict: run a reference training in a container and judge it.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich for the help alone takes 0.2 s
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        say(f"trimaran {__version__}{_revision()}")
        raise typer.Exit


def _revision() -> str:
    """Return the revision of the checkout for the version message, or "" outside of a checkout."""
    from trimaran import paths
    from trimaran.run.run_directory import git_state

    state = git_state(paths.repository())
    if state.revision is None:
        return ""
    return f" (git {state.revision[:12]}{', with uncommitted changes' if state.dirty else ''})"


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Handle the options that precede every command."""


def load_image(name: str, architecture: Architecture | None = None) -> Image:
    """Return the definition of the image called `name`, for one architecture.

    Commands that concern the images for all architectures, such as `lock`, call `definition.load`.

    Args:
        name: name of the image.
        architecture: value of `--arch`; None: the architecture of this machine.

    Raises:
        UsageError: no image has this name, its definition has faults, or no image is made for the
            architecture.
    """
    from trimaran.images import definition

    return definition.on(definition.load(name), architecture or architectures.native())


def complete(kind: str) -> Callable[[str], list[str]]:
    """Return the function that completes names of definitions of `kind` in the shell."""

    def names(incomplete: str) -> list[str]:
        return _completions(kind, incomplete)

    return names


def complete_by_kind(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a definition; the previous argument is its kind (`show KIND NAME`)."""
    kind = context.params["kind"]
    return _completions(kind, incomplete) if kind else []  # the kind is invalid


def complete_engine(incomplete: str) -> list[str]:
    """Complete the name of an engine."""
    return [name for name in (AUTO, *ENGINES) if name.startswith(incomplete)]


def _completions(kind: str, incomplete: str) -> list[str]:
    from trimaran.inventory import catalog

    with suppress(TrimaranError):
        use_site(None)
        return [name for name in catalog.names(kind) if name.startswith(incomplete)]
    return []


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Offline = Annotated[bool, typer.Option("--offline", help="Never touch the network.")]
ImageName = Annotated[
    str, typer.Argument(metavar="IMAGE", autocompletion=complete("images"), show_default=False)
]
RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", autocompletion=complete("recipes"), show_default=False)
]
RecipeNames = Annotated[
    list[str],
    typer.Argument(metavar="RECIPE", autocompletion=complete("recipes"), show_default=False)
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Replace an argument of the recipe "
                                                    "(repeatable)."),
]
*_MOST, _LAST = (AUTO, *ENGINES)
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", envvar="ENGINE", metavar="ENGINE", autocompletion=complete_engine,
        help=f"{', '.join(_MOST)} or {_LAST}; auto is Apptainer where it is on PATH, else host.",
    ),
]
def arch_option(text: str) -> Any:
    """Return the declaration of the option `--arch` with the help `text`."""
    return typer.Option(
        "--arch", parser=_architecture, metavar="|".join(ARCHITECTURES), help=text,
        autocompletion=lambda: list(ARCHITECTURES),
    )


def _architecture(text: str) -> Architecture:
    """Return the value of `--arch`."""
    try:
        return architectures.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Arch = Annotated[
    Architecture | None, arch_option("Architecture of the image, instead of this machine's."),
]
Base = Annotated[
    str | None,
    typer.Option(help="Base image instead of the pinned one: a reference, an archive or a SIF."),
]

SiteFile = Annotated[
    Path | None,
    typer.Option(
        "--site", envvar="TRIMARAN_SITE", metavar="FILE",
        help="Site file instead of ~/.config/trimaran/site.yaml.",
    ),
]
Recipes = Annotated[
    list[Path] | None,
    typer.Option(
        "--recipes", envvar="TRIMARAN_RECIPES", metavar="DIR",
        help="Also find your own recipes, targets, apps and images in DIR (repeatable).",
    ),
]
CaBundle = Annotated[
    Path | None,
    typer.Option(
        "--ca-bundle", metavar="FILE",
        help="Trust the certificates in this PEM file instead of the system's.",
    ),
]


def use_site(
    file: Path | None, ca_bundle: Path | None = None, recipes: list[Path] | None = None
) -> Site:
    """Load the site file, apply its settings to this process, and return it.

    Args:
        file: the site file; None: the default path.
        ca_bundle: certificates to trust, instead of those in the site file.
        recipes: folders of the user's own recipes, instead of those in the site file.

    Raises:
        UsageError: the site file is invalid, or a folder does not exist.
    """
    from trimaran import paths, site_file

    site = site_file.load(file)
    site_file.apply(site, ca_bundle, os.environ)
    if recipes:
        paths.use_own(recipes, os.environ)
    elif site.recipes and not os.environ.get(paths.OWN):
        paths.use_own(site.recipes, os.environ)
    return site


def command(
    place: typer.Typer, name: str | None = None, *, network: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that turns a function into a command which first loads the site file.

    The command gets the options `--site` and `--recipes`. If the function has a parameter `site`,
    it is called with the `Site`.

    Args:
        place: application or group of the command.
        name: name of the command; None: the name of the function.
        network: whether to add the option `--ca-bundle`.
    """
    options = {"site": SiteFile, "recipes": Recipes} | ({"ca_bundle": CaBundle} if network else {})
    added = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for option, kind in options.items()
    ]

    def add(function: Callable[..., None]) -> Callable[..., None]:
        # Its type is imported only when a command runs, because importing it slows down the help.
        wants_site = function.__annotations__.pop("site", None) is not None
        own = inspect.signature(function, eval_str=True).parameters

        @functools.wraps(function)
        def begin(
            *, site: Path | None, recipes: list[Path] | None, ca_bundle: Path | None = None,
            **given: Any,
        ) -> None:
            loaded = use_site(site, ca_bundle, recipes)
            function(**given, **({"site": loaded} if wants_site else {}))

        parameters = [own[key] for key in own if key != "site"] + added
        begin.__annotations__ = {one.name: one.annotation for one in parameters}
        vars(begin)["__signature__"] = inspect.Signature(parameters)
        return place.command(name)(begin)

    return add


def say(text: object, *, err: bool = False) -> None:
    """Print a line to standard output, or to standard error, with control characters escaped."""
    from trimaran.terminal_safety import visible

    typer.echo(visible(str(text)), err=err)


def terminal() -> Any:
    """Return the reporter that prints on the terminal."""
    from trimaran.cli.terminal import Terminal

    return Terminal()


def show_assumptions(recipe: Recipe) -> None:
    """Print each assumed value of `recipe` with the reason for it, on standard error."""
    for value, reason in recipe.assumptions():
        terminal().note(f"assumed: {value} ({reason})")


def emit(rows: Iterable[dict[str, Any]], title: str, as_json: bool) -> None:
    """Print rows, which all have the same keys, as a table with a title, or as JSON."""
    listed = list(rows)
    if as_json:
        say(json.dumps(listed, indent=2))
        return
    from trimaran.cli.terminal import show_table

    columns = list(listed[0]) if listed else ["nothing here"]
    show_table(title, columns, [[str(row[column]) for column in columns] for row in listed])


def _help_without_reference(directory: Path, record: RunRecord) -> None:
    """Print help for a run without a reference.

    The help names the most similar target with a reference, the predicted throughput, and, if the
    run can be published, the command that writes the evidence of the run.
    """
    from trimaran.plan import nearest

    name = record.recipe.name
    try:
        lines = list(nearest.sentences(name, record.hosts))
    except TrimaranError:
        return  # such as a recipe that this checkout lacks; the verdict is complete without it
    for line in lines:
        say(line)
    if lines and record.image.publishable and not record.modified:
        say(f"To hand in this run as evidence for other users: trimaran evidence add {directory}")


def conclude(
    directory: Path, record: RunRecord, verdict: Any, as_json: bool = False, *, written: bool = True
) -> NoReturn:
    """Print the verdict of a run, and exit with the exit code of the verdict.

    `written` states whether the files of the report were written.
    """
    from trimaran.cli.terminal import show_verdict
    from trimaran.report import report
    from trimaran.verdict.metrics import EXIT_CODES as VERDICT_CODES

    if as_json:
        say(report.Evidence(run=record, verdict=verdict).model_dump_json(indent=2))
    else:
        show_verdict(verdict, record.recipe.name, report.notes(record))
        if verdict.outcome == "NO REFERENCE":
            _help_without_reference(directory, record)
        if written:
            say(f"report  {directory / 'report.html'}")
    raise typer.Exit(VERDICT_CODES[verdict.outcome])
