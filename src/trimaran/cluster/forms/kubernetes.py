"""A PyTorchJob of Kubeflow's training operator (kubeflow.org/v1).

The operator tells torchrun in each pod, by variables, of nodes, ranks and where they meet.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import yaml

from trimaran.cluster.forms.common import Parts
from trimaran.errors import UsageError
from trimaran.images.parts import Gpu
from trimaran.launch.specification import Mount
from trimaran.recipes import cards
from trimaran.run import inputs
from trimaran.run.launch_spec import OUT_INSIDE
from trimaran.run.resume import OPTION

GPUS: dict[Gpu, str] = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""What the vendors' device plugins call a GPU."""

USER = 1000
"""Who owns what is written, as the claims must allow."""


def kubernetes(parts: Parts) -> str:
    """Return the manifest."""
    recipe, wanted = parts.recipe, parts.recipe.resources
    framework = cards.load(recipe.app).card.framework
    if framework != "torch":
        raise UsageError(f"{parts.name}: a PyTorchJob starts torchrun, which an app in {framework}"
                         " has no use for", hint="a cluster with Slurm, PBS or LSF takes it")
    if recipe.args.get("strategy") == "horovod":
        raise UsageError(
            f"{parts.name} trains with Horovod, whose pods meet by ssh (MPIJob): the images have"
            " none", hint="--set strategy=ddp, for apps that have it",
        )
    replicas = {"Master": _replica(parts, 1)}
    if wanted.nodes > 1:
        replicas["Worker"] = _replica(parts, wanted.nodes - 1)
    manifest = {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": parts.name.replace("/", "-").replace("@", "-")},
        "spec": {
            "nprocPerNode": str(wanted.tasks_per_node),
            "runPolicy": {"backoffLimit": 3, "cleanPodPolicy": "Running"},
            "pytorchReplicaSpecs": replicas,
        },
    }
    return (
        f"# {parts.name} as a job of Kubeflow's training operator. Not run by Trimaran.\n"
        "# Claims: trimaran-data has the packed data sets by name, trimaran-runs the runs.\n"
        + "".join(f"{note}\n" for note in parts.notes)
        + yaml.safe_dump(manifest, sort_keys=False)
    )


def _replica(parts: Parts, count: int) -> dict[str, Any]:
    claims = {("runs" if mount.writable else "data") for mount in parts.launch.mounts}
    volumes: list[dict[str, Any]] = [
        {"name": name, "persistentVolumeClaim": {"claimName": f"trimaran-{name}"}}
        for name in sorted(claims)
    ]
    volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "fsGroup": USER},
        "containers": [_container(parts)],
        "volumes": volumes,
    }
    return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": pod}}


def _container(parts: Parts) -> dict[str, Any]:
    wanted = parts.recipe.resources
    limits = {"cpu": str(wanted.cpus_per_task * wanted.tasks_per_node)}
    if parts.gpu and wanted.gpus_per_node:
        limits[GPUS[parts.gpu]] = str(wanted.gpus_per_node)
    mounts = [
        {
            "name": "runs" if mount.writable else "data", "mountPath": mount.target,
            "subPath": _place(parts, mount), "readOnly": not mount.writable,
        }
        for mount in parts.launch.mounts
    ]
    return {
        "name": "pytorch",  # the operator looks for this one
        "image": parts.image,
        # A pod that is started again goes on from the newest checkpoint.
        "command": ["python", "-m", "torch.distributed.run", *parts.app, OPTION],
        "workingDir": OUT_INSIDE,
        "env": [{"name": name, "value": value} for name, value in parts.env.items()],
        "resources": {"limits": limits},
        "volumeMounts": [*mounts, {"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _place(parts: Parts, mount: Mount) -> str:
    """Return where a mount is below its claim: data sets by name, runs by recipe and time."""
    if mount.writable:
        return f"{parts.name}/{PurePath(parts.out).name}"
    for name in parts.recipe.data:
        if mount.target == inputs.mount(parts.recipe, name, "").target:
            return name
    return PurePath(str(mount.source)).name
