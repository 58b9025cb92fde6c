"""Build the launch specification of a run from its recipe, data, image, machine and additions.

The additions are the user's overlay and virtual environment, and the settings of the site file.

Only this module builds the command of a run. The verdict on a finished run builds the
specification again from the values in `run.json`, and compares it with the recorded
specification.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trimaran.engines import selection
from trimaran.errors import UsageError
from trimaran.launch.specification import (
    Command,
    ImageReference,
    LaunchSpec,
    Mount,
    Node,
    Text,
    join,
)
from trimaran.recipes.cards import Argument
from trimaran.recipes.recipe import Recipe
from trimaran.run.additions import Extension
from trimaran.run.site_settings import SiteSettings

INSIDE = "/data"
"""Path of the data set in the container; several data sets are mounted in subfolders of it."""

OUT_INSIDE = "/out"
"""Path of the run directory in the container."""


@dataclass(frozen=True)
class Places:
    """The files that a run reads and writes.

    Attributes:
        data: mount of each packed data set, by name, in the order of the recipe.
        out: path of the run directory on the host, the only folder that the run writes.
        initial: mount of the checkpoint that the run starts from, if there is one.
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
        recipe: the recipe to run.
        changes: arguments that replace those of the recipe.
        image: the image to run.
        node: the values that depend on the machine.
        places: the files to read and write.
        module: the Python module of the app; None: the image has no app.
        extension: additions of the user to the image.
        site: additions of the site file.
    """
    out = Mount(places.out, OUT_INSIDE, writable=True)
    container = selection.is_container(image.engine)
    # Binds of the site file are for containers; on the host the paths stay the same.
    binds = [Mount(source, target) for target, source in site.binds.items()] if container else []

    def seen(mount: Mount) -> Text:
        return mount.target if container else mount.source

    data = data_argument(places.data, container=container)
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


def data_argument(data: Mapping[str, Mount], *, container: bool) -> str | None:
    """Return the value of the app's option `--data`, or None if the app reads no data."""
    if not data:
        return None
    return INSIDE if container else str(next(iter(data.values())).source)


def app_arguments(
    recipe: Recipe, changes: Mapping[str, Argument], *, data: str | None, out: str
) -> list[str]:
    """Return the arguments of the app: verb, folders, and the recipe's arguments in their order.

    The value true becomes `--key`, false becomes `--no-key`, and other values `--key=value`. Each
    argument is one word, so that a value cannot be parsed as an option.

    Args:
        recipe: the recipe.
        changes: options that are added to the options of the recipe, or replace them.
        data: folder of the data, in the container; None: the app reads no data.
        out: output folder, in the container.
    """
    words = [recipe.verb, *([] if data is None else [f"--data={data}"]), f"--out={out}"]
    for key, value in {**recipe.args, **changes}.items():
        if isinstance(value, bool):
            words.append(f"--{key}" if value else f"--no-{key}")
        else:
            words.append(f"--{key}={value}")
    return words


def launcher(recipe: Recipe) -> list[str]:
    """Return the words that start the ranks inside a container, including the interpreter.

    The torchrun, Open MPI or Horovod of the image starts all ranks of the node in one container. If
    the batch system or the host's mpirun starts one container for each rank, the list is empty, and
    the entry point of the image runs.
    """
    wanted = recipe.resources
    tasks = str(wanted.tasks_per_node)
    if recipe.launcher == "torchrun" and wanted.nodes > 1:
        # The job sets PET_RDZV_ENDPOINT, the rendezvous address, when its nodes are known.
        nodes, restarts = str(wanted.nodes), []
        if wanted.min_nodes:
            nodes = f"{wanted.min_nodes}:{nodes}"
            restarts = ["--max-restarts", str(wanted.nodes - wanted.min_nodes)]
        return ["python", "-m", "torch.distributed.run", "--nnodes", nodes,
                "--nproc-per-node", tasks, "--rdzv-backend", "c10d", *restarts]
    if recipe.launcher == "torchrun":
        return ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", tasks]
    if recipe.launcher == "mpirun" and wanted.nodes == 1:
        # By default, Open MPI binds each rank to one core; the recipe's env places threads.
        return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", tasks, "python"]
    if recipe.launcher == "horovodrun":
        # horovodrun keeps its cache in the home folder, which a container does not have.
        return ["horovodrun", "--gloo", "--disable-cache", "--network-interfaces", "lo",
                "-np", tasks, "python"]
    return []


def _path(text: Text) -> str:
    """Return `text`, a word of the command with a path on this machine or in a container.

    Raise UsageError if `text` contains shell variables. They occur if a script is written for a
    run without a container, which is not supported.
    """
    if not isinstance(text, str):
        raise UsageError("a script can only contain a run in a container",
                         code="engine-unsuitable", hint="use a container engine")
    return text


def command(spec: LaunchSpec) -> Command:
    """Return the exact command of a specification, for the machine in the specification.

    Raises:
        UsageError: the image has no app to launch.
        ValueError: a part of the command is a shell variable.
    """
    return selection.row(spec.image.engine).render(spec).command()


def differences(spec: LaunchSpec, wanted: LaunchSpec) -> list[str]:
    """Return a line for each field in which a recorded specification differs from `wanted`.

    The fields of the batch system are not compared, because only the site file determines them.
    """
    same = replace(spec, task_starter=wanted.task_starter, shared_node=wanted.shared_node)
    return [
        f"{name} is {_first(getattr(same, name), getattr(wanted, name))}"
        for name in LaunchSpec.__dataclass_fields__
        if getattr(same, name) != getattr(wanted, name)
    ]


def _first(found: object, wanted: object) -> str:
    """Return the first difference of two values of a field as text, such as "1, not 2".

    Lists and mappings are compared element by element; other values are shown whole.
    """
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        found, wanted = list(found.items()), list(wanted.items())
    if isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
        for one, other in zip([*found, None], [*wanted, None], strict=False):
            if one != other:
                return f"{one!r}, not {other!r}"
    return f"{found!r}, not {wanted!r}"
