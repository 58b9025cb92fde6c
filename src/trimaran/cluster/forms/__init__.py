"""A recipe for containers that Trimaran does not run itself: text, to look at and to adapt.

Docker on one machine, Enroot with Pyxis and Shifter in a job of Slurm, Kubeflow's PyTorchJob in
Kubernetes. All take the OCI image from a registry. Golden texts test them; none is run here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trimaran.cluster import jobs
from trimaran.cluster.forms.common import Parts
from trimaran.cluster.forms.docker import docker
from trimaran.cluster.forms.jobs_of_slurm import pyxis, shifter
from trimaran.cluster.forms.kubernetes import kubernetes
from trimaran.engines import BuiltImage, gpu
from trimaran.errors import UsageError, nearest
from trimaran.launch.specification import Node
from trimaran.run import initial, inputs, pipeline, run_directory
from trimaran.run.launch_spec import Places
from trimaran.run.pipeline import Request
from trimaran.site_file import Cluster

FORMS: Mapping[str, Callable[[Parts], str]] = {
    "docker": docker, "pyxis": pyxis, "shifter": shifter, "kubernetes": kubernetes,
}
"""The forms, by their names on the command line."""


def render(form: str, request: Request, cluster: Cluster) -> str:
    """Return the command, script or manifest of a recipe for `form`.

    Raises:
        UsageError: no such form, no registry is known, or the form cannot say what is asked.
    """
    from trimaran.provenance import registry  # its client is slow to import

    if form not in FORMS:
        raise UsageError(f"--form {form}: there is none ({nearest(form, FORMS)})")
    request = jobs.at_home(request, cluster)
    pipeline.check(request, to_print=True)
    place = registry.configured(None, request.site)
    if place is None:
        raise UsageError(f"--form {form} takes the image from a registry, and none is known",
                         hint="registry: HOST/NAMESPACE in the site file, or TRIMARAN_REGISTRY")
    recipe = request.recipe.recipe
    image = request.image
    built = BuiltImage(image.name, "podman", f"{place}/{image.name}:{image.tag}", None, "", 0)
    out = run_directory.new_directory(request.recipe, request.out)
    begins, lacking = initial.planned(request.recipe, request.initial)
    folders = inputs.places(request.recipe, request.folders)
    places = Places(inputs.mounts(recipe, folders), str(out), initial.mounts(begins))
    launch = pipeline.specify(request, built, Node("", built.reference), places)
    if launch.module is None:
        raise UsageError(f"{image.name} has no app to launch")
    return FORMS[form](Parts(
        request.recipe.name, recipe, cluster, launch, gpu.vendor(image.name), tuple(lacking),
    ))
