"""A launch specification as a command of Apptainer."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping

from trimaran.launch.specification import CommandLine, LaunchSpec, Mount
from trimaran.launch.words import CsvField, Text, Variable, Word, join, pieces

ISOLATION = ("--containall", "--no-home", "--cleanenv", "--no-eval")
"""Options of every run.

--containall: own /tmp, /dev, processes and no host folders; --no-home: not even an empty home;
--cleanenv: no variable of the host but those given on purpose; --no-eval: else a shell in the
container expands `$` and backquotes in their values.
"""

SHARED_NODE = ("--no-mount", "home,cwd,tmp,hostfs", "--scratch", "/tmp")  # noqa: S108
"""In place of --containall, for one of several containers of a run on a node.

The ranks meet in the node's /dev/shm: with one of its own each, MPI and NCCL would go over the
network, or fail. Home, working folder and /tmp of the host stay out as ever.
"""

USERNS = "--userns"
"""Apptainer's option to run in a user namespace even where it could do without."""


def render(spec: LaunchSpec) -> CommandLine:
    """Return the command that runs the app of `spec`.

    Without a launcher it is the SIF's `%runscript` that gets the arguments.
    """
    node = spec.node
    isolation = (*SHARED_NODE, *ISOLATION[1:]) if spec.shared_node else ISOLATION
    overlay = () if spec.overlay is None else ("--overlay", f"{spec.overlay}:ro")
    return CommandLine(
        (
            *spec.task_starter, node.program, "--quiet", "exec" if spec.launcher else "run",
            *isolation, *node.options, *spec.site_options, "--pwd", spec.workdir,
            *mount_options(spec.mounts), *overlay, node.image, *spec.in_container, *spec.arguments,
        ),
        {**given(spec.site_environment), **node.environment, **given(spec.environment)},
    )


def given(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of Apptainer's own process that set `env` in the container.

    `--env` would split its argument at commas.
    """
    return {f"APPTAINERENV_{key}": value for key, value in env.items()}


def mount_options(mounts: Iterable[Mount]) -> list[Word]:
    """Return the options that show `mounts` in the container."""
    return [word for mount in mounts for word in ("--mount", _mount(mount))]


def _mount(mount: Mount) -> Text:
    """Return the value of `--mount`: fields between commas, quoted as in a CSV file."""
    ending = [f"destination={mount.target}"]
    if mount.image:
        ending.append("image-src=/")
    if not mount.writable:
        ending.append("ro")
    if isinstance(mount.source, str):
        return csv_line(["type=bind", f"source={mount.source}", *ending])
    source = join("source=", mount.source)
    unsafe = any(isinstance(part, Variable) and not part.simple for part in pieces(source))
    return join("type=bind,", CsvField(source) if unsafe else source, ",", csv_line(ending))


def csv_line(fields: Iterable[str]) -> str:
    """Return fields as `--mount` reads them: comma separated, quoted where need be."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
