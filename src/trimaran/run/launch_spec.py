"""The launch specification of a run: from a recipe, its data, its image and the machine.

It is the only place where a run's command is put together. Whoever judges a finished run builds
the specification again, from what `run.json` records, and compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trimaran.engines import selection
from trimaran.errors import UsageError
from trimaran.images.reference import ImageReference
from trimaran.launch.specification import Command, LaunchSpec, Mount, Node
from trimaran.launch.words import Text, join
from trimaran.recipes.command import app_arguments, launcher
from trimaran.recipes.options import Argument
from trimaran.recipes.recipe import Recipe
from trimaran.run import inputs
from trimaran.run.extensions import Extension
from trimaran.run.site_settings import SiteSettings

OUT_INSIDE = "/out"
"""Where a container sees the run directory."""


@dataclass(frozen=True)
class Places:
    """What a run reads and writes on the host.

    Attributes:
        data: the packed data sets, by name, in the order of the recipe.
        out: the run directory, the only one that is written.
        initial: the checkpoint that the run begins with, if it begins with one.
    """

    data: Mapping[str, Mount]
    out: Text
    initial: Sequence[Mount] = ()


def specification(
    recipe: Recipe, changes: Mapping[str, Argument], image: ImageReference, node: Node,
    places: Places, *, module: str | None, extension: Extension, site: SiteSettings,
) -> LaunchSpec:
    """Return the launch specification of a run.

    Args:
        recipe: what is run.
        changes: arguments of the recipe that are replaced.
        image: the image that is run.
        node: what the machine adds.
        places: what is read and written.
        module: the app's Python module.
        extension: what the user adds to the image.
        site: what the site file adds.
    """
    out = Mount(places.out, OUT_INSIDE, writable=True)
    container = selection.is_container(image.engine)
    # The host's own folders are where they are, whatever a site file names for containers.
    binds = [Mount(source, target) for target, source in site.binds.items()] if container else []

    def seen(mount: Mount) -> Text:
        return mount.target if container else mount.source

    data = inputs.argument(places.data, container=container)
    words = app_arguments(recipe, changes, data=data, out=_path(seen(out)))
    words += [_path(join("--initial=", seen(mount))) for mount in places.initial]
    return LaunchSpec(
        image=image, node=node,
        mounts=(*places.data.values(), out, *places.initial, *binds, *extension.mounts()),
        environment=extension.environment(recipe.env), workdir=_path(seen(out)),
        module=module, launcher=tuple(launcher(recipe)), arguments=tuple(words),
        overlay=None if extension.overlay is None else str(extension.overlay),
        site_options=tuple(site.flags), site_environment=site.env,
    )


def _path(text: Text) -> str:
    """Return a path that the app is given; only in a container it is known to every script."""
    if not isinstance(text, str):
        raise UsageError("only a run in a container can be put into a script")
    return text


def command(spec: LaunchSpec) -> Command:
    """Return the exact command of a specification, on the machine that it names.

    Raises:
        UsageError: the image has no app to launch.
        ValueError: a part is known only to a script.
    """
    return selection.row(spec.image.engine).render(spec).command()


def differences(spec: LaunchSpec, wanted: LaunchSpec) -> list[str]:
    """Return what of a recorded specification is not as in the `wanted` one, a line for each.

    How a batch system started the tasks is not compared: only the site file tells it.
    """
    same = replace(spec, task_starter=wanted.task_starter, shared_node=wanted.shared_node)
    return [
        f"{name} is {_first(getattr(same, name), getattr(wanted, name))}"
        for name in LaunchSpec.__dataclass_fields__
        if getattr(same, name) != getattr(wanted, name)
    ]


def _first(found: object, wanted: object) -> str:
    """Return the first element in which two values differ."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        found, wanted = list(found.items()), list(wanted.items())
    if isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
        for one, other in zip([*found, None], [*wanted, None], strict=False):
            if one != other:
                return f"{one!r}, not {other!r}"
    return f"{found!r}, not {wanted!r}"


