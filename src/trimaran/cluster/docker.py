"""Render the run of a recipe as a script for Docker on one machine.

The script uses the OCI image in a registry. Trimaran does not run the script, so there is neither
`run.json` nor a verdict.
"""

from __future__ import annotations

from trimaran.cluster import submission
from trimaran.engines import BuiltImage, commands
from trimaran.errors import UsageError
from trimaran.images.parts import Gpu
from trimaran.launch.specification import LaunchSpec, Mount, Node
from trimaran.process import shell_line
from trimaran.run import inputs, pipeline, run_directory
from trimaran.run.launch_spec import Places
from trimaran.run.request import Request
from trimaran.site_file import Cluster

FORM = "docker"
"""The value of `trimaran submit --form` with which this module renders the script, for Docker."""

DEVICES: dict[Gpu, tuple[str, ...]] = {
    "nvidia": ("--gpus", "all"),
    "amd": ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video"),
}
"""Vendor -> options of Docker that make its GPUs available."""


def render(request: Request, cluster: Cluster) -> str:
    """Return a shell script that runs the recipe of `request` with Docker.

    Raises:
        UsageError: no registry is configured, the recipe needs several nodes, or Docker cannot
            mount a path.
    """
    from trimaran.provenance import registry  # the registry client is slow to import

    request = submission.at_home(request, cluster)
    pipeline.check(request, to_print=True)
    recipe = request.recipe.recipe
    if recipe.resources.nodes > 1 or recipe.launcher == "srun":
        raise UsageError(
            f"--form docker starts the tasks of one node: {request.recipe.name} has nodes:"
            f" {recipe.resources.nodes} and launcher: {recipe.launcher}",
            code="recipe-unsupported", hint="leave out --form, or choose a recipe for one node",
        )
    place = registry.configured(None, request.site)
    if place is None:
        raise UsageError("--form docker takes the image from a registry, and none is configured",
                         code="registry-missing",
                         hint="set registry: HOST/NAMESPACE in the site file, or TRIMARAN_REGISTRY")
    image = request.image
    built = BuiltImage(image.name, "podman", f"{place}/{image.name}:{image.tag}", None, "", 0)
    begins, lacking = inputs.planned_initial(request.recipe, request.initial)
    out = str(run_directory.new_directory(request.recipe, request.out))
    folders = inputs.places(request.recipe, request.folders)
    places = Places(inputs.mounts(recipe, folders), out, inputs.initial_mounts(begins))
    spec = pipeline.specify(request, built, Node("", built.reference), places)
    return "\n".join([
        "#!/bin/sh",
        f"# {request.recipe.name} with Docker. Trimaran does not run it: no run.json, no verdict.",
        *(f"# first: {what}" for what in lacking),
        shell_line(["mkdir", "-p", out]),
        # The output belongs to the user, not to root.
        f'docker run --rm --user "$(id -u):$(id -g)" {shell_line(_words(spec))}',
        "",
    ])


def _words(spec: LaunchSpec) -> list[str]:
    if spec.module is None:
        raise UsageError(f"the image {spec.image.name} contains no app to launch",
                         code="app-missing")
    vendor = commands.gpu_vendor(spec.image.name)
    starter, *launcher = spec.launcher or ("python",)
    return [
        "--network", "none", "--shm-size", "8g", "--workdir", spec.workdir,
        *(DEVICES[vendor] if vendor else ()),
        *(word for mount in spec.mounts for word in ("--mount", _mount(mount))),
        *(word for name, value in spec.environment.items()
          for word in ("--env", f"{name}={value}")),
        "--entrypoint", starter, spec.image.reference, *launcher, "-m", spec.module,
        *spec.arguments,
    ]


def _mount(mount: Mount) -> str:
    """Return the value of Docker's option `--mount`.

    Raises:
        UsageError: Docker cannot mount the path, for example because it contains a comma.
    """
    path = str(mount.source)
    if mount.image:
        raise UsageError(f"{path}: Docker cannot mount a SquashFS image", code="mount-unsupported",
                         hint="name a folder of packed data with --data")
    if "," in path or not path.isprintable():
        raise UsageError(f"{path}: Docker cannot quote a comma or a control character in a path",
                         code="mount-unsupported", hint="rename the folder")
    ending = "" if mount.writable else ",readonly"
    return f"type=bind,source={path},destination={mount.target}{ending}"
