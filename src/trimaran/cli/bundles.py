"""Commands for machines without a network: `bundle` and `unbundle`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.architectures import Architecture
from trimaran.cli.common import (
    Base,
    Offline,
    RecipeName,
    Settings,
    app,
    arch_option,
    command,
    say,
    terminal,
)
from trimaran.errors import UsageError

if TYPE_CHECKING:
    from trimaran.site_file import Site


@command(app, network=True)
def bundle(
    site: Site,
    recipe: RecipeName,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Tar file to make.")
    ],
    with_data: Annotated[
        bool, typer.Option("--with-data", help="Also pack the data set, not only its checksums.")
    ] = False,
    settings: Settings = None,
    base: Base = None,
    arch: Annotated[
        Architecture | None,
        arch_option("Architecture of the machine that will run the bundle, instead of that of the"
                    " recipe's target."),
    ] = None,
    offline: Offline = False,
) -> None:
    """Pack a recipe and its image for a node without network.

    On that node, `sh run.sh` needs only Apptainer, sh and coreutils. `trimaran report` judges the
    run later.

    Example: trimaran bundle resnet-imagenet/cpu-quickstart --with-data -o quickstart.tar
    """
    from trimaran.bundles import pack
    from trimaran.cluster import submission
    from trimaran.engines.apptainer import Apptainer
    from trimaran.recipes import library
    from trimaran.run import machines
    from trimaran.run.request import Request

    file = library.load(recipe)
    request = Request(
        recipe=file, engine=Apptainer(), base=base, offline=offline, site=site,
        changes=library.parse_changes(settings or []),
        architecture=machines.architecture(file.recipe, arch, here=False),
    )
    submission.check_recipe(request)
    submission.check_image(request)
    packed = pack.pack(request, output, with_data=with_data, reporter=terminal())
    say(f"{packed.path}: {packed.size:,} bytes, sha256 {packed.sha256}")


@command(app)
def unbundle(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to make; by default named after the recipe."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only check every file; unpack nothing.")
    ] = False,
    take_in: Annotated[
        bool,
        typer.Option("--import", help="Also put the image and the data into the cache, for `run`."),
    ] = False,
) -> None:
    """Check every file of a bundle by its SHA-256, and unpack it.

    If one file is damaged, nothing is unpacked. Exits with 4 when the bundle is damaged, with 2
    when the folder already exists.

    Example: trimaran unbundle quickstart.tar --to quickstart
    """
    from trimaran.bundles import unpack

    reporter = terminal()
    if verify:
        if to is not None or take_in:
            raise UsageError("--verify excludes --to and --import, because it unpacks nothing",
                             code="arguments-conflict", hint="leave out --to and --import")
        manifest = unpack.verify(file, reporter)
        say(f"{file}: all files are intact")
        say(f"{manifest.recipe.name}, {manifest.image.name} {manifest.image.digest}")
        return
    folder, manifest = unpack.extract(file, to, reporter)
    if take_in:
        unpack.take_in(folder, manifest, reporter)
    say(folder)
