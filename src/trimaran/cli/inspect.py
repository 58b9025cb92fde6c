"""Commands that examine built images: `inspect`, `sbom` and `audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.common import (
    EngineName,
    ImageName,
    Json,
    app,
    command,
    emit,
    load_image,
    say,
    terminal,
)
from trimaran.errors import ExitCode


@command(app)
def inspect(
    image: ImageName,
    engine: EngineName = "auto",
    as_json: Json = False,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also run the self-test, and write the results for site/results/images/.",
        ),
    ] = None,
) -> None:
    """Show the size, contents, licences and start time of an image.

    Example: trimaran inspect torch-cpu
    """
    from trimaran.engines.selection import select
    from trimaran.provenance import inspection, licences

    with terminal().bar(f"examining {image}", None):
        report = inspection.examine(
            select(engine), load_image(image), test=evidence is not None
        )
    if evidence is not None:
        inspection.write_evidence(report, evidence)
    if as_json:
        say(report.model_dump_json(indent=2, by_alias=True))
        return
    emit([
        {"": "digest", image: report.digest},
        {"": "size",
         image: f"{report.size / 1e6:,.0f} MB, unpacked {report.unpacked / 1e6:,.0f} MB"},
        {"": "packages", image: ", ".join(f"{n} {kind}" for kind, n in report.packages.items())},
        {"": "start", image: f"{report.start:.2f} s to the end of an empty Python, warm"},
    ], f"{image} ({report.engine})", as_json=False)
    emit(
        [{"item": item.path, "MB": f"{item.size / 1e6:,.1f}"} for item in report.largest],
        "largest items", as_json=False,
    )
    emit([
        {"licence": kind, **{of: those.get(kind, 0) for of, those in report.licences.items()}}
        for kind in licences.KINDS if any(kind in those for those in report.licences.values())
    ], "packages that name a licence of this kind", as_json=False)


@command(app, "sbom")
def list_materials(
    image: ImageName,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="File to write; not overwritten.")
    ],
    engine: EngineName = "auto",
) -> None:
    """Write the software bill of materials of an image (CycloneDX).

    It lists every Debian and Python package with its version, licences and the hash of its file.

    Example: trimaran sbom torch-cpu -o torch-cpu.cdx.json
    """
    from trimaran.engines import image_contents, require
    from trimaran.engines.selection import select
    from trimaran.errors import UsageError
    from trimaran.files import write_atomic
    from trimaran.provenance import sbom

    if out.exists():
        raise UsageError(f"{out} exists", code="file-exists",
                         hint="remove it first, or write to another file")
    if not out.parent.is_dir():
        raise UsageError(f"{out.parent} is not a folder", code="file-missing",
                         hint="make the folder first")
    model, chosen = load_image(image), select(engine)
    with terminal().bar(f"examining {image}", None):
        contents = image_contents.of(chosen, require(chosen, model))
    write_atomic(out, sbom.text(contents, sbom.locked_hashes(model)))
    say(f"{out}: {len(contents.debian)} Debian and {len(contents.python)} Python packages")


@command(app, "audit", network=True)
def audit_image(image: ImageName, as_json: Json = False) -> None:
    """Look up known vulnerabilities of an image's Python packages.

    pip-audit asks PyPI; Debian packages are not looked up. Exits with 1 when a vulnerability is
    known, and with 4 when the service cannot be reached.

    Example: trimaran audit torch-cpu
    """
    from trimaran.provenance import audit

    reporter = terminal()
    with reporter.bar("asking for known vulnerabilities", None):
        audited = audit.audit(load_image(image))
    rows = [
        {"package": v.package, "version": v.version, "advisory": ", ".join(v.names),
         "fixed in": ", ".join(v.fixed) or "nothing yet"}
        for v in audited.vulnerabilities
    ]
    if rows or as_json:
        emit(rows, f"{image}: known vulnerabilities", as_json)
    for name, reason in audited.skipped.items():
        reporter.warn(f"{name} was not checked: {reason}")
    reporter.note(
        f"{image}: {len(rows)} known vulnerabilities in {audited.checked} Python packages"
        f" ({len(audited.skipped)} not checked; Debian packages are not part of this)"
    )
    if rows:
        raise typer.Exit(ExitCode.FAIL)
