"""Generate the commands of a recipe's page: for this machine, a cluster, and Apptainer alone."""

from __future__ import annotations

from pathlib import Path, PurePath

from generator.recipe_status import RecipeStatus
from trimaran.cluster.script import Job
from trimaran.data.cache import getting
from trimaran.data.contracts import load as contract
from trimaran.data.weights import load as weights
from trimaran.engines import BuiltImage, commands
from trimaran.engines.apptainer import Apptainer
from trimaran.launch import apptainer
from trimaran.launch.specification import LaunchSpec, Mount, Node, Variable, join, shell_source
from trimaran.run import inputs, pipeline
from trimaran.run.launch_spec import Places
from trimaran.run.request import Request
from trimaran.site_file import Cluster

WIDTH = 96
"""Maximum length of a line of a command; a longer command continues on the next line."""


def run(one: RecipeStatus) -> str | None:
    """Return the command that runs a recipe on this machine; None if it needs a job."""
    if not one.starts_here:
        return None
    return f"trimaran run {one.name}{_initial(one)}"


def submit(one: RecipeStatus) -> str:
    """Return the command that submits a recipe to a batch system."""
    return f"RUN=$(trimaran submit {one.name}{_initial(one)})"


def plain(one: RecipeStatus) -> str:
    """Return shell lines that prepare image and data, and run a recipe with Apptainer alone.

    The last command is exactly the one that `trimaran run`, or a job script on each node, starts.
    Shell variables stand for the paths of the reader.
    """
    recipe = one.file.recipe
    lines = [f"SIF=$(trimaran build {recipe.image.name} --engine apptainer)"]
    named = {name: "DATA" if len(recipe.data) == 1 else f"DATA{number}"
             for number, name in enumerate(recipe.data, start=1)}
    lines += [
        f"{variable}=$({getting(contract(name), recipe.data[name].format)})"
        for name, variable in named.items()
    ]
    if recipe.initial is not None:
        lines.append(f"INITIAL={_first(one)}")
    return "\n".join([*lines, "mkdir run", _command(one, named)])


def _first(one: RecipeStatus) -> str:
    """Return the path of the initial checkpoint or weights of a recipe, as shell source."""
    initial = one.file.recipe.initial
    if initial is None or initial.weights is None:
        return f"OTHER-RUN/checkpoints/{next(iter(initial.files)) if initial else ''}"
    known = weights(initial.weights)
    return f'"$HOME"/.cache/trimaran/data/{known.name}/{next(iter(known.files))}'


def _initial(one: RecipeStatus) -> str:
    initial = one.file.recipe.initial
    if initial is None or initial.recipe is None:
        return ""
    return f" --initial OTHER-RUN/checkpoints/{next(iter(initial.files))}"


def _command(one: RecipeStatus, named: dict[str, str]) -> str:
    """Return Apptainer's command for a recipe; `named` has the shell variable of each data set."""
    recipe = one.file.recipe
    first = []
    if recipe.initial is not None:
        place = f"{inputs.INITIAL_INSIDE}{PurePath(_first(one)).suffix}"
        first = [Mount(Variable("INITIAL", simple=True), place)]
    data = {name: inputs.mount(recipe, name, Variable(variable, simple=True))
            for name, variable in named.items()}
    vendor = commands.gpu_vendor(recipe.image.name)
    node = Node("apptainer", Variable("SIF"),
                options=() if vendor is None else (commands.GPU_OPTION[vendor],))
    out = join(Variable("PWD", simple=True), "/run")
    spec = launch(one, node, Places(data, out, first))
    environment = apptainer.render(spec).environment
    variables = [join(f"{name}=", value) for name, value in environment.items()]
    lines = [variables, *apptainer.groups(spec)]
    return " \\\n    ".join(
        row for line in lines for row in _wrapped(list(map(shell_source, line)))
    )


def launch(one: RecipeStatus, node: Node, places: Places) -> LaunchSpec:
    """Return the launch specification of a recipe on the machine `node`.

    If `trimaran run` can start the recipe, the specification is the same as for this command.
    Otherwise it describes a job on a cluster with default settings.
    """
    request = Request(one.file, Apptainer("apptainer"), {}, queued=True)
    built = BuiltImage(one.file.recipe.image.name, "apptainer", "", None, "", 0)
    if one.starts_here:
        return pipeline.specify(request, built, node, places)
    job = Job(request, Cluster(), built, [], Path())
    return job.started(job.task(node, places))


def _wrapped(words: list[str]) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) < WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def first(one: RecipeStatus) -> str | None:
    """Return a note about licensed data that the user must obtain first, or None."""
    licensed = [name for name in one.file.recipe.data if hasattr(contract(name), "instructions")]
    if not licensed:
        return None
    names = ", ".join(licensed)
    command = getting(contract(licensed[0]), one.file.recipe.data[licensed[0]].format)
    return (f"{names}: under licence; `{command}` takes the files that you got, and without"
            " `--from DIR` says how to get them")
