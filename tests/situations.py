"""Input of the checks of `trimaran doctor`: facts of this machine, and a changed recipe."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trimaran.doctor import facts
from trimaran.doctor.facts import Fact, NodeFacts
from trimaran.doctor.findings import Finding
from trimaran.doctor.situation import Situation
from trimaran.recipes import library, targets
from trimaran.site_file import Site

GROUPS = ("limits", "machine", "network", "places")
"""The groups of facts that the probe collects for the checks of limits, folders and network."""


def probed(words: Sequence[str] = (), **parameters: str) -> NodeFacts:
    """Return the facts of this machine, found by a probe that `words` start.

    Args:
        words: command that runs the program which follows it, such as `taskset -c 0`.
        parameters: variables of the probe.
    """
    done = subprocess.run(
        [*words, "/bin/sh", "-s"], input=facts.probe_source(parameters, GROUPS), text=True,
        check=True, stdout=subprocess.PIPE, timeout=300,
    )
    return facts.parse(done.stdout)


def situation(node: NodeFacts, **more: Any) -> Situation:
    """Return the input of the checks for the quickstart recipe and its target.

    Args:
        node: the facts of the node.
        more: `resources`, `args` and `env` are added to those of the recipe, and `target_node`
            is added to the node facts of the target; any other argument sets a field of
            `Situation`.
    """
    file = library.load("resnet-imagenet/cpu-quickstart")
    old = file.recipe
    recipe = old.model_copy(update={
        "resources": old.resources.model_copy(update=more.pop("resources", {})),
        "args": {**old.args, **more.pop("args", {})}, "env": {**old.env, **more.pop("env", {})},
    })
    target = targets.load(recipe.target)
    target = target.model_copy(
        update={"node": target.node.model_copy(update=more.pop("target_node", {}))}
    )
    return Situation(node, **{
        "site": Site(), "recipe": replace(file, recipe=recipe), "target": target, **more,
    })


def with_facts(node: NodeFacts, more: Mapping[str, str]) -> NodeFacts:
    """Return a copy of `node` with changed facts."""
    return replace(node, facts={**node.facts, **{k: Fact(0, v) for k, v in more.items()}})


def by_id(findings: Sequence[Finding]) -> dict[str, Finding]:
    """Return ID -> finding, after a check that each ID occurs once."""
    named = {finding.id: finding for finding in findings}
    assert len(named) == len(findings)
    return named
