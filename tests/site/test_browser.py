"""Use the site in a real browser in the same way as a reader does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from served import KINDS, Open, darken
from trimaran.engines.apptainer import Apptainer
from trimaran.recipes import library
from trimaran.run import pipeline
from trimaran.run.request import Request


@pytest.mark.parametrize("place", KINDS)
def test_a_page_fits_a_phone_its_pictures_have_words_and_nothing_goes_wrong(
    visit: Open, place: str
) -> None:
    page = visit(place, phone=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("getComputedStyle(document.body).overflowX") != "hidden"
    darken(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for picture in page.locator("article img").all():
        assert len(picture.get_attribute("alt") or "") > 8, picture.get_attribute("src")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_way_is_read_on_a_phone_from_top_to_bottom(visit: Open, dark: bool) -> None:
    """On a phone, the home page shows the narrow version of the workflow diagram.

    It is 360 pixels wide, with letters of 13 pixels. The version for desktop screens has a width of
    1,040 pixels.
    """
    picture = visit(phone=True, dark=dark).locator(".hero img:visible")
    shown = picture.evaluate("one => [one.currentSrc.split('/').pop(), one.clientWidth]")
    assert shown[0] == f"way-tall-{'dark' if dark else 'light'}.svg"
    assert shown[1] >= 350


@pytest.mark.parametrize("place", KINDS)
def test_tables_fit_a_desk(visit: Open, place: str) -> None:
    """No table needs sideways scrolling on a desktop screen.

    Readers would not scroll sideways to the last column, which often contains the source.
    """
    page = visit(place)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    widths = page.locator(".md-typeset__scrollwrap").evaluate_all(
        "found => found.map(one => [one.innerText.slice(0, 60), one.scrollWidth, one.clientWidth])")
    assert [one for one in widths if one[1] > one[2]] == []


def test_the_filter_shows_what_was_asked_for_and_can_be_linked(visit: Open) -> None:
    page = visit("recipes/")
    shown = page.locator("#recipes > .card:visible")
    everything = shown.count()
    assert everything == len(library.names())
    page.get_by_label("hardware").select_option("V100")
    assert 0 < shown.count() < everything
    assert {card.get_attribute("data-hardware") for card in shown.all()} == {"V100"}
    page.get_by_label("purpose").select_option("throughput")
    names = shown.locator("strong:first-of-type").all_inner_texts()
    assert any("v100x1-throughput" in name for name in names)
    expect(page.locator("#filter-count")).to_have_text(str(shown.count()))
    assert page.url.endswith("?hardware=V100&purpose=throughput")
    page.reload()
    assert {card.get_attribute("data-hardware") for card in shown.all()} == {"V100"}
    page.get_by_label("status").select_option("reproduced")
    expect(page.locator("#nothing")).to_be_visible()
    page.get_by_role("button", name="show all").click()
    expect(shown).to_have_count(everything)


def test_the_filter_takes_words(visit: Open) -> None:
    page = visit("recipes/")
    shown = page.locator("#recipes > .card:visible")
    everything, wanted = shown.count(), shown.filter(has_text="brain tumours").count()
    assert 0 < wanted < everything
    page.get_by_label("contains").fill("brain tumours")
    expect(shown).to_have_count(wanted)
    expect(shown.filter(has_text="brain tumours")).to_have_count(wanted)


def test_a_newcomer_finds_in_three_clicks_what_a_v100_gives_and_how_to_check_it(
    visit: Open,
) -> None:
    page = visit()
    page.get_by_role("link", name="Results for V100, A100 and P100").click()           # 1
    page.get_by_label("hardware").select_option("V100")                                # 2
    page.get_by_role("link", name="resnet-imagenet v100x1-throughput", exact=True).click()  # 3
    page.wait_for_url("**/recipes/resnet-imagenet/v100x1-throughput/")
    expect(page.get_by_role("cell", name="1,200 img/s", exact=True)).to_be_visible()
    expect(page.get_by_text("NVIDIA DeepLearningExamples (2021)").first).to_be_visible()
    command = page.get_by_text("trimaran run resnet-imagenet/v100x1-throughput", exact=True)
    expect(command.first).to_be_visible()


def test_the_copy_button_copies_the_exact_command(visit: Open) -> None:
    page = visit("recipes/resnet-imagenet/cpu-quickstart/")
    assert copied(page, "trimaran run") == "trimaran run resnet-imagenet/cpu-quickstart"
    page.get_by_text("On a cluster", exact=True).first.click()
    assert copied(page, "trimaran submit") == (
        "RUN=$(trimaran submit resnet-imagenet/cpu-quickstart)")
    page.get_by_text("Apptainer alone", exact=True).first.click()
    whole = copied(page, "apptainer")
    assert "--momentum=0.9" in whole
    assert whole == page.locator(".highlight:visible code").first.inner_text().rstrip()


def copied(page: Page, title: str) -> str:
    """Press the button of the visible block with this title, and return the copied text."""
    block = page.locator(".highlight:visible", has=page.get_by_text(title, exact=True)).first
    block.hover()
    block.get_by_role("button").click()
    page.wait_for_function("navigator.clipboard.readText().then(text => text.length > 0)")
    return str(page.evaluate("navigator.clipboard.readText()")).rstrip()


@pytest.mark.parametrize("place", ["results/throughput/", "results/scaling/",
                                   "results/benchmarks/", "results/accuracy/",
                                   "recipes/resnet-imagenet/gtx1080ti-x4-scaling/"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_plots_are_drawn_in_the_colours_of_the_page(visit: Open, place: str, dark: bool) -> None:
    page = visit(place, dark=dark)
    figures = page.locator("figure.plot")
    assert figures.count() > 0
    expect(page.locator("figure.plot .chart > svg:visible")).to_have_count(figures.count())
    assert page.locator("figure.plot :is(.line path, .line circle, .sign):visible").count() > 2
    assert label_colour(page) == ("rgb(180, 190, 200)" if dark else "rgb(74, 85, 98)")
    for figure in figures.all():
        width = figure.evaluate("one => [one.scrollWidth, one.clientWidth]")
        assert width[0] <= width[1]


def label_colour(page: Page) -> str:
    """Return the colour of the first label of an axis."""
    label = page.locator("figure.plot .x text:visible").first
    return str(label.evaluate("one => getComputedStyle(one).fill"))


@pytest.mark.parametrize("place", ["results/", "results/throughput/", "results/scaling/",
                                   "results/benchmarks/", "results/accuracy/"])
@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def test_texts_of_a_plot_are_large_enough_and_do_not_touch(
    visit: Open, place: str, phone: bool
) -> None:
    page = visit(place, phone=phone)
    for axis in page.locator("figure.plot .chart > svg:visible :is(.x, .y)").all():
        boxes = axis.locator("text").evaluate_all(
            "all => all.map(one => { const { left, right, top, bottom, height } ="
            " one.getBoundingClientRect(); return { left, right, top, bottom, height }; })")
        assert all(box["height"] >= 12 for box in boxes)
        for at, one in enumerate(boxes):
            for other in boxes[at + 1:]:
                assert (one["right"] <= other["left"] or other["right"] <= one["left"]
                        or one["bottom"] <= other["top"] + 2 or other["bottom"] <= one["top"] + 2)
    outside = page.locator("figure.plot .chart > svg:visible").evaluate_all("""all => all.flatMap(
        svg => [...svg.querySelectorAll("text")].filter(text => {
            const inner = text.getBoundingClientRect(), outer = svg.getBoundingClientRect();
            return inner.left < outer.left - 1 || inner.right > outer.right + 1
                || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;
        }).map(text => text.textContent))""")
    assert outside == []


def test_a_plot_has_its_numbers_as_tooltips_csv_and_table(visit: Open, built: Path) -> None:
    page = visit("results/throughput/")
    tips = page.locator("figure.plot").first.locator(".desk .dot title").all_text_contents()
    assert any("16,621 img/s, published" in tip for tip in tips)
    place = page.get_by_role("link", name="CSV", exact=True).first.get_attribute("href")
    assert "16,621" in (built / "results/throughput" / str(place)).resolve().read_text()
    page.get_by_text("The same as a table").first.click()
    expect(page.get_by_role("cell", name="16,621", exact=True)).to_be_visible()


def test_without_scripts_plots_are_pictures_with_words(browser: object, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)  # type: ignore[attr-defined]
    page = context.new_page()
    page.goto(f"{address}results/throughput/")
    pictures = page.locator("figure.plot svg[role=img]:visible")
    expect(pictures).to_have_count(2)
    assert "Images per second of ResNet-50" in pictures.first.get_attribute("aria-label")
    context.close()


def test_dark_colours_are_those_of_the_system_and_can_be_changed(visit: Open) -> None:
    page = visit(dark=True)
    scheme = page.locator("body")
    expect(scheme).to_have_attribute("data-md-color-scheme", "slate")
    dark, light = (page.locator(f'img[src$="way-{name}.svg#only-{name}"]')
                   for name in ("dark", "light"))
    expect(dark).to_be_visible()
    expect(light).to_be_hidden()
    page.get_by_title("Light colours").click()
    expect(scheme).to_have_attribute("data-md-color-scheme", "default")
    expect(light).to_be_visible()
    expect(dark).to_be_hidden()
    page.reload()
    expect(scheme).to_have_attribute("data-md-color-scheme", "default")


def test_plots_change_with_the_colours(visit: Open) -> None:
    page = visit("results/throughput/")
    sign = page.locator("figure.plot .c0 .sign:visible").first
    assert sign.evaluate("one => getComputedStyle(one).fill") == "rgb(0, 114, 178)"
    darken(page)
    assert label_colour(page) == "rgb(180, 190, 200)"
    assert sign.evaluate("one => getComputedStyle(one).fill") == "rgb(86, 180, 233)"


def test_search_finds_text_of_all_kinds_of_pages(visit: Open) -> None:
    page = visit()
    for words, wanted in (("collapsed stage", "guides/large-batch/"),
                          ("v100x1-throughput", "recipes/resnet-imagenet/v100x1-throughput/"),
                          ("squashfs", "reference/cli/"),
                          ("sync_folder", "reference/trainkit/atomic/")):
        box = page.get_by_role("textbox", name="Search")
        box.fill("")
        box.press_sequentially(words)
        found = page.locator(f'.md-search-result__link[href*="{wanted}"]')
        expect(found.first).to_be_visible()


def test_the_home_page_is_small_and_asks_for_the_index_when_somebody_searches(
    browser: object, address: str
) -> None:
    context = browser.new_context()  # type: ignore[attr-defined]
    page, sizes = context.new_page(), {}
    page.on("response", lambda got: sizes.setdefault(got.url, len(got.body())))
    page.goto(address, wait_until="networkidle")
    assert 50_000 < sum(sizes.values()) <= 500_000, sizes
    with page.expect_response(re.compile("search_index.json")):
        page.get_by_role("textbox", name="Search").focus()
    context.close()


@pytest.mark.parametrize(("part", "family"), [
    ("article h1", "Inter"), ("article p", "Inter"), (".language-sh code", "JetBrains Mono"),
])
def test_typefaces_come_from_the_site(visit: Open, part: str, family: str) -> None:
    """The typefaces must not come from the reader's machine, which may lack them."""
    page = visit("tutorials/quickstart/")
    tools = page.context.new_cdp_session(page)
    for domain in ("DOM", "CSS"):
        tools.send(f"{domain}.enable")
    root = tools.send("DOM.getDocument")["root"]["nodeId"]
    node = tools.send("DOM.querySelector", {"nodeId": root, "selector": part})["nodeId"]
    fonts = tools.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
    assert [(font["familyName"], font["isCustomFont"]) for font in fonts] == [(family, True)]


