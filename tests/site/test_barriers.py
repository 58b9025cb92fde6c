"""axe-core over a page of each kind: no barrier that it knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nodemodules
from served import KINDS, Open

RUN = "axe.run({selectors: false})"  # it fails to make one where a page changes meanwhile
LOCK = Path(__file__).with_name("package-lock.json")

@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core, as it is locked."""
    return (nodemodules.installed(LOCK) / "node_modules/axe-core/axe.min.js").read_text()


@pytest.mark.parametrize("place", KINDS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_barriers(visit: Open, axe: str, place: str, dark: bool) -> None:
    page = visit(place, dark=dark)
    page.evaluate(axe)
    found: list[dict[str, Any]] = page.evaluate(RUN)["violations"]
    said = [f"{one['id']}: {node['html'][:200]}: {node['any'][0]['message'] if node['any'] else ''}"
            for one in found for node in one["nodes"]]
    assert said == [], "\n".join(said)


def test_a_barrier_is_found(visit: Open, axe: str) -> None:
    page = visit("")
    page.evaluate(axe)
    page.evaluate("document.querySelector('article').append(new Image())")
    assert [one["id"] for one in page.evaluate(RUN)["violations"]] == ["image-alt"]
