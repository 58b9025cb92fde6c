"""Render a launch specification as a command in a virtual environment, without a container."""

from __future__ import annotations

from trimaran.launch.specification import CommandLine, LaunchSpec, Text


def render(spec: LaunchSpec) -> CommandLine:
    """Return the command that runs the app of `spec`, with paths of the host."""
    module = () if spec.module is None else ("-m", spec.module)
    # PATH begins with the folder of the environment's programs, so that the launcher is found.
    words: tuple[Text, ...] = spec.in_container or (spec.node.program, *module)
    return CommandLine(
        (*words, *spec.arguments),
        # HOME is the run directory, so that the app does not use files of the user.
        {**spec.node.environment, "HOME": spec.workdir, **spec.environment},
    )
