"""Use the pages of reports and comparisons in a real browser in the same way as a reader does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

import comparable
import nodemodules
import variantapp
from trimaran.compare import comparison
from trimaran.compare import explain as comparison_page
from trimaran.recipes.library import RecipeFile
from trimaran.report import report

LOCK = Path(__file__).with_name("package-lock.json")
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1200, "height": 900}
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"

Look = Callable[..., Page]
"""A function that opens an HTML report in a browser.

    The keywords `dark`, `phone` and `scripts` set colour scheme, screen size and JavaScript."""

kinds = pytest.mark.parametrize("kind", ["report", "comparison", "variants"])
colours = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])


@pytest.fixture
def files(recipe: RecipeFile, checkout: Path, own_place: Path) -> dict[str, Path]:
    """Write a report and comparisons of runs whose host names contain markup.

    Returns:
        Kind of page -> path.
    """
    speeds = comparable.noise(1, 1000, count=200)
    scores = [1 - 0.85**step for step in range(1, 21)]
    runs = [
        comparable.leave(own_place / name, recipe, scores, speeds, size, None, changed)
        for name, size, changed in (("a", 1, {}), ("b", 2, {"epochs": 2}), ("c", 2, {"seed": 3}))
    ]
    record = json.loads((runs[0] / "run.json").read_text())
    record["host"] |= {"hostname": HOSTILE, "processor": HOSTILE}
    record["environment"] = {HOSTILE: HOSTILE, "packages": {"torch": "2.13.0"}}
    (runs[0] / "run.json").write_text(json.dumps(record))
    report.write(runs[0])
    page = own_place / "comparison.html"
    page.write_text(comparison_page.render(*comparison.compare(runs)))
    variants = own_place / "variants.html"
    variants.write_text(comparison_page.render(*comparison.compare(boats(checkout, own_place))))
    return {"report": runs[0] / "report.html", "comparison": page, "variants": variants}


def boats(checkout: Path, own_place: Path) -> list[Path]:
    """Create a run of each of two variants of a made-up app, and return their directories."""
    variantapp.write(checkout)
    return [
        variantapp.leave(own_place / rig, variantapp.recipe(checkout, f"cpu-2core-{rig}-smoke",
                         rig=rig), (0.5, 0.6, 0.7), (99, lap, lap), sent=1e6)
        for rig, lap in (("sloop", 40), ("ketch", 25))
    ]


@pytest.fixture
def look(browser: Browser, files: dict[str, Path]) -> Iterator[Look]:
    """Return a function that opens a page; afterwards check for errors and for network requests."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def open_page(
        kind: str, *, dark: bool = False, phone: bool = False, scripts: bool = True
    ) -> Page:
        context = browser.new_context(
            viewport=PHONE if phone else DESK, color_scheme="dark" if dark else "light",
            has_touch=phone, is_mobile=phone, java_script_enabled=scripts,
        )
        contexts.append(context)
        page, address = context.new_page(), files[kind].as_uri()
        page.on("console", lambda said: faults.append(said.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"says {dialog.message}"))
        page.on("request", lambda asked: None if asked.url in (address, "data:,")
                else faults.append(f"leaves the file: {asked.url}"))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


@kinds
@colours
def test_a_page_fits_a_phone(look: Look, kind: str, dark: bool) -> None:
    page = look(kind, phone=True, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for part in page.locator(":is(table, .chart, pre):visible").all():
        box = part.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]


@kinds
@colours
@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def test_no_barriers(look: Look, kind: str, dark: bool, phone: bool) -> None:
    page = look(kind, dark=dark, phone=phone)
    page.evaluate((nodemodules.installed(LOCK) / "node_modules/axe-core/axe.min.js").read_text())
    found: list[dict[str, Any]] = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], node["html"][:200]) for one in found for node in one["nodes"]] == []


@kinds
def test_the_colours_are_those_of_the_system(look: Look, kind: str) -> None:
    def ground(dark: bool) -> int:
        page = look(kind, dark=dark)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour[4:-1].split(","))

    assert ground(dark=True) < 150 < 700 < ground(dark=False)


