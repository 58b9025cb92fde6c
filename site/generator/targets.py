"""Generate the page with the hardware facts of all targets, and their sources.

A fact can have the mark "assumed" or "not checked".
"""

from __future__ import annotations

from collections.abc import Iterator

from generator import markdown
from generator.pages import Page, fill
from trimaran.recipes import targets
from trimaran.recipes.hardware import Hardware, Link

PLACE = "reference/targets.md"

HEAD = ("fact", "value", "mark")


def page() -> Page:
    """Return the page: for each target, a table of hardware facts, and their sources.

    The table marks each fact that is assumed or was not checked, and states the reason.
    """
    known = {name: targets.load(name) for name in targets.names()}
    parts = [
        (name, target.summary, markdown.table(HEAD, _rows(target.hardware)),
         target.hardware.sources)
        for name, target in known.items() if target.hardware is not None
    ]
    return Page(PLACE, fill("targets.md.j2", PLACE, parts=parts), "Hardware facts")


def _rows(hardware: Hardware) -> Iterator[list[str]]:
    for path, text in _facts(hardware):
        yield [f"`{path}`", text, _mark(hardware, path)]


def _facts(hardware: Hardware) -> Iterator[tuple[str, str]]:
    device = hardware.device
    yield "device", f"{device.count} x {device.name}"
    peaks = ", ".join(f"{name} {peak:,.10g}" for name, peak in device.teraflops.items())
    yield "device.teraflops", f"{peaks} TFLOP/s"
    if device.memory_gb is not None:
        yield "device.memory_gb", f"{device.memory_gb:,.10g} GB"
    yield "device.bandwidth", f"{device.bandwidth:,.10g} GB/s"
    if device.watts is not None:
        yield "device.watts", f"{device.watts:,.10g} W"
    for name, link in (("within", hardware.within), ("between", hardware.between)):
        if link is not None:
            yield name, _link(link)


def _link(link: Link) -> str:
    latency = "" if link.latency is None else f", {link.latency:g} microseconds"
    return f"{link.name}: {link.bandwidth:,.10g} GB/s in each direction{latency}"


def _mark(hardware: Hardware, path: str) -> str:
    """Return the marks of a fact, and of the keys in its row, with their reasons, as text.

    A mark is "assumed" or "not checked". `path` is the path of the fact in the target's file,
    such as `device.count`.
    """
    marks = []
    for word, marked in (("assumed", hardware.assumed), ("not checked", hardware.unchecked)):
        marks += [
            f"{key.removeprefix(path).removeprefix('.')} {word}: {reason}".lstrip()
            for key, reason in marked.items() if _concerns(key, path)
        ]
    return "; ".join(marks)


def _concerns(key: str, path: str) -> bool:
    """Return whether the remark about the value at `key` belongs to the table row of `path`.

    Both are key paths in the target's file, such as `device.count`. The remark says that the value
    is assumed or not checked.
    """
    if path == "device":  # most of its parts have rows of their own
        return key in ("device", "device.name", "device.count")
    return path == key or key.startswith(f"{path}.")
