"""Build the exact command of a run from only those values that a test sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from trimaran.engines import BuiltImage, Engine, selection
from trimaran.launch.specification import Command, LaunchSpec, Mount
from trimaran.run import launch_spec, pipeline
from trimaran.run.request import Request


def command(
    engine: Engine, built: BuiltImage, arguments: Sequence[str], mounts: Iterable[Mount] = (),
    env: Mapping[str, str] | None = None, workdir: str = "/", launcher: Sequence[str] = (),
    module: str | None = None,
) -> Command:
    """Return the command that runs an app with these arguments in the image `built`."""
    spec = LaunchSpec(
        image=built.image, node=engine.node(built), mounts=tuple(mounts), environment=env or {},
        workdir=workdir, module=module, launcher=tuple(launcher), arguments=tuple(arguments),
    )
    return selection.row(engine.name).render(spec).command()


def of_run(
    request: Request, built: BuiltImage, folders: Mapping[str, Path], directory: Path
) -> Command:
    """Return the command of a run, as `trimaran run` executes it."""
    return launch_spec.command(pipeline.specification(request, built, folders, directory))
