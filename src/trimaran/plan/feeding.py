"""Compute what the input must deliver: samples, bytes and decoding cores, and whether it binds."""

from __future__ import annotations

from dataclasses import dataclass

from shards.description import DATASET
from trimaran.data import cache, contracts, dataset_json
from trimaran.plan.communication import LINK_SHARE
from trimaran.plan.situation import Situation
from trimaran.recipes.recipe import DataUse
from trimaran.recipes.targets import Target

TOKENS = 1 << 16
"""Largest vocabulary whose packed tokens have two bytes; tokens of a larger one have four."""


@dataclass(frozen=True)
class Size:
    """Average bytes of a sample, and where the number is from."""

    average: float
    source: str


@dataclass(frozen=True)
class Feed:
    """What the input must deliver for the predicted throughput of a number of nodes.

    Attributes:
        reads: whether the recipe reads data; a recipe with synthetic data does not.
        samples: samples per second of a node.
        size: bytes of a sample; None if neither contract nor packed data state them.
        gigabytes: bytes per second of a node, in GB/s; None if `size` is.
        cores: cores of a node that decode the samples; None if no rate is measured.
        cores_here: cores of a node that the recipe requests.
        decoding: origin of the rate of a core.
        limits: what the target states of file system and network, in words.
        binding: what the input exceeds, in words; None if it exceeds nothing that is known.
        encoded: whether samples are decoded; tokens are not.
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
    """Return what the input of `nodes` nodes must deliver.

    Args:
        situation: the recipe, its network and its target.
        nodes: number of nodes.
        throughput: samples per second of all nodes.
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
    """Return the average bytes of a packed sample of a data set; None if they are unknown."""
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
    """Return the cores of a node: those of the target, or those that the recipe requests there."""
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
    """Return what the target states of file system and network, and which of them binds."""
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
