"""Derive the arguments of an app and its launcher from a recipe.

The functions have no side effects, so a dry run prints exactly the command of a real run.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimaran.errors import UsageError
from trimaran.parsing import Malformed, NotYaml, parse_yaml
from trimaran.recipes.cards import Argument, Card
from trimaran.recipes.recipe import OWN_OPTIONS, Recipe
from trimaran.terminal_safety import excerpt


def parse_changes(settings: list[str]) -> dict[str, Argument]:
    """Parse `--set key=value` options; values are YAML scalars (`3`, `0.1`, `true`, `text`).

    Raises:
        UsageError: A setting is not `key=value`, its value is not a scalar, or Trimaran sets the
            option itself.
    """
    changes: dict[str, Argument] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {setting}: not key=value", code="argument-invalid",
                             hint="for example --set epochs=1")
        if key in OWN_OPTIONS:
            raise UsageError(f"--set {key}: Trimaran sets this option", code="argument-invalid",
                             hint=f"use --{key} instead")
        try:
            value = parse_yaml(text).content
        except NotYaml:
            value = text
        except Malformed as error:
            raise UsageError(f"--set {key}: {error}", code="argument-invalid") from error
        if not isinstance(value, bool | int | float | str):
            raise UsageError(
                f"--set {key}: {excerpt(text)} is not one number, one word, true or false",
                code="argument-invalid",
            )
        changes[key] = value
    return changes


def real_changes(recipe: Recipe, card: Card, changes: Mapping[str, Argument]) -> list[str]:
    """Return the changed options that make the run a different experiment from the recipe's."""
    return [
        key
        for key, value in changes.items()
        if key not in card.neutral_options and recipe.args.get(key) != value
    ]


def app_arguments(
    recipe: Recipe, changes: Mapping[str, Argument], *, data: str | None, out: str
) -> list[str]:
    """Return the arguments of the app: verb, folders, and the recipe's arguments in their order.

    A true value becomes `--key`, a false value `--no-key`, any other value `--key=value`. Each is
    one word, so that a value cannot be parsed as an option.

    Args:
        recipe: the recipe.
        changes: options in place of those of the recipe, or in addition.
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

    torchrun, Open MPI or Horovod of the image starts all ranks of the node inside one container. If
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
