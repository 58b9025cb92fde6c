"""`run.sh` of a bundle: the command and the record of a run, as a shell script without paths.

The command comes from where `trimaran run` has it, and `run.json` from the same model:
stand-ins take the place of what only the other machine knows, and become shell variables.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from trimaran import __version__, hostfacts
from trimaran.engines import BuiltImage, commands, gpu
from trimaran.engines.apptainer import USERNS, Apptainer
from trimaran.errors import UsageError
from trimaran.hostfacts import HostFacts
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.options import Argument
from trimaran.runs import inputs, pipeline
from trimaran.runs.record import (
    CommandRecord,
    DataRecord,
    GitRecord,
    ImageRecord,
    RecipeRecord,
    RunRecord,
    SignatureRecord,
)
from trimaran.runs.rundir import CARD, LOCK, METRICS, RECIPE, RESULT

IMAGE = "image.sif"
DATA_SUMS = "data.sha256"


@dataclass(frozen=True)
class Contents:
    """What a `run.sh` is made for.

    Attributes:
        recipe: the recipe to run.
        changes: its arguments replaced by `--set`.
        built: the image, wherever it is now.
        signature: who has signed it, if recipe or site asked when it was packed.
        datasets: SHA-256 of each `dataset.json`, by name of the data set.
        included: whether the data are in the bundle.
        git: state of the checkout.
    """

    recipe: RecipeFile
    changes: Mapping[str, Argument]
    built: BuiltImage
    signature: SignatureRecord | None
    datasets: Mapping[str, str]
    included: bool
    git: GitRecord


def render(contents: Contents) -> str:
    """Return the text of `run.sh`.

    Raises:
        UsageError: an argument or variable of the recipe has control characters.
    """
    words, environment = _command(contents)
    vendor = gpu.vendor(contents.built.name)
    values = {
        "version": __version__,
        "recipe": contents.recipe.name,
        "recipe_word": shlex.quote(f"runs/{contents.recipe.name}"),
        "data": " and ".join(contents.datasets),
        "folders": [inputs.below(contents.recipe.recipe, name) for name in contents.datasets],
        "included": contents.included,
        "image": IMAGE,
        "data_sums": DATA_SUMS,
        "signers": contents.recipe.recipe.image.signed_by,
        "kfd": hostfacts.KFD, "drm": hostfacts.DRM, "amd": hostfacts.AMD,
        "flags": [flag for flags in hostfacts.FLAGS.values() for flag in flags],
        "capability": hostfacts.CAP_SYS_RESOURCE,
        "device": None if vendor is None else shlex.quote(str(gpu.DEVICES[vendor])),
        "passed_on": commands.PASSED_ON,
        "environment": environment,
        "words": words,
        "record": _record(contents),
        "copies": (RECIPE, CARD),
        "outcome": (METRICS, RESULT),
        "lock": LOCK,
    }
    return template("run.sh.j2", values)


def template(name: str, values: Mapping[str, object]) -> str:
    """Fill a template of plain text; an unknown variable in it is an error."""
    environment = Environment(
        loader=PackageLoader("trimaran.bundles"), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - no HTML; what reaches the shell is quoted word by word
    )
    return environment.get_template(name).render(values)


def _command(contents: Contents) -> tuple[list[str], list[str]]:
    """Return the words of the command and of its environment, as shell source."""
    # A random name, so that nothing in a recipe can be taken for a stand-in. The comma
    # has the engine quote the field of --mount, whatever the path will be.
    own = f"/{secrets.token_hex(16)}"
    variables = {
        f"{own}/apptainer": "engine", own: "engine_folder", f"{own}-image": "image",
        f"{own},data": "data_csv", f"{own},out": "out_csv",
    }
    engine = Apptainer(f"{own}/apptainer")
    exact = pipeline.command(
        pipeline.Request(contents.recipe, engine, dict(contents.changes)),
        BuiltImage(contents.built.name, engine.name, f"{own}-image", contents.built.digest,
                   contents.built.inputs, contents.built.size),
        {
            name: Path(f"{own},data{inputs.below(contents.recipe.recipe, name)}")
            for name in contents.datasets
        },
        Path(f"{own},out"),
    )
    # What depends on the machine is for the other one to say.
    machine = {USERNS, *gpu.APPTAINER.values()}
    at = exact.argv.index("--pwd")
    words = [_shell_word(word, variables) for word in exact.argv[:at] if word not in machine]
    words.append(f"${{userns:+{USERNS}}}")
    if (vendor := gpu.vendor(contents.built.name)) is not None:
        words.append(f"${{gpu:+{gpu.APPTAINER[vendor]}}}")
    words += [_shell_word(word, variables) for word in exact.argv[at:]]
    environment = [
        _shell_word(f"{name}={value}", variables)
        for name, value in exact.env.items()
        if name not in commands.PASSED_ON
    ]
    return words, environment


def _shell_word(word: str, variables: Mapping[str, str]) -> str:
    """Return `word` as shell source: quoted, with variables in place of stand-ins."""
    if any(ord(character) < ord(" ") or ord(character) == 127 for character in word):
        raise UsageError(f"control characters cannot be put into a bundle: {word!r}")
    longest = sorted(variables, key=len, reverse=True)
    parts = re.split("|".join(f"({re.escape(stand_in)})" for stand_in in longest), word)
    source = [
        f'"${variables[part]}"' if part in variables else shlex.quote(part)
        for part in parts
        if part
    ]
    return "".join(source) or "''"


def _record(contents: Contents) -> str:
    """Return `run.json` as the text of a here-document; the script has a variable for each gap."""
    recipe, built = contents.recipe, contents.built
    record = RunRecord(
        status="running",
        trimaran=__version__,
        recipe=RecipeRecord(
            name=recipe.name, sha256=recipe.sha256, card_sha256=recipe.card.sha256,
            changed=dict(contents.changes),
        ),
        image=ImageRecord(
            name=built.name, engine=built.engine, reference="", digest=built.digest,
            inputs=built.inputs, signature=contents.signature,
        ),
        data=[
            DataRecord(name=name, path="", sha256=digest)
            for name, digest in contents.datasets.items()
        ],
        git=contents.git,
        command=CommandRecord(argv=[], env={}, shell=""),
        host=HostFacts(
            hostname="", os="", kernel="", architecture="", processor="", cores=0, memory_gib=0,
            cpu_flags=[], accelerators=[], python=None,
        ),
        started=datetime.now(timezone.utc),
    )
    document = record.model_dump(mode="json")
    mark = secrets.token_hex(16)
    same = ("status", "started", "ended", "seconds", "exit_status", "files")
    _leave_open(document, mark, {key: key for key in same})
    _leave_open(document["image"], mark, {"reference": "image_path"})
    for number, data in enumerate(document["data"]):
        _leave_open(data, mark, {"path": f"data_path_{number}"})
    _leave_open(document["command"], mark, {"argv": "argv", "env": "environment", "shell": "shell"})
    _leave_open(document["host"], mark, {key: key for key in document["host"] if key != "python"})
    text = re.sub(r"[\\$`]", r"\\\g<0>", json.dumps(document, indent=2))
    return re.sub(f'"{mark}-([a-z0-9_]+)"', r"${\1}", text)


def _leave_open(part: dict[str, object], mark: str, variables: Mapping[str, str]) -> None:
    """Mark keys of `part` to be filled from the script's variables."""
    part.update({key: f"{mark}-{variable}" for key, variable in variables.items()})
