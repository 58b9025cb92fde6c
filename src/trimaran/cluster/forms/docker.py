"""One machine with Docker."""

from __future__ import annotations

from trimaran.cluster.forms.common import Parts, source, text
from trimaran.errors import UsageError
from trimaran.images.parts import Gpu
from trimaran.launch.specification import Mount
from trimaran.process import shell_line
from trimaran.run.launch_spec import OUT_INSIDE

DEVICES: dict[Gpu, tuple[str, ...]] = {
    "nvidia": ("--gpus", "all"),
    "amd": ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video"),
}


def docker(parts: Parts) -> str:
    """Return the command for Docker on one machine."""
    wanted = parts.recipe.resources
    if wanted.nodes > 1 or parts.recipe.launcher == "srun":
        raise UsageError(
            f"docker starts the tasks of one node: {parts.name} has {wanted.nodes} and the"
            f" launcher {parts.recipe.launcher}", hint="--form pyxis, shifter or kubernetes",
        )
    starter, *words = [*parts.starter, *parts.app]
    argv = [
        "--network", "none", "--shm-size", "8g", "--workdir", OUT_INSIDE,
        *(DEVICES[parts.gpu] if parts.gpu else ()),
        *(word for mount in parts.launch.mounts for word in ("--mount", _mount(mount))),
        *(word for name, value in parts.env.items() for word in ("--env", f"{name}={value}")),
        "--entrypoint", starter, parts.image, *words,
    ]
    return text(parts, "Docker", [
        shell_line(["mkdir", "-p", parts.out]),
        # Who runs it owns what it writes, and not root.
        f'docker run --rm --user "$(id -u):$(id -g)" {shell_line(argv)}',
    ])


def _mount(mount: Mount) -> str:
    ending = "" if mount.writable else ",readonly"
    return f"type=bind,source={source(mount, ',', 'docker')},destination={mount.target}{ending}"
