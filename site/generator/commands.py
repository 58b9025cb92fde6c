"""The commands of a recipe, as its page shows them: by Trimaran, by a cluster, and by neither."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from trimaran.cluster.script import Job
from trimaran.data.contracts import load as contract
from trimaran.data.places import getting
from trimaran.data.weights import load as weights
from trimaran.engines import BuiltImage, Command, gpu
from trimaran.engines.apptainer import USERNS, Apptainer
from trimaran.evidence.standing import Standing
from trimaran.runs import pipeline
from trimaran.runs.pipeline import Request
from trimaran.runs.record import DataRecord
from trimaran.sites import Cluster

_PLACE = Path("/stand-in")
"""Where the folders of a reader are said to be, until variables of the shell take their place."""

WIDTH = 96
"""Columns of what is shown; words of the app that go beyond begin a new line."""

_STARTS = ("apptainer", "--containall", "--no-mount", "--pwd", "--mount", "--nv", "--rocm")
"""Words of the command that begin a line of what is shown."""


def run(one: Standing) -> str | None:
    """Return the command that runs and judges a recipe on this machine; None: it takes several."""
    if not one.starts_here:
        return None
    return f"trimaran run {one.name}{_initial(one)}"


def submit(one: Standing) -> str:
    """Return the command that gives a recipe to a cluster."""
    return f"RUN=$(trimaran submit {one.name}{_initial(one)})"


def plain(one: Standing) -> str:
    """Return the lines that run a recipe with Apptainer alone, from image and data to its end.

    It is the exact command of `trimaran run`, or what a job's script starts on each node, with
    variables of the shell for what is the reader's own.
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


def _first(one: Standing) -> str:
    """Return where the reader has the file that the run begins with."""
    initial = one.file.recipe.initial
    if initial is None or initial.weights is None:
        return f"OTHER-RUN/checkpoints/{next(iter(initial.files)) if initial else ''}"
    known = weights(initial.weights)
    return f'"$HOME"/.cache/trimaran/data/{known.name}/{next(iter(known.files))}'


def _initial(one: Standing) -> str:
    initial = one.file.recipe.initial
    if initial is None or initial.recipe is None:
        return ""
    return f" --initial OTHER-RUN/checkpoints/{next(iter(initial.files))}"


def _command(one: Standing, named: dict[str, str]) -> str:
    recipe, engine = one.file.recipe, Apptainer("apptainer")
    initial = _PLACE / f"initial{Path(_first(one)).suffix}" if recipe.initial else None
    folders = {name: _PLACE / variable for name, variable in named.items()}
    exact = command(one, engine, folders, initial, _PLACE / "SIF", _PLACE / "run")
    words = [word for word in exact.argv if word != USERNS]  # what this machine alone may need
    if (vendor := gpu.vendor(recipe.image.name)) is not None:
        option = gpu.APPTAINER[vendor]
        words = [word for word in words if word != option]
        words.insert(words.index("--pwd"), option)
    given = [f"{key}={value}" for key, value in exact.env.items() if key.startswith("APPTAINERENV")]
    return _lines([given, *_parts(words, str(_PLACE / "SIF"))], named, initial)


def command(
    one: Standing, engine: Apptainer, folders: Mapping[str, Path], initial: Path | None,
    image: Path, out: Path,
) -> Command:
    """Return the exact command of a recipe: of `trimaran run`, else of a job without a site file.

    Args:
        folders: of the data sets, by name.
        initial: what it begins with.
        image: the SIF.
        out: the run directory.
    """
    request = Request(one.file, engine, {}, initial=initial, queued=True)
    built = BuiltImage(one.file.recipe.image.name, "apptainer", str(image), None, "", 0)
    if one.starts_here:
        return pipeline.command(request, built, folders, out)
    data = [DataRecord(name=name, path=str(path), sha256="") for name, path in folders.items()]
    return Job(request, Cluster(), built, data, out).command()


def _parts(words: list[str], image: str) -> list[list[str]]:
    """Divide a command into lines: isolation, each folder, the image, and what runs inside."""
    parts: list[list[str]] = [[]]  # the first is of srun, where it starts the ranks
    place = words.index(image)
    for word in words[: place]:
        if word in _STARTS:
            parts.append([])
        parts[-1].append(word)
    inside = words[place + 1 :]
    cut = next((n for n, word in enumerate(inside) if word.startswith("--data")), 1)
    return [*parts, [image], inside[:cut], inside[cut:]]


def _lines(parts: list[list[str]], named: dict[str, str], initial: Path | None) -> str:
    own = {str(_PLACE / "SIF"): "$SIF", str(_PLACE / "run"): "$PWD/run",
           **{str(_PLACE / name): f"${name}" for name in named.values()},
           **({str(initial): "$INITIAL"} if initial else {})}
    lines = [line for part in parts for line in _wrapped([_word(word, own) for word in part])]
    return " \\\n    ".join(lines)


def _wrapped(words: list[str]) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) < WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _word(word: str, own: dict[str, str]) -> str:
    """Return a word as the shell reads it, with variables for what is the reader's own."""
    for place, variable in sorted(own.items(), reverse=True):
        before, found, after = word.partition(place)
        if found:
            return f"{shlex.quote(before) if before else ''}\"{variable}\"" + (
                shlex.quote(after) if after else "")
    return shlex.quote(word)


def first(one: Standing) -> str | None:
    """Return what has to be had before, and how, if it takes more than the commands themselves."""
    licensed = [name for name in one.file.recipe.data if hasattr(contract(name), "instructions")]
    if not licensed:
        return None
    names = ", ".join(licensed)
    command = getting(contract(licensed[0]), one.file.recipe.data[licensed[0]].format)
    return (f"{names}: under licence; `{command}` takes the files that you got, and without"
            " `--from DIR` says how to get them")
