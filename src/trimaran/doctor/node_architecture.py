"""Compare the architecture of the nodes with that of the images for a job."""

from __future__ import annotations

from trimaran.architectures import ARCHITECTURES, MACHINES, Architecture, native
from trimaran.cluster import slurm
from trimaran.doctor import queues
from trimaran.doctor.findings import Explained, Finding, Level, found
from trimaran.doctor.situation import Situation
from trimaran.engines import store
from trimaran.errors import UsageError
from trimaran.images import definition
from trimaran.run import machines

FINDINGS: dict[str, Explained] = {
    "node-architecture": Explained(
        "places", "fail",
        "The processors of the nodes have the architecture of the image: that in the site file, or"
        " else that of the recipe's target. Otherwise the job is refused on the nodes. It is a WARN"
        " if only some nodes of the partition differ.",
        "set architecture of the cluster in the site file to that of the nodes"
        f" ({' or '.join(ARCHITECTURES)}), or name a partition or a constraint",
        "described login nodes of Slurm, and described nodes",
    ),
    "image-architecture": Explained(
        "places", "fail",
        "If the recipe pins images, one is for the architecture of the nodes. Otherwise, if the"
        " nodes have another architecture than the login node, the image for them is in the cache"
        " (a WARN if it is not). `submit` refuses other recipes: it builds only for its own"
        " machine.",
        "trimaran build IMAGE --arch ARCHITECTURE, or trimaran pull",
        "an image that is built for one architecture only, and a recipe that pins one",
    ),
}
"""Documentation of the findings about architectures, by ID."""


def check(situation: Situation) -> list[Finding]:
    """Return the findings about the architecture of the cluster's nodes, or [] without a cluster.

    Without a recipe, only the architecture in the site file is compared.
    """
    if situation.cluster is None:
        return []
    wanted = situation.cluster.architecture
    if wanted is None and situation.recipe is not None:
        wanted = machines.architecture(situation.recipe.recipe, None, here=False)
        if wanted is None:
            fault = machines.unsupported(situation.recipe.name, situation.recipe.recipe)
            return [_refused("node-architecture", fault)]
    if wanted is None:
        return []
    checks = [_nodes(situation, wanted), _pinned(situation, wanted), _image(situation, wanted)]
    return [finding for finding in checks if finding is not None]


def _refused(identifier: str, fault: UsageError) -> Finding:
    """Return the finding about a recipe that `submit` refuses with the error `fault`."""
    return found(FINDINGS, identifier, "fail", fault.message, fault.hint or "")


def _nodes(situation: Situation, wanted: Architecture) -> Finding | None:
    machine = MACHINES[wanted]
    if not situation.before_job:
        here = situation.facts.text("machine")
        known = {here} if here else set()
        where = "the node"
    else:
        known, where = _of_partition(situation), "the nodes of the partition"
    if not known:
        return None
    text = f"{where}: {', '.join(sorted(known))}; the image of the job: {machine}"
    if machine not in known:
        return found(FINDINGS, "node-architecture", "fail", text)
    level: Level = "ok" if known == {machine} else "warn"
    return found(FINDINGS, "node-architecture", level, text)


def _of_partition(situation: Situation) -> set[str]:
    """Return the architectures of the nodes, as Slurm reports them; empty if they are unknown."""
    text, cluster = situation.facts.text("kinds-of-nodes"), situation.cluster
    if not text or cluster is None or cluster.scheduler != "slurm":
        return set()
    partition = cluster.partition or queues.default_of_slurm(situation.facts.text("queues") or "")
    return slurm.architectures(text, partition, cluster.constraint)


def _pinned(situation: Situation, wanted: Architecture) -> Finding | None:
    """Return a finding if the recipe pins images for other architectures only, otherwise None."""
    if situation.recipe is None:
        return None
    try:
        machines.pinned(situation.recipe.name, situation.recipe.recipe.image, wanted)
    except UsageError as fault:
        return _refused("image-architecture", fault)
    return None


def _image(situation: Situation, wanted: Architecture) -> Finding | None:
    image = situation.image.definition if situation.image is not None else None
    if image is None or not situation.before_job or wanted == native():
        return None
    supported = definition.chain(image)[0].architectures
    if situation.recipe is None or wanted not in supported or (
        situation.recipe.recipe.image.digests  # `submit` pulls the image, or `_pinned` refuses it
    ):
        return None
    built = store.built_for(image, "apptainer")
    text = f"{image.name} is in the cache for: {', '.join(sorted(built)) or 'no architecture'}"
    if wanted in built:
        return found(FINDINGS, "image-architecture", "ok", text)
    return found(FINDINGS, "image-architecture", "warn", text,
                 f"trimaran build {image.name} --arch {wanted}, or trimaran pull")
