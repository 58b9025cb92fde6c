"""Forms for containers that Trimaran does not run: golden texts, shellcheck, Kubeflow's schema.

None of them is run. Run as a script, this file writes the golden files anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimaran.cluster import forms
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import UsageError
from trimaran.recipes import library
from trimaran.run.pipeline import Request
from trimaran.site_file import Cluster, Site

GOLDEN = Path(__file__).parents[1] / "golden"
TWO_NODES, ONE_NODE = "resnet-imagenet/cpu-2node-smoke", "resnet-imagenet/gtx1080ti-x4-scaling@4"
FILES = {
    "docker.sh": ("docker", ONE_NODE), "pyxis.sh": ("pyxis", TWO_NODES),
    "shifter.sh": ("shifter", TWO_NODES), "kubernetes.yaml": ("kubernetes", TWO_NODES),
}


def rendered(form: str, recipe: str, *, cluster: Cluster | None = None, **more: Any) -> str:
    """Return a form of a recipe, for an example registry."""
    file = library.load(recipe)
    request = Request(
        recipe=file, engine=Apptainer("apptainer"), changes=more.pop("changes", {}),
        folders={name: Path("/project/data") / name for name in file.recipe.data},
        out=Path("/scratch/runs/20261124-120000"),
        site=Site(registry="registry.example.org/hpc"), queued=True,
    )
    return forms.render(form, replace(request, **more), cluster or Cluster())


@pytest.mark.parametrize("name", FILES)
def test_a_form_is_its_golden_file(name: str) -> None:
    assert rendered(*FILES[name]) == (GOLDEN / name).read_text(), "run: make generate"


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".sh")])
def test_shellcheck_finds_nothing(name: str) -> None:
    done = subprocess.run(
        ["shellcheck", "--shell=sh", str(GOLDEN / name)], capture_output=True, text=True,
        check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert done.stdout == ""


@pytest.mark.parametrize("recipe", [TWO_NODES, "resnet-imagenet/cpu-2core-2ranks-smoke"])
def test_a_manifest_has_nothing_that_kubeflows_schema_has_not(recipe: str) -> None:
    from kubeflow.training import models
    from kubernetes.client import ApiClient

    manifest = yaml.safe_load(rendered("kubernetes", recipe))
    client = ApiClient()
    # Its reader looks models up in the package of Kubernetes only.
    replicas = {
        name: client._ApiClient__deserialize(replica["template"], "V1PodTemplateSpec")
        for name, replica in manifest["spec"]["pytorchReplicaSpecs"].items()
    }
    spec = manifest["spec"]
    job = models.KubeflowOrgV1PyTorchJob(
        api_version=manifest["apiVersion"], kind=manifest["kind"],
        metadata=client._ApiClient__deserialize(manifest["metadata"], "V1ObjectMeta"),
        spec=models.KubeflowOrgV1PyTorchJobSpec(
            nproc_per_node=spec["nprocPerNode"],
            run_policy=models.KubeflowOrgV1RunPolicy(
                backoff_limit=spec["runPolicy"]["backoffLimit"],
                clean_pod_policy=spec["runPolicy"]["cleanPodPolicy"],
            ),
            pytorch_replica_specs={
                name: models.KubeflowOrgV1ReplicaSpec(
                    replicas=spec["pytorchReplicaSpecs"][name]["replicas"],
                    restart_policy=spec["pytorchReplicaSpecs"][name]["restartPolicy"],
                    template=template,
                )
                for name, template in replicas.items()
            },
        ),
    )
    assert client.sanitize_for_serialization(job) == manifest  # what it knows not, it drops


@pytest.mark.parametrize(
    ("form", "recipe", "more", "problem"),
    [
        ("podman", TWO_NODES, {}, "there is none"),
        ("docker", TWO_NODES, {}, "starts the tasks of one node"),
        ("pyxis", TWO_NODES, {"cluster": Cluster(scheduler="pbs")}, "this cluster has pbs"),
        ("pyxis", TWO_NODES, {"folders": {"fashion-mnist": Path("/a,b")}}, "no way to quote"),
        ("shifter", TWO_NODES, {"folders": {"fashion-mnist": Path("/a;b")}}, "no way to quote"),
        ("kubernetes", TWO_NODES, {"site": Site()}, "none is known"),
        ("kubernetes", "resnet-imagenet/cpu-2core-2ranks-horovod-smoke", {}, "meet by ssh"),
        ("kubernetes", "chexnet/cpu-quickstart", {}, "an app in tensorflow has no use for"),
    ],
)
def test_what_a_form_cannot_say_is_refused(
    form: str, recipe: str, more: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIMARAN_REGISTRY", raising=False)
    with pytest.raises(UsageError, match=problem):
        rendered(form, recipe, **more)


if __name__ == "__main__":
    for golden, (kind, of) in FILES.items():
        (GOLDEN / golden).write_text(rendered(kind, of))
