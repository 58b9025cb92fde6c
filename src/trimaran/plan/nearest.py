"""Find the target that is most similar to a machine, and predict the throughput of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trimaran.errors import UsageError
from trimaran.hostfacts import HostFacts
from trimaran.plan import prediction, situation
from trimaran.recipes import cards, library, targets
from trimaran.recipes.targets import Target


@dataclass(frozen=True)
class Nearest:
    """The target that is most similar to a machine, of all targets with an expected throughput.

    Attributes:
        target: name of the target.
        recipe: name of the app's recipe that states the expected throughput on this target.
        differences: differences between the machine and the target.
    """

    target: str
    recipe: str
    differences: list[str]


def find(app: str, host: HostFacts) -> Nearest | None:
    """Return the target that is most similar to `host`.

    Only targets with the CPU architecture of `host`, for which a recipe of the app states an
    expected throughput, are considered; None if there is none. They are compared by the kind of
    accelerator, the number of accelerators, the instruction sets and the number of cores, in this
    order of importance.
    """
    card = cards.load(app).card
    found = []
    for name in library.files():
        if name.startswith(f"{app}/"):
            recipe = situation.first(name)
            target = targets.load(recipe.target)
            rated = any(one.metric == card.rate for one in recipe.expected)
            if rated and target.node.architecture == host.architecture:
                found.append((_distance(target, host), recipe.target, name, target))
    if not found:
        return None
    _, target_name, recipe_name, target = min(found, key=lambda one: one[:3])
    return Nearest(target_name, recipe_name, targets.differences(target, host))


def _distance(target: Target, host: HostFacts) -> tuple[int, int, int, int]:
    node = target.node
    other = sum((node.accelerator or "") not in name for name in host.accelerators)
    if bool(node.accelerators) != bool(host.accelerators):
        other = max(len(host.accelerators), node.accelerators)
    return (
        other, abs(node.accelerators - len(host.accelerators)),
        len(set(node.cpu_flags) - set(host.cpu_flags)),
        abs((node.cores or host.cores) - host.cores),
    )


def sentences(recipe_name: str, hosts: list[HostFacts]) -> Iterator[str]:
    """Yield sentences on the most similar target and the predicted throughput of the machine.

    They help users for whose machine no recipe states an expected throughput. Nothing is yielded
    if `find` returns no target.

    Args:
        recipe_name: name of the recipe of the run.
        hosts: facts of the nodes of the run.

    Raises:
        UsageError: the recipe is unknown, or a definition has faults.
    """
    app = recipe_name.partition("/")[0]
    nearest = find(app, hosts[0]) if hosts else None
    if nearest is None:
        return
    difference = "; ".join(nearest.differences) or "no difference in the facts that are compared"
    yield (f"Nearest target with a reference of {app}: {nearest.target}"
           f" ({nearest.recipe}); this machine: {difference}.")
    text = _predicted(recipe_name, nearest, hosts)
    if text is not None:
        yield text


def _predicted(recipe_name: str, nearest: Nearest, hosts: list[HostFacts]) -> str | None:
    """Return a sentence with the throughput that is predicted for the machine, or None.

    The prediction assumes that the machine has accelerators of the nearest target's kind. Return
    None if the machine has no accelerators, because processors differ too much, or if a fact is
    missing.
    """
    count = len(hosts[0].accelerators)
    if not count:
        return None
    try:
        found = situation.of(recipe_name, nearest.target)
        device = found.hardware.device
        hardware = found.hardware.model_copy(
            update={"device": device.model_copy(update={"count": count})})
        plan = prediction.make(replace(found, hardware=hardware), [len(hosts)])
    except UsageError:
        return None  # a fact is missing; the nearest target alone helps, too
    (row,) = plan.rows
    nodes = f"{len(hosts)} node{'s' * (len(hosts) > 1)}"
    return (f"Predicted for {nodes} with {count} {device.name}: {found.rated(row.throughput)}"
            f" +-{plan.base.uncertainty:.0%}; not a reference, and not judged"
            f" (`trimaran plan {recipe_name} --target {nearest.target}`).")
