"""Render a launch specification as a command of Podman."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trimaran.launch.specification import CommandLine, LaunchSpec, Mount, Word, join


def render(spec: LaunchSpec) -> CommandLine:
    """Return the command that runs the app of `spec`.

    If `spec` has no launcher, such as torchrun, the entry point of the image gets the arguments.
    """
    node, inside = spec.node, spec.in_container
    entry = ("--entrypoint", inside[0]) if inside else ()
    return CommandLine(
        (
            node.program, *node.global_options,
            *run_options(spec.workdir, spec.mounts, spec.environment, options=node.options),
            *entry, node.image, *inside[1:], *spec.arguments,
        ),
        node.environment,
    )


def run_options(
    workdir: str, mounts: Iterable[Mount], env: Mapping[str, str], *,
    options: Sequence[Word] = (), network: bool = False,
) -> list[Word]:
    """Return `run` and its options, which isolate a container from the host.

    Args:
        workdir: working directory in the container.
        mounts: folders and files of the host to mount.
        env: variables of the container.
        options: further options.
        network: whether the container uses the network of the host.
    """
    words: list[Word] = [
        "run", "--rm", f"--network={'host' if network else 'none'}",
        "--read-only",  # only /out is writable; /tmp is in memory
        f"--workdir={workdir}", *options,
    ]
    for mount in mounts:
        mode = "rw" if mount.writable else "ro"
        words += ["--volume", join(mount.source, f":{mount.target}:{mode}")]
    for key, value in env.items():
        words += ["--env", f"{key}={value}"]
    return words