def test_every_typeface_has_its_licence(built: Path) -> None:
    folder = built / "assets/fonts"
    families = {path.name.partition("-latin-")[0] for path in folder.glob("*.woff2")}
    assert families == {"inter", "jetbrains-mono"}
    for family in families:
        assert "SIL OPEN FONT LICENSE" in (folder / f"{family}-OFL.txt").read_text()


def test_the_keyboard_reaches_everything(visit: Open) -> None:
    page = visit("recipes/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.get_by_label("app", exact=True).focus()
    page.keyboard.press("Tab")
    expect(page.get_by_label("hardware")).to_be_focused()
    page.keyboard.type("V100")
    page.keyboard.press("Tab")
    assert page.locator("#recipes > .card:visible").count() < len(library.names())
    page.locator("#recipes a:visible").first.focus()
    page.keyboard.press("f")  # the theme's key for the search
    expect(page.get_by_role("textbox", name="Search")).to_be_focused()
    page.keyboard.type("quickstart")
    expect(page.locator(".md-search-result__link").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("quickstart"))


def test_dates_say_their_age(visit: Open) -> None:
    page = visit("recipes/resnet-imagenet/cpu-quickstart/")
    ages = page.locator("time.age + .age").all_inner_texts()
    assert len(ages) == page.locator("time.age").count() > 0
    assert all(re.fullmatch(r"\((\d+ \w+ old|today)\)", age) for age in ages)
    assert any("old" in age for age in ages)


def test_a_recipe_is_printed_with_its_commands_and_without_navigation(visit: Open) -> None:
    page = visit("recipes/resnet-imagenet/cpu-quickstart/", dark=True)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for hidden in (".md-header", ".md-sidebar--primary", ".md-footer", ".md-tabs"):
        expect(page.locator(hidden).first).to_be_hidden()
    # All ways to run it are on paper, not only the tab that is open, and the recipe itself.
    for text in ("trimaran run resnet", "RUN=$(trimaran submit", "apptainer --quiet run",
                 "weight-decay: 0.0005"):
        expect(page.get_by_text(text).first).to_be_visible()
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(paper) != "rgb(255, 255, 255)"
    assert len(page.pdf()) > 10_000


def test_the_commands_are_those_that_run(visit: Open) -> None:
    """The copied command for Apptainer contains the words that `trimaran run` executes."""
    page = visit("recipes/resnet-imagenet/cpu-quickstart/")
    shown = page.locator(".highlight", has_text="apptainer --quiet run").inner_text()
    request = Request(
        library.load("resnet-imagenet/cpu-quickstart"), Apptainer("apptainer"), {})
    for word in pipeline.plan(request).command.argv:
        if word.startswith("--") and "source=" not in word and word != "--userns":
            assert word in shown
