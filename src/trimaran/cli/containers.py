"""Commands that make images: `lock`, `render`, `fetch`, `build`, `test-image` and `extend`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.common import (
    Arch,
    Base,
    EngineName,
    ImageName,
    Offline,
    app,
    command,
    complete,
    load_image,
    say,
    terminal,
)
from trimaran.engines import selection
from trimaran.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from trimaran.images.definition import Image


@command(app, "lock", network=True)
def lock_image(image: ImageName) -> None:
    """Resolve the packages of an image and write its lock files.

    Example: trimaran lock torch-cpu
    """
    from trimaran.images import definition, resolve

    resolve.write_locks(definition.load(image), terminal())


@command(app, "render")
def render_images(
    image: Annotated[
        str | None,
        typer.Argument(help="One image; all by default.", autocompletion=complete("images")),
    ] = None,
    check: Annotated[bool, typer.Option(help="Only check whether the files are current.")] = False,
) -> None:
    """Write image.def and Dockerfile from image.yaml.

    Example: trimaran render --check
    """
    from trimaran.images import definition, render

    for model in [definition.load(image)] if image else definition.every():
        if check:
            render.check(model)
        else:
            render.write(model)


@command(app, network=True)
def fetch(
    image: ImageName,
    offline: Offline = False,
    arch: Arch = None,
    python: Annotated[
        str | None, typer.Option(help="Download only the wheels for this Python, for the host "
                                      "engine.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also lay out the files that a build without Trimaran "
                                         "needs."),
    ] = None,
) -> None:
    """Download and verify the locked packages of an image.

    Example: trimaran fetch resnet-imagenet-torch-cpu
    """
    from trimaran.engines import commands
    from trimaran.images import definition, render, wheelhouse

    reporter = terminal()
    for model in definition.chain(load_image(image, arch)):
        items = wheelhouse.fetch(model, offline=offline, reporter=reporter, python=python)
        if to is not None:
            render.check(model)
            wheelhouse.lay_out(model, items, to)
            for file in render.FILES:
                commands.lay_out(model, file, to / "context" / model.name)


@command(app, network=True)
def build(
    image: ImageName,
    engine: EngineName = "auto",
    base: Base = None,
    offline: Offline = False,
    arch: Arch = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Build it again in a separate folder, and show what differs (exit code 3 if "
                 "anything does).",
        ),
    ] = False,
) -> None:
    """Build an image from its locked packages, and test it.

    The framework image of an app image is built first. With SOURCE_DATE_EPOCH in the environment,
    two builds from one lock give equal bytes. With --arch, an image for another architecture is
    built under emulation, if an emulator is registered.

    Example: trimaran build resnet-imagenet-torch-cpu --engine apptainer
    Example: trimaran build torch-cpu --arch arm64
    """

    if check:
        _compare(load_image(image, arch), engine, base)
        return
    built = selection.select(engine).build(
        load_image(image, arch), base=base, offline=offline, reporter=terminal()
    )
    say(built.reference)


def _compare(image: Image, engine: str, base: str | None) -> None:
    from trimaran.provenance import rebuild

    chosen, reporter = selection.select(engine), terminal()
    result = rebuild.check(chosen, image, base=base, reporter=reporter)
    for difference in result.differences:
        say(f"  {difference}" + (f" ({difference.reason})" if difference.reason else ""))
    compared = f"{result.packages} packages and {result.files} files compared"
    if not result.equal:
        say(f"{image.name}: the second build differs ({compared})")
        raise typer.Exit(ExitCode.BUILD)
    bytes_ = "byte by byte" if result.identical else "in content"
    say(f"{image.name}: the second build is equal {bytes_} ({compared})")


@command(app, "test-image")
def self_test(image: ImageName, engine: EngineName = "auto", arch: Arch = None) -> None:
    """Run the self-test of a built image, and check its size.

    Example: trimaran test-image torch-cpu
    """
    from trimaran.engines import require
    from trimaran.provenance import size_limit

    chosen, reporter = selection.select(engine), terminal()
    with reporter.bar(f"verifying {image}", None):
        model = load_image(image, arch)
        built = require(chosen, model)
    chosen.test(model, built, reporter)
    size_limit.require(chosen, model, built)
    say(f"{image}: self-test passed")


@command(app, "extend", network=True)
def extend_image(
    image: ImageName,
    packages: Annotated[
        list[str], typer.Argument(metavar="--pip PACKAGE...", show_default=False)
    ],
    pip: Annotated[
        bool, typer.Option("--pip", help="The words that follow are Python packages, for pip.")
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The virtual environment to make.")
    ] = Path("venv"),
    find_links: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", exists=True, file_okay=False,
            help="Also take wheels from this folder (repeatable).",
        ),
    ] = None,
    engine: EngineName = "auto",
    offline: Offline = False,
) -> None:
    """Install packages into an environment for `run --venv`.

    The image itself does not change. A run with the environment is marked as modified and is no
    evidence.

    Example: trimaran extend resnet-imagenet-torch-cpu --pip einops --out venv
    """
    from trimaran.engines import extend

    if not pip:
        raise UsageError("extend needs --pip before the names of the packages",
                         code="argument-missing", hint=f"trimaran extend {image} --pip PACKAGE")
    place = out.absolute()
    environment = extend.extend(
        selection.select(engine), load_image(image), packages, place, find_links=find_links or [],
        offline=offline, reporter=terminal(),
    )
    for package in environment.packages:
        say(f"  {package.name} {package.version} sha256:{package.sha256}")
    say(f"{place}: for trimaran run RECIPE --venv {out}")
