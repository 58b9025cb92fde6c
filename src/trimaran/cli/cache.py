"""Commands on the cache: `trimaran cache …`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli import common
from trimaran.cli.common import Json, command, emit, say, terminal

if TYPE_CHECKING:
    from trimaran.sites import Site
    from trimaran.survey.holdings import Holding

app = typer.Typer(
    help="List what lies in the cache, and remove what is no longer used.\n\n"
    "Example: trimaran cache list",
    no_args_is_help=True, rich_markup_mode=None,
)
common.app.add_typer(app, name="cache")


@command(app, "list")
def cache_list(site: Site, as_json: Json = False) -> None:
    """List images, environments, packages, bases and data in the cache, with their sizes.

    On a node of a cluster also the copies that the user's jobs have on its own disk.

    Example: trimaran cache list
    """
    from trimaran import paths
    from trimaran.survey import holdings

    with terminal().bar("measuring the cache", None):
        found = [*holdings.find(), *_copies(site)]
    _show(found, f"{paths.cache()}", as_json)


@command(app, "prune")
def cache_prune(
    site: Site,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
) -> None:
    """Remove what the definitions no longer use, and show it first.

    Images of the current definitions, published and pinned ones, and all data stay. Let runs
    of older definitions end first: what a process uses stays, but a run that was stopped cannot
    be resumed without its image. On a node of a cluster also what jobs that have ended left on
    its own disk.

    Example: trimaran cache prune --yes
    """
    from trimaran.errors import ExitCode, TrimaranError, UsageError
    from trimaran.survey import holdings

    with terminal().bar("measuring the cache", None):
        everything = [*holdings.find(), *_copies(site)]
    for holding in everything:
        if holding.user:
            terminal().note(f"{holding.name} stays: {holding.user} uses it")
    found = [holding for holding in everything if holding.superfluous]
    if not found:
        say("nothing to remove: all in the cache is in use")
        return
    size = sum(holding.size for holding in found)
    _show(found, f"to be removed: {size / 1e9:,.1f} GB")
    if not yes and not sys.stdin.isatty():
        raise UsageError("nobody to ask", hint="trimaran cache prune --yes")
    if not yes and not typer.confirm("Remove them?"):
        say("nothing removed")
        return
    kept = 0
    for holding in found:
        try:
            with terminal().bar(f"removing {holding.name}", None):
                holding.remove()
        except (TrimaranError, OSError) as error:
            terminal().warn(f"{holding.name} stays: {error}")
            kept += holding.size
    say(f"removed {(size - kept) / 1e9:,.1f} GB")
    if kept:
        raise typer.Exit(ExitCode.BUILD)


def _copies(site: Site) -> list[Holding]:
    """Return what jobs have copied to this machine's own disk."""
    from trimaran.cluster import copies
    from trimaran.survey import holdings

    return [
        holdings.copies_of(one.job, one.path, one.size, ended=one.ended)
        for one in copies.find(site)
    ]


def _show(found: list[Holding], title: str, as_json: bool = False) -> None:
    rows = [
        {"name": holding.name, "kind": holding.kind,
         "size": holding.size if as_json else f"{holding.size / 1e6:,.0f} MB",
         "state": holding.state, **({"made": holding.made} if as_json else {})}
        for holding in found
    ]
    emit(rows, title, as_json)
