"""Render a launch specification as a command of Apptainer."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from itertools import chain

from trimaran.launch.specification import (
    CommandLine,
    CsvField,
    LaunchSpec,
    Mount,
    Text,
    Variable,
    Word,
    join,
    pieces,
)

ISOLATION = ("--containall", "--no-home", "--cleanenv", "--no-eval")
"""Options that isolate the container of a run from the host.

--containall: separate /tmp, /dev and processes, no folders of the host. --no-home: no home folder.
--cleanenv: no variables of the host, except the variables of the run. --no-eval: the shell in the
container does not expand `$` and backquotes in the values of variables.
"""

SHARED_NODE = ("--no-mount", "home,cwd,tmp,hostfs", "--scratch", "/tmp")  # noqa: S108
"""Options that replace --containall if a run has several containers on a node.

The ranks share the node's /dev/shm. With a separate /dev/shm for each rank, MPI and NCCL would use
the network or fail. The host's home folder, working directory and /tmp are not mounted.
"""

USERNS = "--userns"
"""Apptainer's option to run in a user namespace, even if its setuid program is installed."""


def render(spec: LaunchSpec) -> CommandLine:
    """Return the command that runs the app of `spec`.

    If `spec` has no launcher, such as torchrun, the `%runscript` of the SIF gets the arguments.
    """
    return CommandLine(
        tuple(chain.from_iterable(groups(spec))),
        {**given(spec.site_environment), **spec.node.environment, **given(spec.environment)},
    )


def groups(spec: LaunchSpec) -> list[tuple[Word, ...]]:
    """Return the words of the command in groups, to display each group on its own line.

    The groups are: task starter, engine, isolation, options, working directory, each mount,
    overlay, image, start of the app with its verb, and options of the app. A group may be empty.
    """
    node = spec.node
    return [
        spec.task_starter, (node.program, "--quiet", "exec" if spec.launcher else "run"),
        (*SHARED_NODE, *ISOLATION[1:]) if spec.shared_node else ISOLATION,
        (*node.options, *spec.site_options), ("--pwd", spec.workdir),
        *(("--mount", _mount(mount)) for mount in spec.mounts),
        () if spec.overlay is None else ("--overlay", f"{spec.overlay}:ro"),
        (node.image,), (*spec.in_container, *spec.arguments[:1]), spec.arguments[1:],
    ]


def given(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with `APPTAINERENV_` before each name; Apptainer sets `env` in the container.

    `--env` is not used, because it splits its argument at commas.
    """
    return {f"APPTAINERENV_{key}": value for key, value in env.items()}


def mount_options(mounts: Iterable[Mount]) -> list[Word]:
    """Return the options that mount `mounts` in the container."""
    return [word for mount in mounts for word in ("--mount", _mount(mount))]


def _mount(mount: Mount) -> Text:
    """Return the value of `--mount`: a line of comma-separated values."""
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
    """Return `fields` as a line of comma-separated values, quoted where necessary."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
