"""Read the measurements of the app `collectives`, and report nodes that are slower than others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from trimaran import strict
from trimaran.doctor import findings, outliers
from trimaran.doctor.findings import Explained, Finding, Level
from trimaran.recipes.targets import Limit, Target

NAME = "qualification.json"
"""Name of the result file in the run directory; apps/collectives/README.md documents it."""

GROSS = 0.5
"""A value that is worse than the median by this fraction or more is a failure, not a warning."""

Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.#-]{0,253}$")]


class NodeRates(strict.Model):
    """The measured values of one node; the name of each value contains its unit."""

    name: Name
    ranks: list[Count] = Field(min_length=1)
    device: str
    threads: Count
    gemm_tflop_s: list[Rate]
    memory_gb_s: list[Rate]
    storage_read_gb_s: Rate | None
    storage_reads_other: bool
    import_first_s: Rate
    import_again_s: Rate | None
    all_reduce_gb_s: Rate | None
    faults: list[str]


class PairRate(strict.Model):
    """The bus bandwidth of an all-reduce over all ranks of two nodes, in GB/s."""

    nodes: Annotated[list[Name], Field(min_length=2, max_length=2)]
    all_reduce_gb_s: Rate


class Method(strict.Model):
    """The parameters of the measurement: sizes, data type and numbers of repetitions.

    A size is a number of bytes, except `gemm_order`, the number of rows of the square matrices.
    """

    gemm_order: Count
    gemm_dtype: str
    triad_bytes: Count
    storage_bytes: Count
    all_reduce_bytes: Count
    node_bytes: Count
    pair_bytes: Count
    rounds: Count
    all_rounds: Count


class Qualification(strict.Model):
    """The measurements of all nodes and pairs of nodes: the content of `qualification.json`."""

    schema_: Literal[1] = Field(alias="schema")
    date: str
    backend: str | None
    device: Literal["cpu", "cuda"]
    seconds: Rate
    method: Method
    nodes: list[NodeRates] = Field(min_length=1)
    all_reduce_gb_s: Rate | None
    pairs: list[PairRate]


def _explained(level: Level, meaning: str, remedy: str, tested: str) -> Explained:
    return Explained("measure", level, meaning, remedy, tested)


FINDINGS: dict[str, Explained] = {
    "qualification-gemm": _explained(
        "fail", "Each device multiplies matrices as fast as the others and as the target expects."
        " The slowest device delays every step of a training.",
        "look for other jobs on the node, power limits and throttling (`nvidia-smi -q -d"
        " PERFORMANCE,POWER`, `rocm-smi`), and the CPU governor; else exclude the node",
        "values of made-up nodes",
    ),
    "qualification-memory": _explained(
        "fail", "The memory of each device has the bandwidth of the others and of the target.",
        "look for other jobs on the node, missing memory modules (`dmidecode -t memory`), ECC"
        " errors (`nvidia-smi -q -d ECC`, `edac-util`) and the NUMA setting of the firmware",
        "values of made-up nodes",
    ),
    "qualification-node": _explained(
        "fail", "An all-reduce over the devices of a node is as fast as on the other nodes and as"
        " the target expects.",
        "look at the links between the devices (`nvidia-smi nvlink -s`, `nvidia-smi topo -m`,"
        " `rocm-smi --showtopo`) and at their log lines in `dmesg`",
        "values of made-up nodes",
    ),
    "qualification-pair": _explained(
        "fail", "All-reduces between a node and the other nodes are as fast as between those.",
        "look at the cable, the port and its error counters (`ibqueryerrors`, `ethtool -S`),"
        " priority flow control (PFC) for RoCE, and the rate of the link (`ibstat`)",
        "values of made-up nodes",
    ),
    "qualification-all-reduce": _explained(
        "fail", "An all-reduce over all ranks has the bandwidth that the target expects.",
        "look at the pairs; if all are even, look at the fabric and the settings of its library",
        "values of made-up nodes",
    ),
    "qualification-storage": _explained(
        "fail", "Each node reads the folder of the run as fast as the others.",
        "look at the mount of the file system on the node (`mount`, `lfs check servers`), its"
        " network, and other jobs that read",
        "values of made-up nodes",
    ),
    "qualification-import": _explained(
        "warn", "Each node imports the framework from the image as fast as the others.",
        "copy the image to the disk of the node (`local_storage` in the site file), and look at"
        " the file system of the image",
        "values of made-up nodes",
    ),
    "qualification-hang": _explained(
        "fail", "The measurement ends in time on all nodes. A hanging node lets a training hang.",
        "exclude the node and report it; its log lines are in `dmesg`, those of the job in log.txt",
        "a rank that is really stopped (SIGSTOP)",
    ),
    "qualification-failed": _explained(
        "fail", "The measurement ends with a result.",
        "the cause has the error of the measurement and its log; repeat it when this is mended",
        "a log with an error that no hanging rank causes",
    ),
    "qualification-expired": _explained(
        "warn", "The last qualification of the cluster's nodes is not older than its validity, and"
        " all nodes were alike.",
        "exclude the nodes that are out of line, or repeat the measurement: trimaran doctor RECIPE"
        " --cluster NAME --nodes N --measure",
        "evidence with an old date, and with a slow node",
    ),
}


@dataclass(frozen=True)
class Quantity:
    """A measured quantity, such as memory bandwidth, and how its values are judged.

    Attributes:
        id: ID of the finding about the quantity.
        what: name of the quantity in messages.
        unit: unit of the values.
        least: smallest relevant deviation from the median, as a fraction of the median. For storage
            and imports, it is larger, because they use servers that other jobs use, too.
        lower: True: low values are bad; False: high values are bad.
        gross: whether a value that is worse than the median by `GROSS` or more is a failure.
    """

    id: str
    what: str
    unit: str
    least: float
    lower: bool = True
    gross: bool = True


GEMM = Quantity("qualification-gemm", "matrix product", "TFLOP/s", 0.05)
MEMORY = Quantity("qualification-memory", "memory bandwidth", "GB/s", 0.05)
INSIDE = Quantity("qualification-node", "all-reduce within the node", "GB/s", 0.1)
PAIR = Quantity("qualification-pair", "all-reduce with other nodes", "GB/s", 0.1)
STORAGE = Quantity("qualification-storage", "read", "GB/s", 0.3, gross=False)
IMPORT = Quantity("qualification-import", "first import", "s", 0.3, lower=False, gross=False)

Found = dict[str, list[Finding]]
"""A dictionary that maps the name of a node to the findings of this node."""


def judge(measured: Qualification, target: Target | None) -> Found:
    """Compare each node with the other nodes and with the target, and return the findings."""
    nodes, found = measured.nodes, {node.name: list[Finding]() for node in measured.nodes}
    kind = f"gemm-{measured.method.gemm_dtype}"
    _join(found, _devices(GEMM, nodes, lambda node: node.gemm_tflop_s, _limit(target, kind)))
    _join(found, _devices(MEMORY, nodes, lambda node: node.memory_gb_s, _limit(target, "memory")))
    _join(found, _single(INSIDE, nodes, lambda node: node.all_reduce_gb_s, _limit(
        target, "all-reduce-node", measured.method.node_bytes or measured.method.all_reduce_bytes)))
    _join(found, _pairs(measured))
    _join(found, _whole(measured, target))
    _join(found, _single(STORAGE, nodes, lambda node: node.storage_read_gb_s, None))
    _join(found, _single(IMPORT, nodes, lambda node: node.import_first_s, None))
    for node in nodes:
        if node.import_again_s is None:
            found[node.name] = [one for one in found[node.name] if one.id != IMPORT.id] + [
                _finding(IMPORT.id, "warn", f"first import {_value(IMPORT, node.import_first_s)}; a"
                         " new process could not import the framework in time")
            ]
        if node.faults:
            found[node.name] = [one for one in found[node.name] if one.id != STORAGE.id] + [
                _finding(STORAGE.id, "fail", "; ".join(node.faults))
            ]
    return found


def _finding(identifier: str, level: Level, cause: str) -> Finding:
    return findings.found(FINDINGS, identifier, level, cause)


def _join(found: Found, more: Mapping[str, Finding]) -> None:
    for node, finding in more.items():
        found[node].append(finding)


def _limit(target: Target | None, name: str, size: int | None = None) -> Limit | None:
    """Return the target's limits for the quantity `name`; None if the target states none.

    `size` is the size of the measured all-reduce in bytes. Limits for another size are ignored.
    """
    limit = target.qualification.get(name) if target is not None else None  # type: ignore[call-overload]
    return limit if limit is not None and limit.bytes in (None, size) else None


def _single(
    quantity: Quantity, nodes: Iterable[NodeRates], value: Callable[[NodeRates], float | None],
    limit: Limit | None,
) -> dict[str, Finding]:
    """Judge a quantity with one value per node: compare the nodes with each other and with `limit`.

    Return one finding for each node with a value.
    """
    values = {node.name: [one] for node in nodes if (one := value(node)) is not None}
    return _compared(quantity, values, limit)


def _devices(
    quantity: Quantity, nodes: Iterable[NodeRates], values: Callable[[NodeRates], Sequence[float]],
    limit: Limit | None,
) -> dict[str, Finding]:
    """Judge a quantity with one value per device: compare all devices with each other and `limit`.

    Return one finding for each node with a value.
    """
    return _compared(quantity, {node.name: list(values(node)) for node in nodes}, limit)


def _compared(
    quantity: Quantity, values: Mapping[str, Sequence[float]], limit: Limit | None
) -> dict[str, Finding]:
    each = {(node, number): one for node, own in values.items() for number, one in enumerate(own)}
    if not each:
        return {}
    out = outliers.worse(each, quantity.least, lower=quantity.lower)
    middle = median(each.values())
    found = {}
    for node, own in values.items():
        if not own:
            continue
        bad = {number: out[node, number] for number in range(len(own)) if (node, number) in out}
        worst = min(own) if quantity.lower else max(own)
        texts, levels = [], list[Level]()
        for number, deviation in bad.items():
            place = f"device {number}: " if len(own) > 1 else ""
            texts.append(f"{place}{_value(quantity, own[number])}, {_by(deviation, len(each))}")
            levels.append(_level(quantity, deviation))
        text = "; ".join(texts) or _value(quantity, worst)
        others = f", median of {len(each)}: {_value(quantity, middle)}" if len(each) > 2 else ""
        expected, level = _against(limit, worst, quantity)
        cause = f"{quantity.what} {text}{others}{expected}"
        found[node] = _finding(quantity.id, _worst([*levels, level]), cause)
    return found


def _value(quantity: Quantity, value: float) -> str:
    return f"{value:.3g} {quantity.unit}" if value < 1000 else f"{value:.0f} {quantity.unit}"


def _by(deviation: float, count: int) -> str:
    what = "than the other" if count == 2 else "than the median"
    return f"{abs(deviation):.0%} {'lower' if deviation < 0 else 'higher'} {what}"


def _level(quantity: Quantity, deviation: float) -> Level:
    return "fail" if quantity.gross and deviation <= -GROSS else "warn"


def _worst(levels: Sequence[Level]) -> Level:
    return next((level for level in ("fail", "warn") if level in levels), "ok")


def _against(limit: Limit | None, value: float, quantity: Quantity) -> tuple[str, Level]:
    """Compare a measured value with the limits that the target, a hardware description, states.

    Return a text that is appended to the finding, and a level: ok, warn or fail. Without
    limits, the text is empty and the level is ok.
    """
    if limit is None:
        return "", "ok"
    level: Level = "ok"
    if value < limit.fail_below:
        level = "fail"
    elif value < limit.warn_below:
        level = "warn"
    word = {"ok": "Expected", "warn": "Warn", "fail": "Fail"}[level]
    return (f"; target: {word} (expected {limit.value:g}, warn below {limit.warn_below:g}, fail"
            f" below {limit.fail_below:g} {quantity.unit})"), level


def _pairs(measured: Qualification) -> dict[str, Finding]:
    """Return one finding for each node about the all-reduces between pairs of nodes.

    A node is at fault if the median bandwidth of all pairs with this node is too low. If neither
    node of a slow pair is at fault, the findings of both nodes name the pair.
    """
    pairs = {(one.nodes[0], one.nodes[1]): one.all_reduce_gb_s for one in measured.pairs}
    if not pairs:
        return {}
    nodes, single = outliers.of_pairs(pairs, PAIR.least)
    middle = median(pairs.values())
    known = f"median of {len(pairs)} pairs: {_value(PAIR, middle)}"
    found = {}
    for name in {name for pair in pairs for name in pair}:
        own = median(value for pair, value in pairs.items() if name in pair)
        if name in nodes:
            found[name] = _finding(PAIR.id, _level(PAIR, nodes[name]), f"{PAIR.what}"
                                   f" {_value(PAIR, own)}, {_by(nodes[name], 3)}, {known}")
            continue
        slow = {pair: by for pair, by in single.items() if name in pair}
        if slow:
            text = ", ".join(f"{pair[0]} with {pair[1]} {_value(PAIR, pairs[pair])}"
                             for pair in slow)
            found[name] = _finding(PAIR.id, _worst([_level(PAIR, by) for by in slow.values()]),
                                   f"all-reduce of {text}, {known}: one of the ends, or the way"
                                   " between them")
        else:
            found[name] = _finding(PAIR.id, "ok", f"{PAIR.what} {_value(PAIR, own)}, {known}")
    return found


def _whole(measured: Qualification, target: Target | None) -> dict[str, Finding]:
    """Compare the bandwidth of the all-reduce over all nodes with the target's limit.

    Return the same finding for each node.
    """
    if measured.all_reduce_gb_s is None or len(measured.nodes) < 2:
        return {}
    limit = _limit(target, "all-reduce", measured.method.all_reduce_bytes)
    whole = Quantity("qualification-all-reduce", "all-reduce over all ranks", "GB/s", 0.1)
    text, level = _against(limit, measured.all_reduce_gb_s, whole)
    cause = f"{whole.what} {_value(whole, measured.all_reduce_gb_s)}{text}"
    return {node.name: _finding(whole.id, level, cause) for node in measured.nodes}
