"""Shell scripts that record a run where no Python of ours is: filled templates, shared functions.

The functions are in `templates/functions.sh.j2`: they find Apptainer, tell facts of the machine
and write JSON, with sh and coreutils only.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from trimaran import hostfacts
from trimaran.engines import BuiltImage, Command, commands, gpu
from trimaran.engines.apptainer import USERNS, Apptainer
from trimaran.errors import UsageError
from trimaran.process import quoted
from trimaran.runs.rundir import METRICS, RESULT


def fill(package: str, name: str, values: Mapping[str, object]) -> str:
    """Fill the template `name` of `package`; an unknown variable in it is an error."""
    loader = ChoiceLoader([PackageLoader(package), PackageLoader("trimaran.runs")])
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - no HTML; what reaches the shell is quoted word by word
    )
    return environment.get_template(name).render(values)


def values(image: str) -> dict[str, object]:
    """Return what the shared functions need to know, for a run of `image`."""
    vendor = gpu.vendor(image)
    return {
        "kfd": hostfacts.KFD, "drm": hostfacts.DRM, "amd": hostfacts.AMD,
        "flags": [flag for flags in hostfacts.FLAGS.values() for flag in flags],
        "outcome": (METRICS, RESULT),
        "capability": hostfacts.CAP_SYS_RESOURCE,
        "device": None if vendor is None else shlex.quote(str(gpu.DEVICES[vendor])),
    }


def stand_in() -> str:
    """Return a path for what only the script knows: random, so that nothing is taken for it."""
    return f"/{secrets.token_hex(16)}"


def command(
    built: BuiltImage,
    exact: Callable[[Apptainer, BuiltImage], Command],
    stand_ins: Mapping[str, str],
    *,
    flags: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Return the words of a command and of its environment, as shell source.

    The engine's path and that of the image are variables of the script: `engine`,
    `engine_folder` and `image`. What only the machine can say of the engine's flags, it says.

    Args:
        built: the image, wherever it is now.
        exact: gives the command for an engine and an image.
        stand_ins: more variables, by the text that stands for each in the command.
        flags: more of the engine's, which the site needs.
    """
    own = stand_in()
    variables = {
        f"{own}/apptainer": "engine", own: "engine_folder", f"{own}-image": "image", **stand_ins
    }
    line = exact(Apptainer(f"{own}/apptainer"), replace(built, reference=f"{own}-image"))
    machine = {USERNS, *gpu.APPTAINER.values()}
    at = line.argv.index("--pwd")
    words = [_word(word, variables) for word in line.argv[:at] if word not in machine]
    words.append(f"${{userns:+{USERNS}}}")
    if (vendor := gpu.vendor(built.name)) is not None:
        words.append(f"${{gpu:+{gpu.APPTAINER[vendor]}}}")
    words += map(shlex.quote, flags)
    words += [_word(word, variables) for word in line.argv[at:]]
    environment = [
        _word(f"{name}={value}", variables)
        for name, value in line.env.items()
        if name not in commands.PASSED_ON
    ]
    return words, environment


def quote(word: object) -> str:
    """Return a word as shell source, on one line, by characters that are seen as they are.

    Raises:
        UsageError: it has control characters: a line of its own could be read by a batch system.
    """
    text = str(word)
    if any(ord(character) < ord(" ") or ord(character) == 127 for character in text):
        raise UsageError(f"control characters cannot be put into a script: {text!r}")
    return quoted(text)


def _word(word: str, variables: Mapping[str, str]) -> str:
    """Return `word` as shell source: quoted, with variables in place of stand-ins."""
    longest = sorted(variables, key=len, reverse=True)
    parts = re.split("|".join(f"({re.escape(stand_in)})" for stand_in in longest), word)
    source = [
        f'"${variables[part]}"' if part in variables else quote(part) for part in parts if part
    ]
    return "".join(source) or "''"
