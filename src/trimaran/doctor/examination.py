"""Examine this machine and the nodes of a cluster, and compare their findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from trimaran import paths
from trimaran.architectures import native
from trimaran.doctor import checks, facts, image_facts, machine, nodes
from trimaran.doctor.facts import NodeFacts
from trimaran.doctor.findings import Finding, Level, worst
from trimaran.doctor.situation import ImageFacts, Situation
from trimaran.engines import apptainer
from trimaran.errors import RunError
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.recipes import targets
from trimaran.recipes.library import RecipeFile
from trimaran.reporting import Reporter
from trimaran.run import inputs, machines
from trimaran.site_file import Cluster, Site


class NodeFindings(BaseModel, frozen=True):
    """The findings of one node.

    Attributes:
        node: name of the node.
        role: "login": the machine on which the command runs; "compute": a node of the job.
    """

    node: str
    role: Literal["login", "compute"]
    findings: tuple[Finding, ...]


class Examination(BaseModel, frozen=True):
    """The result of `trimaran doctor`.

    Attributes:
        recipe: name of the recipe; None: no recipe was given.
        cluster: name of the cluster in the site file; None: no cluster was given.
    """

    recipe: str | None
    cluster: str | None
    nodes: tuple[NodeFindings, ...]

    @property
    def level(self) -> Level:
        """The most severe level of all findings."""
        return worst(finding for node in self.nodes for finding in node.findings)


class Row(BaseModel, frozen=True):
    """The result of one check on all nodes: all findings with one ID, such as `host-mpi`.

    Attributes:
        id: the ID of the findings.
        group: the group of the check.
        level: the most severe level of the findings.
        causes: the causes of the findings, without repetitions. If the nodes differ, each text
            begins with the names of the nodes to which it applies.
        remedies: the remedies of the findings, without repetitions.
    """

    id: str
    group: str
    level: Level
    causes: tuple[str, ...]
    remedies: tuple[str, ...]


def situation(site: Site, cluster: Cluster | None, recipe: RecipeFile | None) -> Situation:
    """Return the inputs of the checks, except the facts of a node, which are collected later.

    Raises:
        UsageError: the definition of the image, or one of its locks, has faults, or no image is
            made for the architecture of the cluster's nodes, or of this machine without a cluster.
    """
    image: ImageFacts | None = None
    target = None
    if recipe is not None:
        defined = _for_nodes(definition.load(recipe.recipe.image.name), cluster, recipe)
        image = image_facts.of_image(defined)
        image = replace(image, values={**image.values, **image_facts.horovod(defined)})
        target = targets.load(recipe.recipe.target)
    return Situation(NodeFacts("unknown"), site, None, cluster, recipe, target, image)


def _for_nodes(image: Image, cluster: Cluster | None, recipe: RecipeFile) -> Image:
    """Return `image` for the architecture of the cluster's nodes, or else of this machine."""
    if cluster is None:
        return definition.on(image, native())
    nodes_have = machines.architecture(recipe.recipe, cluster.architecture, here=False)
    # If no image supports the nodes, the finding `node-architecture` reports it; the other checks
    # then examine an image that exists.
    return definition.on(image, nodes_have or definition.chain(image)[0].architectures[0])


def parameters(about: Situation) -> dict[str, str]:
    """Return values for the shell script that collects the facts of a node ("probe").

    The keys are names of shell variables (see `probes/functions.sh`).
    """
    cluster, recipe = about.cluster, about.recipe
    given: dict[str, Path | str | None] = {
        "place_cache": paths.cache() if paths.has_cache() else None,
        "place_runs": (cluster and cluster.scratch) or Path.cwd() / "runs",
        "gpu": about.image.values.get("gpu") if about.image else None,
    }
    data = inputs.places(recipe, {}) if recipe is not None and paths.has_cache() else {}
    if cluster is not None:
        given |= {
            "apptainer": cluster.apptainer, "modules": " ".join(cluster.modules),
            "place_scratch": cluster.scratch, "place_local": cluster.local_storage,
        }
        if cluster.data is not None and recipe is not None:
            own = {name: cluster.data / name for name in recipe.recipe.data}
            data = {**data, **{name: place for name, place in own.items() if place.exists()}}
    given["place_data"] = "\n".join(map(str, data.values()))
    if given.get("apptainer") is None:
        given["apptainer"] = apptainer.program() if paths.has_cache() else None
    return {name: str(value) for name, value in given.items() if value}


