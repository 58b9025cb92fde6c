"""A launch specification as a command of a virtual environment, without a container."""

from __future__ import annotations

from trimaran.launch.specification import CommandLine, LaunchSpec
from trimaran.launch.words import Text


def render(spec: LaunchSpec) -> CommandLine:
    """Return the command that runs the app of `spec`; mounts are the host's own paths."""
    module = () if spec.module is None else ("-m", spec.module)
    # The launcher is found by its name: PATH begins with the environment's own programs.
    words: tuple[Text, ...] = spec.in_container or (spec.node.program, *module)
    return CommandLine(
        (*words, *spec.arguments),
        # With the run directory as its home, the app reads and writes nothing of the user's own.
        {**spec.node.environment, "HOME": spec.workdir, **spec.environment},
    )
