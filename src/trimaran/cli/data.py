"""Commands on data sets: `trimaran data …`."""

from __future__ import annotations

import typer

from trimaran.cli import common
from trimaran.cli.common import (
    CaBundle,
    DataName,
    Json,
    Offline,
    SiteFile,
    emit,
    terminal,
    use_site,
)

app = typer.Typer(
    help="Get, verify and list data sets.", no_args_is_help=True, rich_markup_mode=None
)
common.app.add_typer(app, name="data")


@app.command("list")
def data_list(as_json: Json = False) -> None:
    """List data sets and whether they are here."""
    from trimaran import catalog

    emit(catalog.table("data"), "data", as_json)


@app.command("get")
def data_get(
    name: DataName,
    offline: Offline = False,
    site: SiteFile = None,
    ca_bundle: CaBundle = None,
) -> None:
    """Download, verify and pack a data set.

    Example: trimaran data get fashion-mnist
    """
    from trimaran import data

    use_site(site, ca_bundle)
    typer.echo(data.get(data.load(name), offline=offline, reporter=terminal()))


@app.command("verify")
def data_verify(name: DataName) -> None:
    """Check every file of a data set against its hash.

    Example: trimaran data verify fashion-mnist
    """
    from trimaran import data
    from trimaran.errors import RunError

    faults = data.verify(data.load(name), reporter=terminal())
    if faults:
        raise RunError("\n".join(faults), hint=f"trimaran data get {name} repairs it")
    typer.echo(f"{name}: every file is as it should be")
