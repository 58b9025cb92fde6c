"""Commands that inspect definitions and images: `list`, `show`, `schema` and `inspect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trimaran.cli.common import (
    Arch,
    EngineName,
    ImageName,
    Json,
    app,
    command,
    complete_by_kind,
    emit,
    load_image,
    say,
    terminal,
)
from trimaran.engines import selection

if TYPE_CHECKING:
    pass

Kind = Literal["apps", "images", "targets", "recipes", "data"]
"""Kinds of definitions that can be listed and shown."""


@command(app, "list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.", show_default=False)],
    as_json: Json = False,
) -> None:
    """List apps, images, targets, recipes or data sets.

    Example: trimaran list recipes
    """
    from trimaran.inventory import catalog

    rows = catalog.complete(kind) if as_json else catalog.table(kind)
    emit(rows, kind, as_json)


@command(app)
def show(
    kind: Annotated[Kind, typer.Argument(help="What to show.", show_default=False)],
    name: Annotated[
        str,
        typer.Argument(help="Its name.", autocompletion=complete_by_kind, show_default=False),
    ],
) -> None:
    """Show one app, image, target, recipe or data set as JSON.

    The file is checked, and values that it leaves out are filled in.

    Example: trimaran show recipes resnet-imagenet/cpu-quickstart
    """
    from trimaran.inventory import catalog

    say(json.dumps(catalog.details(kind, name), indent=2))


@app.command()
def schema() -> None:
    """Write the JSON schemas of recipes and apps, for editors.

    Example: trimaran schema
    """
    from trimaran.inventory import catalog

    catalog.write_schemas()


@command(app)
def inspect(
    image: ImageName,
    engine: EngineName = "auto",
    arch: Arch = None,
    as_json: Json = False,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also run the self-test, time the import of the framework, and write the results"
            " for site/results/images/.",
        ),
    ] = None,
) -> None:
    """Show the size, contents, licences and start time of an image.

    Example: trimaran inspect torch-cpu
    """
    from trimaran.provenance import inspection, licences

    model = load_image(image, arch)
    with terminal().bar(f"examining {image}", None):
        report = inspection.examine(selection.select(engine), model, test=evidence is not None)
    if evidence is not None:
        inspection.write_evidence(report, evidence)
    if as_json:
        say(report.model_dump_json(indent=2, by_alias=True))
        return
    emit([
        {"": "digest", image: report.digest},
        {"": "size",
         image: f"{report.size / 1e6:,.0f} MB, unpacked {report.unpacked / 1e6:,.0f} MB"
         + (f"; limit of the SIF: {model.size_limit:,} MB" if model.size_limit else "")},
        {"": "packages", image: ", ".join(f"{n} {kind}" for kind, n in report.packages.items())},
        {"": "start", image: "not measured: this machine emulates the image"
         if report.start is None else
         f"{report.start:.2f} s to the end of an empty Python, warm"
         + (f"; {report.start_cold:.2f} s, cold" if report.start_cold is not None else "")},
        *([{"": f"import {seen.module}", image: f"{seen.warm:.2f} s, warm"
            + (f"; {seen.cold:.2f} s, cold" if seen.cold is not None else "")}]
          if (seen := report.imported) else []),
        *([{"": "Horovod", image: "not in this image: DDP or TensorFlow's own strategies only"}]
          if report.horovod is False else []),
    ], f"{image} ({report.architecture}, {report.engine})", as_json=False)
    emit(
        [{"item": item.path, "MB": f"{item.size / 1e6:,.1f}"} for item in report.largest],
        "largest items", as_json=False,
    )
    emit([
        {"licence": kind, **{of: those.get(kind, 0) for of, those in report.licences.items()}}
        for kind in licences.KINDS if any(kind in those for those in report.licences.values())
    ], "packages that name a licence of this kind", as_json=False)