@kinds
def test_lines_stand_out_on_dark_pages_and_on_paper(look: Look, kind: str) -> None:
    page = look(kind, dark=True)
    stroke = "getComputedStyle(document.querySelector('.line.c0 path')).stroke"
    assert page.evaluate(stroke) == "rgb(86, 180, 233)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(stroke) == "rgb(0, 114, 178)"


@kinds
@colours
def test_on_paper_it_is_dark_on_white_without_what_cannot_be_pressed(
    look: Look, kind: str, dark: bool
) -> None:
    page = look(kind, dark=dark)
    page.emulate_media(media="print", color_scheme="dark" if dark else "light")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    expect(page.locator("body > header")).to_be_hidden()
    expect(page.locator(".over")).to_be_hidden()
    expect(page.locator(".chart.by-steps svg[data-scale]").first).to_be_visible()
    assert len(page.pdf(format="A4")) > 10_000


def test_the_verdict_comes_first(look: Look) -> None:
    page = look("report", phone=True)
    box = page.locator(".verdict").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < PHONE["height"]
    expect(page.locator(".verdict")).to_contain_text("The run reached what the recipe expects.")


def test_a_pointer_shows_values(look: Look) -> None:
    page = look("report")
    chart = page.locator(".chart.by-steps", has_text="evaluation top-1, %")
    box = chart.locator("svg[data-scale]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 215 / 400, box["y"] + box["height"] / 2)
    expect(chart.locator(".read")).to_have_text("step 100")
    expect(chart.locator(".legend b")).to_have_text("80.313")  # 1 - 0.85^10
    expect(chart.locator(".dot.shown")).to_have_count(1)
    page.mouse.move(0, 0)
    expect(chart.locator(".read")).to_have_text("")


def test_keys_show_values_and_tell_them(look: Look) -> None:
    page = look("report")
    chart = page.locator(".chart.by-steps", has_text="evaluation top-1, %")
    slider = chart.get_by_role("slider")
    slider.focus()
    for key, step in (("ArrowRight", 10), ("ArrowRight", 20), ("End", 200), ("ArrowLeft", 190),
                      ("Home", 10), ("PageUp", 110)):
        page.keyboard.press(key)
        expect(chart.locator(".read")).to_have_text(f"step {step}")
    expect(slider).to_have_attribute("aria-valuetext", "step 110: val_top1 83.266")


def test_a_touch_shows_values(look: Look) -> None:
    page = look("report", phone=True)
    chart = page.locator(".chart.by-steps", has_text="throughput, img/s")
    chart.locator("svg[data-scale]").tap()
    expect(chart.locator(".read")).to_contain_text("step ")


def test_a_name_hides_its_line(look: Look) -> None:
    page = look("comparison")
    chart = page.locator(".chart.by-steps", has_text="val_top1, %")
    line, name = chart.locator(".line").nth(1), chart.get_by_role("button", name="B")
    expect(line).to_be_visible()
    name.click()
    expect(line).to_be_hidden()
    expect(name).to_have_attribute("aria-pressed", "false")
    chart.get_by_role("slider").focus()
    page.keyboard.press("End")
    expect(chart.locator(".legend li").nth(1).locator("b")).to_have_text("")
    name.press("Enter")
    expect(line).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False])
def test_steps_and_time_can_be_changed(look: Look, scripts: bool) -> None:
    page = look("report", scripts=scripts)
    by_steps, by_time = page.locator(".by-steps").first, page.locator(".by-time").first
    expect(by_steps).to_be_visible()
    expect(by_time).to_be_hidden()
    page.get_by_label("time since the start").check()
    expect(by_steps).to_be_hidden()
    expect(by_time).to_be_visible()


@kinds
def test_without_scripts_the_curves_are_pictures_with_words(look: Look, kind: str) -> None:
    page = look(kind, scripts=False)
    picture = page.locator(".by-steps svg[role=img]").first
    expect(picture).to_be_visible()
    assert "over steps: " in str(picture.get_attribute("aria-label"))
    expect(page.locator(".legend button")).to_have_count(0)
