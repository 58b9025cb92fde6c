"""From a recipe to the arguments of its app: pure, so that what is printed is what runs."""

from __future__ import annotations

from collections.abc import Mapping

from trimaran.errors import UsageError
from trimaran.parsing import Malformed, NotYaml, parse_yaml
from trimaran.recipes.cards import Card
from trimaran.recipes.options import Argument
from trimaran.recipes.recipe import OWN_OPTIONS, Recipe
from trimaran.terminal_safety import excerpt


def parse_changes(settings: list[str]) -> dict[str, Argument]:
    """Parse `--set key=value` options; values are YAML scalars (`3`, `0.1`, `true`, `text`).

    Raises:
        UsageError: not `key=value`, a value that is no scalar, or an option Trimaran sets itself.
    """
    changes: dict[str, Argument] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {setting}: not key=value", hint="for example --set epochs=1")
        if key in OWN_OPTIONS:
            raise UsageError(f"--set {key}: set by Trimaran", hint=f"use --{key} instead")
        try:
            value = parse_yaml(text).content
        except NotYaml:
            value = text
        except Malformed as error:
            raise UsageError(f"--set {key}: {error}") from error
        if not isinstance(value, bool | int | float | str):
            raise UsageError(
                f"--set {key}: {excerpt(text)} is no single number, word or truth value"
            )
        changes[key] = value
    return changes


def real_changes(recipe: Recipe, card: Card, changes: Mapping[str, Argument]) -> list[str]:
    """Return the options whose change makes the run another experiment than the recipe's."""
    return [
        key
        for key, value in changes.items()
        if key not in card.neutral_options and recipe.args.get(key) != value
    ]


def app_arguments(
    recipe: Recipe, changes: Mapping[str, Argument], *, data: str | None, out: str
) -> list[str]:
    """Return the arguments of the app: verb, folders, then the recipe's own in its order.

    `data` is None where it reads no data.
    A true value becomes `--key`, a false one `--no-key`, anything else `--key=value`,
    one word each, so that no value can be taken for another option.
    """
    words = [recipe.verb, *([] if data is None else [f"--data={data}"]), f"--out={out}"]
    for key, value in {**recipe.args, **changes}.items():
        if isinstance(value, bool):
            words.append(f"--{key}" if value else f"--no-{key}")
        else:
            words.append(f"--{key}={value}")
    return words


def launcher(recipe: Recipe) -> list[str]:
    """Return the words that start the tasks inside a container, up to and with the interpreter.

    They are a command of the image: its own torchrun, Open MPI or Horovod starts all tasks of the
    node inside one container. Where the batch system or the host's mpirun starts them, one in each
    container, there are none: the image's entry point is run.
    """
    wanted = recipe.resources
    tasks = str(wanted.tasks_per_node)
    if recipe.launcher == "torchrun" and wanted.nodes > 1:
        # Where they meet is told by PET_RDZV_ENDPOINT, once it is known which nodes there are.
        nodes, restarts = str(wanted.nodes), []
        if wanted.min_nodes:
            nodes = f"{wanted.min_nodes}:{nodes}"
            restarts = ["--max-restarts", str(wanted.nodes - wanted.min_nodes)]
        return ["python", "-m", "torch.distributed.run", "--nnodes", nodes,
                "--nproc-per-node", tasks, "--rdzv-backend", "c10d", *restarts]
    if recipe.launcher == "torchrun":
        return ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", tasks]
    if recipe.launcher == "mpirun" and wanted.nodes == 1:
        # Threads are placed by the recipe's env; Open MPI would give each task one core.
        return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", tasks, "python"]
    if recipe.launcher == "horovodrun":
        # Its cache of checks would be in the home, which is not there.
        return ["horovodrun", "--gloo", "--disable-cache", "--network-interfaces", "lo",
                "-np", tasks, "python"]
    return []
