"""Render shell scripts that execute and record a run on machines without Trimaran.

All scripts use the functions of `functions.sh`, which find Apptainer, collect facts of the
machine and write JSON. They need only sh and coreutils.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from trimaran.engines import commands
from trimaran.launch.apptainer import USERNS
from trimaran.launch.specification import IfSet, Node, Text, Variable, join, shell_source


def fill(package: str, name: str, values: Mapping[str, object]) -> str:
    """Return the template `name` of `package`, filled with `values`.

    Raises:
        jinja2.UndefinedError: the template uses a variable that `values` lacks.
    """
    environment = Environment(
        loader=PackageLoader(package), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - no HTML; each word for the shell is quoted
    )
    return environment.get_template(name).render(values)


def functions() -> str:
    """Return the text of the functions that all scripts share."""
    return Path(__file__).with_name("functions.sh").read_text(encoding="utf-8")


def gpu_device(image: str) -> str:
    """Return the driver's device file for the GPUs that `image` uses, quoted for the shell.

    Return "" for an image that uses no GPUs.
    """
    vendor = commands.gpu_vendor(image)
    return "" if vendor is None else shlex.quote(str(commands.GPU_DEVICES[vendor]))


def node(image: str) -> Node:
    """Return the machine-dependent values of a launch specification, as shell variables.

    A script sets these variables on the machine where it runs. It must itself set `engine`,
    `engine_folder` and `image`. Its function `machine_flags` sets `userns` and `gpu`, which
    determine whether the command has the options of the engine for user namespaces and for GPUs.
    """
    vendor = commands.gpu_vendor(image)
    shows_gpus = () if vendor is None else (IfSet("gpu", commands.GPU_OPTION[vendor]),)
    return Node(
        Variable("engine"), Variable("image"), options=(IfSet("userns", USERNS), *shows_gpus),
        environment={"PATH": commands.search_path([Variable("engine_folder")])},
    )


def assignments(environment: Mapping[str, Text]) -> list[str]:
    """Return one word `NAME=VALUE`, as shell source, for each variable in `environment`."""
    return [shell_source(join(f"{name}=", value)) for name, value in environment.items()]
