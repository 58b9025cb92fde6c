"""Compute the input rates and decoding cores that a predicted throughput needs.

Determine also whether reading or decoding would limit this throughput.
"""

from __future__ import annotations

from dataclasses import dataclass

from shards.description import DATASET
from trimaran.data import cache, contracts, dataset_json
from trimaran.plan.communication import LINK_SHARE
from trimaran.plan.situation import Situation
from trimaran.recipes.recipe import DataUse
from trimaran.recipes.targets import Target

TOKENS = 1 << 16
"""Largest vocabulary whose packed tokens have two bytes. Tokens of a larger vocabulary have four
bytes."""


@dataclass(frozen=True)
class Size:
    """The average size of a sample in bytes, and a description of where this number is from."""

    average: float
    source: str


@dataclass(frozen=True)
class Feed:
    """The input rates and decoding cores that the predicted throughput needs.

    Attributes:
        reads: whether the recipe reads data; False for synthetic data.
        samples: samples per second for each node.
        size: average size of a sample; None if neither the contract nor packed data state it.
        gigabytes: data rate for each node in GB/s; None if `size` is None.
        cores: cores of a node that decoding needs; None if no decoding rate was measured.
        cores_here: cores of a node; None if unknown, or if no decoding rate was measured.
        decoding: source of the decoding rate of a core.
        limits: descriptions of the limits of file system and network that the target states.
        binding: description of the limit that the input exceeds; None if it exceeds no known limit.
        encoded: whether samples must be decoded; False for tokens.
    """

    reads: bool
    samples: float
    size: Size | None = None
    gigabytes: float | None = None
    cores: float | None = None
    cores_here: int | None = None
    decoding: str | None = None
    limits: tuple[str, ...] = ()
    binding: str | None = None
    encoded: bool = True


def of(situation: Situation, nodes: int, throughput: float) -> Feed:
    """Return the input rates and decoding cores that `throughput` on `nodes` nodes needs.

    Args:
        situation: the recipe, its network and its target.
        nodes: number of nodes.
        throughput: predicted samples per second of all nodes together.
    """
    samples = throughput / nodes
    if not situation.recipe.data:
        return Feed(False, samples)
    (name, use), *_ = situation.recipe.data.items()
    size = sample_size(situation, name, use)
    gigabytes = None if size is None else samples * size.average / 1e9
    limits, slow = _limits(situation, nodes, gigabytes)
    decoding = situation.planning.decoding
    if decoding is None or name not in decoding.data:
        return Feed(True, samples, size, gigabytes, limits=limits, binding=slow,
                    encoded=not situation.planning.sequences)
    cores, here = samples / decoding.per_core, cores_of(situation)
    few = here is not None and cores > here
    binding = slow or (f"decoding ({cores:,.0f} cores of {here})" if few else None)
    return Feed(True, samples, size, gigabytes, cores, here, decoding.source, limits, binding)


def sample_size(situation: Situation, name: str, use: DataUse) -> Size | None:
    """Return the average size in bytes of a packed sample of a data set; None if it is unknown."""
    if situation.planning.sequences:
        vocabulary = situation.network.layers[-1].outputs
        return Size(2 if vocabulary <= TOKENS else 4, f"a token of a vocabulary of {vocabulary:,}")
    contract = contracts.load(name)
    folder = cache.folder(contract, use.format)
    if (folder / DATASET).is_file():
        packed = dataset_json.read(folder).splits.get("train")
        if packed is not None and packed.samples:
            return Size(sum(one.bytes for one in packed.shards) / packed.samples, "packed here")
    train = contract.splits.get("train")
    if train is None or train.gigabytes is None or not train.samples:
        return None
    return Size(train.gigabytes * 1e9 / train.samples, "as its publisher states")


def cores_of(situation: Situation) -> int | None:
    """Return the number of cores of a node, or None if it is not known.

    The target states the number. Otherwise, it is the number that the recipe requests, if the plan
    is for the recipe's own target.
    """
    target: Target = situation.target
    if target.node.cores is not None:
        return target.node.cores
    resources = situation.recipe.resources
    if situation.target_name != situation.recipe.target:
        return None
    return resources.tasks_per_node * resources.cpus_per_task


def _limits(
    situation: Situation, nodes: int, gigabytes: float | None
) -> tuple[tuple[str, ...], str | None]:
    """Return descriptions of the stated limits of file system and network, and the exceeded limit.

    The exceeded limit is None if the rate `gigabytes` (GB/s for each node) exceeds no limit.
    """
    hardware = situation.hardware
    rates: list[tuple[str, float]] = []
    if (storage := hardware.storage) is not None:
        if storage.node is not None:
            rates.append((f"{storage.name} gives a node {storage.node:g} GB/s", storage.node))
        if storage.whole is not None:
            share = storage.whole / nodes
            rates.append((f"{storage.name} gives {nodes} nodes {storage.whole:g} GB/s", share))
    elif hardware.between is not None:
        rate = LINK_SHARE * hardware.between.bandwidth
        rates.append((f"at most {rate:.3g} GB/s reach a node from others", rate))
    over = [text for text, rate in rates if gigabytes is not None and gigabytes > rate]
    known = [text for text, _ in rates]
    unknown = ["the target states no file system"] if storage is None else []
    return (*known, *unknown), f"storage ({over[0]})" if over else None
