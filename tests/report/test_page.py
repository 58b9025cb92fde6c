"""Tests of pages: one file that loads nothing else, with all foreign text escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from finished import SIF, chain, finish
from samples import GOOD
from trimaran.recipes import library
from trimaran.recipes.library import RecipeFile
from trimaran.report import page, report

HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</style><svg onload=alert(1)>",
    "\u202egnp.exe", "a|b`c`*d*_e_", "[a](http://a.example)", "{{ 7 * 7 }}", "]]>", "<!--", "&lt;",
    "```\n# heading", "\x1b[31mred", "\u2028line",
]


class Found(HTMLParser):
    """A parser that collects the tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def judged(directory: Path, environment: Any = None) -> str:
    """Return the page of a run with given texts of host, image and app."""
    record = json.loads((directory / "run.json").read_text())
    record["host"] |= dict(zip(("hostname", "os", "kernel", "processor"), HOSTILE, strict=False))
    record["host"]["cpu_flags"] = HOSTILE
    record["environment"] = environment
    (directory / "run.json").write_text(json.dumps(record))
    report.write(directory)
    return (directory / "report.html").read_text()


@pytest.fixture
def hostile_page(checkout: Path, own_place: Path) -> str:
    """Return the report of a run in which all foreign text is hostile."""
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir()
    expected = [{**GOOD["expected"][0], "source": " ".join(HOSTILE[:9])}]
    path.write_text(yaml.safe_dump(
        {**GOOD, "summary": " ".join(HOSTILE[:9]), "expected": expected}
    ))
    recipe = library.load("resnet-imagenet/cpu-smoke")
    changed: dict[str, Any] = {f"option-{number}": text for number, text in enumerate(HOSTILE)}
    finish(own_place / "run", recipe, changed=changed, image=SIF)
    return judged(own_place / "run", {text: {text: HOSTILE} for text in HOSTILE})


def test_nothing_that_others_wrote_is_more_than_text(hostile_page: str) -> None:
    found = Found(hostile_page)
    assert found.tags.count("script") == found.tags.count("style") == 1
    assert not {"img", "iframe", "object", "base", "form"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert "\u202e" not in hostile_page
    assert "{{ 7 * 7 }}" in hostile_page


def test_nothing_in_the_page_leads_out_of_it(hostile_page: str) -> None:
    found = Found(hostile_page)
    leads = [value for name, value in found.attributes if name in {"href", "src", "action", "data"}]
    assert leads == ["data:,"]
    assert not re.search(r"url\(|@import", hostile_page)


def test_the_policy_allows_the_pages_own_style_and_script_and_no_others(hostile_page: str) -> None:
    policy = re.search(r'Security-Policy" content="([^"]*)"', hostile_page)
    assert policy is not None
    rules = policy[1].replace("&#39;", "'")
    assert rules.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", hostile_page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in rules
    assert "unsafe" not in rules
    assert "style" not in [name for name, _ in Found(hostile_page).attributes]


def test_markdown_is_no_markup_either(hostile_page: str, own_place: Path) -> None:
    text = (own_place / "run/report.md").read_text()
    # Of a block of code only its own end is left.
    prose = re.sub(r"^(`{3,})sh\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<!\\)<(script|img|svg|!--)", prose)
    assert not re.search(r"(?<!\\)\]\(http", prose)
    assert "\n# heading" not in prose
    assert "\u202e" not in text
    assert "\x1b" not in text


def test_a_report_is_light(recipe: RecipeFile, own_place: Path) -> None:
    finish(own_place / "run", recipe)
    report.write(own_place / "run")
    assert (own_place / "run/report.html").stat().st_size < 60_000


def test_a_block_of_code_cannot_end_itself() -> None:
    assert page._fenced("a```b") == "````sh\na```b\n````"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5.25, "5.2 s"), (59.99, "60.0 s"), (61.0, "1 min 1 s"), (3600.0, "1:00:00"),
     (1e300, "1e+300 s")],
)
def test_durations_are_said_as_people_do(seconds: float, text: str) -> None:
    assert page.duration(seconds) == text


def test_the_links_of_a_chain_are_a_table(checkout: Path, own_place: Path) -> None:
    directory = own_place / "run"
    chain(directory, checkout)
    assert report.write(directory)[1].outcome == "PASS"
    text = (directory / "report.md").read_text()
    assert "| link | job | nodes | from step | to step | why it ended |" in text
    assert "| 1 | 41 | 2 (n1, n\\<2\\>) | 0 | 2 | its time was over |" in text
    assert "| 2 | 42 | 2 (n1, n\\<2\\>) | 2 | 3 | it came to its end |" in text
    html = (directory / "report.html").read_text()
    assert "Links of the chain" in html
    assert "2 (n1, n&lt;2&gt;)" in html
