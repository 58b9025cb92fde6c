"""All inputs of the checks of one node: its facts, the recipe, the image and the site file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimaran.doctor.facts import NodeFacts
from trimaran.images.definition import Image
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.targets import Target
from trimaran.site_file import Cluster, Site


@dataclass(frozen=True)
class ImageFacts:
    """The facts of an image that determine whether it runs on a node.

    The facts are read from the definition and its locks, so that the image need not exist.

    Attributes:
        name: name of the image.
        values: fact -> value. Facts are `gpu` (vendor), `gpu-architectures` (separated by blanks),
            and the versions of components: `glibc`, `cuda`, `rocm`, `mpi`, `pmix`, `ucx`,
            `libfabric`, `verbs`, `nccl`, `nccl-ofi` (NCCL's plugin for libfabric), and `horovod`
            ("yes" or "no") of images that can be built without it. If the value is
            empty, the image lacks the component. If a fact is missing, its value is unknown.
        definition: the definition of the image; None: only the facts are known.
    """

    name: str
    values: Mapping[str, str] = field(default_factory=dict)
    definition: Image | None = None


@dataclass(frozen=True)
class Situation:
    """The inputs of the checks of one node.

    Attributes:
        facts: the facts of the node.
        login: the facts of the login node, if `facts` belong to a compute node; otherwise None.
        site: the site file.
        cluster: the cluster of the job; None: the recipe runs on this machine without a job.
        recipe: the recipe; None: only the machine is checked.
        target: target of the recipe.
        image: the image of the recipe.
    """

    facts: NodeFacts
    site: Site
    login: NodeFacts | None = None
    cluster: Cluster | None = None
    recipe: RecipeFile | None = None
    target: Target | None = None
    image: ImageFacts | None = None

    @property
    def before_job(self) -> bool:
        """Whether `facts` are from the login node of a cluster; the recipe runs on other nodes."""
        return self.cluster is not None and self.login is None
