"""Commands on the cache: `trimaran cache …`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli import common
from trimaran.cli.common import Json, command, emit, say, terminal
from trimaran.errors import ExitCode, TrimaranError, UsageError

if TYPE_CHECKING:
    from trimaran.inventory.cache_usage import Holding
    from trimaran.site_file import Site

app = typer.Typer(
    help="List the cache, and remove what is no longer used.\n\n"
    "Example: trimaran cache list",
    no_args_is_help=True, rich_markup_mode=None,
)
common.app.add_typer(app, name="cache")


@command(app, "list")
def cache_list(site: Site, as_json: Json = False) -> None:
    """List the contents of the cache with their sizes.

    These are images, environments, packages, base images and data sets. On a compute node, copies
    that the user's jobs keep on its own disk are listed, too.

    Example: trimaran cache list
    """
    from trimaran import paths
    from trimaran.inventory import cache_usage

    with terminal().bar("measuring the cache", None):
        holdings = [*cache_usage.find(), *_copies(site)]
    _show(holdings, f"{paths.cache()}", as_json)


@command(app, "prune")
def cache_prune(
    site: Site,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
) -> None:
    """List and remove items that the current definitions do not use.

    Images of the current definitions, published and pinned images, and all data sets stay. Files
    that a process uses stay, too. A stopped run cannot be resumed without its image: finish runs of
    older definitions first. On a compute node, leftovers of ended jobs on the disk of the node are
    removed.

    Example: trimaran cache prune --yes
    """
    from trimaran.inventory import cache_usage

    with terminal().bar("measuring the cache", None):
        everything = [*cache_usage.find(), *_copies(site)]
    for holding in everything:
        if holding.user:
            terminal().note(f"{holding.name} stays, because {holding.user} uses it")
    holdings = [holding for holding in everything if holding.superfluous]
    if not holdings:
        say("nothing to remove: everything in the cache is in use")
        return
    size = sum(holding.size for holding in holdings)
    _show(holdings, f"to be removed: {size / 1e9:,.1f} GB")
    if not yes and not sys.stdin.isatty():
        raise UsageError("cache prune needs a confirmation, and standard input is not a terminal",
                         code="confirmation-missing", hint="trimaran cache prune --yes")
    if not yes and not typer.confirm("Remove them?"):
        say("nothing removed")
        return
    kept = 0
    for holding in holdings:
        try:
            with terminal().bar(f"removing {holding.name}", None):
                holding.remove()
        except (TrimaranError, OSError) as error:
            terminal().warn(f"{holding.name} could not be removed: {error}")
            kept += holding.size
    say(f"removed {(size - kept) / 1e9:,.1f} GB")
    if kept:
        raise typer.Exit(ExitCode.BUILD)


def _copies(site: Site) -> list[Holding]:
    from trimaran.cluster import node_copies
    from trimaran.inventory import cache_usage

    return [
        cache_usage.copies_of(copies.job, copies.path, copies.size, ended=copies.ended)
        for copies in node_copies.find(site)
    ]


def _show(holdings: list[Holding], title: str, as_json: bool = False) -> None:
    rows = [
        {"name": holding.name, "kind": holding.kind,
         "size": holding.size if as_json else f"{holding.size / 1e6:,.0f} MB",
         "state": holding.state, **({"made": holding.made} if as_json else {})}
        for holding in holdings
    ]
    emit(rows, title, as_json)
