"""Shell scripts that record a run where no Python of ours is: filled templates, shared functions.

The functions are in `functions.sh`: they find Apptainer, find out facts of the machine and write
JSON, with sh and coreutils only. They are the same in every script.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from trimaran.engines import commands, gpu
from trimaran.launch.apptainer import USERNS
from trimaran.launch.specification import Node
from trimaran.launch.words import IfSet, Text, Variable, join, shell_source


def fill(package: str, name: str, values: Mapping[str, object]) -> str:
    """Fill the template `name` of `package`; an unknown variable in it is an error."""
    environment = Environment(
        loader=PackageLoader(package), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - no HTML; what reaches the shell is quoted word by word
    )
    return environment.get_template(name).render(values)


def functions() -> str:
    """Return the functions that scripts share: plain sh, which no template fills."""
    return Path(__file__).with_name("functions.sh").read_text(encoding="utf-8")


def gpu_device(image: str) -> str:
    """Return the file by which the driver of the GPUs of `image` is known to be loaded, quoted.

    It is empty for an image that uses none.
    """
    vendor = gpu.vendor(image)
    return "" if vendor is None else shlex.quote(str(gpu.DEVICES[vendor]))


def node(image: str) -> Node:
    """Return what a script knows of its machine, for a run of `image`: by variables.

    The script sets `engine`, `engine_folder` and `image`. What only the machine can tell of
    the engine's options, the functions of `machine_flags` find out.
    """
    vendor = gpu.vendor(image)
    shows_gpus = () if vendor is None else (IfSet("gpu", gpu.APPTAINER[vendor]),)
    return Node(
        Variable("engine"), Variable("image"), options=(IfSet("userns", USERNS), *shows_gpus),
        environment={"PATH": commands.search_path([Variable("engine_folder")])},
    )


def assignments(environment: Mapping[str, Text]) -> list[str]:
    """Return `NAME=VALUE` words of variables, as shell source."""
    return [shell_source(join(f"{name}=", value)) for name, value in environment.items()]