def queue_parameters(about: Situation) -> dict[str, str]:
    """Return the shell variables with which the probe also collects facts about the batch system.

    Only the login node gets them. Otherwise all nodes of a job would call the batch system at the
    same time.
    """
    cluster = about.cluster
    if cluster is None:
        return {}
    return {"scheduler": cluster.scheduler, "partition": cluster.partition or ""}


def examine(
    about: Situation, names: tuple[str | None, str | None], count: int | None,
    reporter: Reporter, queue_seconds: float,
) -> Examination:
    """Return the findings of this machine and of `count` nodes of the cluster.

    Args:
        about: the inputs of the checks; the facts of each node are inserted into a copy.
        names: names of the recipe and of the cluster.
        count: number of nodes to examine by a job; None: this machine only.
        reporter: shows progress.
        queue_seconds: time limit in seconds for the start of the job.

    Raises:
        UsageError, RunError: the job cannot be queued, or is not started in time.
    """
    shell = parameters(about)
    own = facts.of_this_host({**shell, **queue_parameters(about)})
    here = (*checks.check(replace(about, facts=own)), *machine.engines())
    found = [NodeFindings(node=own.node, role="login", findings=here)]
    if count is not None and about.cluster is not None:
        recipe = about.recipe.recipe if about.recipe is not None else None
        answers, silent = nodes.collect(about.cluster, count, shell, recipe, reporter,
                                        queue_seconds)
        found += [
            NodeFindings(node=answer.node, role="compute", findings=tuple(
                checks.check(replace(about, facts=answer, login=own))
            )) for answer in answers
        ]
        found += [
            NodeFindings(node=name, role="compute", findings=(nodes.silent(name),))
            for name in silent
        ]
    return Examination(recipe=names[0], cluster=names[1], nodes=tuple(found))


def refuse(abouts: Sequence[Situation]) -> None:
    """Check, without a job, whether recipes can run on their cluster.

    Args:
        abouts: the inputs of the checks, one for each recipe; all of them have the same cluster.
            The facts of this machine are inserted into a copy.

    Raises:
        RunError: a finding has the level "fail" (the message lists all such findings), or the
            facts of this machine are not collected in time.
    """
    try:
        own = facts.of_this_host({**parameters(abouts[0]), **queue_parameters(abouts[0])},
                                 groups=checks.CHEAP_PROBES)
    except RunError as error:
        raise RunError(error.message, code=error.code, hint=f"{error.hint}; --force submits the job"
                       " without these checks") from error
    failed = {
        finding.id: finding for about in abouts
        for finding in checks.check(replace(about, facts=own), checks.CHEAP)
        # If commands of the batch system are missing, `submit` itself raises an error.
        if finding.level == "fail" and finding.id != "batch-system"
    }
    if failed:
        raise RunError(
            "the job cannot work:\n" + "\n".join(
                f"{one.id}: {one.cause}; {one.remedy}" for one in failed.values()
            ),
            code="node-unsuitable",
            hint="`trimaran doctor RECIPE --cluster NAME` shows all findings; --force submits the"
            " job nevertheless",
        )


def rows(examination: Examination) -> list[Row]:
    """Return one row for each ID of a finding, sorted by the group of the check."""
    found: dict[str, list[tuple[NodeFindings, Finding]]] = {}
    for node in examination.nodes:
        for finding in node.findings:
            found.setdefault(finding.id, []).append((node, finding))
    order = {name: number for number, name in enumerate(checks.ORDER)}
    result = [
        Row(
            id=identifier, group=checks.group_of(each[0][1]), level=worst(one for _, one in each),
            causes=tuple(_side_by_side(each, len(examination.nodes))),
            remedies=tuple(dict.fromkeys(one.remedy for _, one in each if one.remedy)),
        )
        for identifier, each in found.items()
    ]
    return sorted(result, key=lambda row: order[row.group])


def _side_by_side(each: Sequence[tuple[NodeFindings, Finding]], nodes: int) -> Iterator[str]:
    """Yield each different cause of the findings once, preceded by the names of the affected nodes.

    The names are left out if all nodes have this cause, or if only the login node was checked.
    """
    owners: dict[tuple[Level, str], list[NodeFindings]] = {}
    for node, finding in each:
        owners.setdefault((finding.level, finding.cause), []).append(node)
    only_login = [node.role for node, _ in each] == ["login"]
    for (level, cause), members in owners.items():
        if only_login or len(members) == nodes:
            yield cause
            continue
        names = [f"{one.node} (login)" if one.role == "login" else one.node for one in members]
        yield f"{', '.join(names)}: {'' if level == 'ok' else f'{level.upper()} '}{cause}"
