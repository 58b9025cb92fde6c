"""Check a page of each kind with axe-core: it must find no accessibility barrier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import nodemodules
from served import KINDS, Open, darken

RUN = "axe.run({selectors: false%s})"  # it fails to make one where a page changes meanwhile
ALL, COLOURS = "", ", runOnly: ['color-contrast', 'link-in-text-block']"
LOCK = Path(__file__).with_name("package-lock.json")

ON_PHONES = ("", "recipes/", "results/", "recipes/resnet-imagenet/cpu-quickstart/", "images/",
             "tutorials/cluster/")

@pytest.fixture(scope="module")
def axe() -> str:
    """Return the script of the locked version of axe-core."""
    return (nodemodules.installed(LOCK) / "node_modules/axe-core/axe.min.js").read_text()


def barriers(page: Page, rules: str = ALL) -> list[str]:
    """Return the accessibility barriers that axe-core finds in the current state of the page."""
    found: list[dict[str, Any]] = page.evaluate(RUN % rules)["violations"]
    return [f"{one['id']}: {node['html'][:200]}:"
            f" {node['any'][0]['message'] if node['any'] else ''}"
            for one in found for node in one["nodes"]]


@pytest.mark.parametrize("place", KINDS)
def test_no_barriers(visit: Open, axe: str, place: str) -> None:
    page = visit(place)
    page.evaluate(axe)
    light = barriers(page)
    darken(page)  # which changes colours, and nothing else
    assert (light, barriers(page, COLOURS)) == ([], [])


@pytest.mark.parametrize("place", ON_PHONES)
def test_no_barriers_on_a_phone(visit: Open, axe: str, place: str) -> None:
    page = visit(place, phone=True)
    page.evaluate(axe)
    assert barriers(page) == []
    page.locator(".md-header__button[for=__drawer]").click()  # a desk has the navigation beside it
    expect(page.locator(".md-nav--primary").first).to_be_in_viewport()
    page.wait_for_function("document.getAnimations().every(one => one.playState !== 'running')")
    assert barriers(page) == []


def test_a_barrier_is_found(visit: Open, axe: str) -> None:
    page = visit("")
    page.evaluate(axe)
    page.evaluate("document.querySelector('article').append(new Image())")
    assert [one.partition(":")[0] for one in barriers(page)] == ["image-alt"]


def test_a_weak_colour_is_found_in_the_dark(visit: Open, axe: str) -> None:
    page = visit("")
    page.evaluate(axe)
    darken(page)
    page.evaluate("document.querySelector('article h1').style.color = '#223'")
    assert [one.partition(":")[0] for one in barriers(page, COLOURS)] == ["color-contrast"]
