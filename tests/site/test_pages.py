"""Test pages before the site is built: inserted numbers, included documents, catalogues, tables."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from pathlib import Path

import pytest

import commandlines
from documents import made as defined_by_readers
from generator import (
    adopt,
    benchmarks,
    cite,
    documents,
    markdown,
    navigation,
    results,
    suites,
    tree,
)
from generator import sources as everything
from generator import targets as hardware
from generator.pages import Page
from showncommands import copied
from trimaran import paths
from trimaran.errors import ExitCode, UsageError
from trimaran.parsing import parse_yaml
from trimaran.recipes import targets

READ = everything.read()
DOCS = paths.repository() / "site/docs"


@functools.cache
def made() -> dict[str, Page]:
    """Return path -> generated page; generating all pages takes seconds."""
    return {page.place: page for page in tree.pages(READ, documents.library(READ))}


@pytest.mark.parametrize("page", [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")])
def test_a_page_by_hand_finds_its_numbers(page: str) -> None:
    filled = cite.Page(page, READ).fill((DOCS / page).read_text())
    assert "{{" not in filled
    assert "<!--" not in filled
    assert filled.count('id="source-') == len(set(_marks(filled)))


def _marks(text: str) -> list[str]:
    return [part.partition(" ")[0] for part in text.split("](#source-")[1:]]


def test_what_stands_before_a_page_is_yaml() -> None:
    """The header of each page is YAML; the site builder would show an invalid header as text."""
    pages = {place: page.text for place, page in made().items()}
    pages |= {str(path): path.read_text() for path in DOCS.rglob("*.md")}
    heads = {place: parse_yaml(text.split("---\n")[1]).content
             for place, text in pages.items() if text.startswith("---\n")}
    assert len(heads) > 50
    assert [place for place, head in heads.items()
            if not isinstance(head, dict) or "title" not in head] == []


def test_every_published_number_is_told_somewhere() -> None:
    told = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    drawn = [key for key, one in READ.published.figures.items() if one.what.endswith("per GPU")]
    assert [key for key in READ.published.figures
            if key not in drawn and f'published("{key}")' not in told] == []
    cited = {one.source for one in READ.published.figures.values()}
    assert cited | {READ.published.hardware.source} == set(READ.published.sources)


def fill(text: str) -> str:
    return cite.Page("guides/a.md", READ).fill(text)


def test_a_number_brings_its_source_once() -> None:
    text = '{{ ratio("resnet_cpu", "ours / stock") }} and {{ ratio("resnet_cpu", "ours / stock") }}'
    filled = fill(text)
    assert filled.count('<sup class="source">[1](#source-1') == 2
    assert filled.count('<span id="source-') == 1
    assert "2026-11-22, 2 cores of AMD EPYC" in filled
    assert "goal 10 not met" in filled


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ('ratio("resnet_cpu", "ours / nothing")', "no benchmark resnet_cpu has the ratio"),
        ('rate("nobody", "x")', "no benchmark nobody has the rate"),
        ('came_to("resnet-imagenet/cpu-quickstart", "val_top1", epochs=99)', "no evidence of"),
        ('expected("resnet-imagenet/none", "val_top1")', "expects no val_top1"),
        ('published("nothing")', "has no figure 'nothing'"),
        ('image("none", "size")', "no evidence of the image none"),
        ('suite("nothing")', "no evidence of nothing"),
        ("nothing", "'nothing' is undefined"),
        ("ratio(", "unexpected"),
    ],
)
def test_a_number_that_is_nowhere_stops_with_the_page(word: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        fill("# A\n\na {{ published('mps') }} and\n" + "{{ " + word + " }}\n\nb\n")
    assert caught.value.message.startswith("site/docs/guides/a.md:4: ")
    assert said in caught.value.message


def test_a_page_by_hand_with_a_number_of_nobody_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^site/docs/guides/a\.md:3: '12 GB/s' has neither date"):
        fill("# A\n\nIt reads 12 GB/s.\n")


def test_a_time_is_told_in_minutes_where_it_is_long() -> None:
    name = "resnet-imagenet/cpu-2core-large-batch-convergence"
    filled = fill("{{ took('" + name + "', batch_size_per_rank=32) }}")
    assert filled.startswith('24 to 36 min<sup class="source">')
    assert "with batch-size-per-rank=32: 2026-11-22, 2 cores of AMD EPYC" in filled
    assert "least and most of 3 runs" in filled
    short = fill("{{ took('resnet-imagenet/cpu-quickstart', day='2026-11-23') }}")
    assert short.startswith("506 s<")
    assert "2026-11-23, 2 cores of AMD EPYC (AVX2), one run" in short


def test_a_large_rate_is_written_in_full() -> None:
    rate = 'rate("input_pipeline", "ours (DALI, decodes the random window only)", spread=True)'
    text = re.sub(r"<sup.*", "", fill("{{ " + rate + " }}").split("\n")[0])
    assert re.fullmatch(r"\d,\d{3} \(\d,\d{3} to \d,\d{3}\) img/s", text), text


def test_a_document_with_a_number_of_nobody_is_refused(checkout: Path) -> None:
    (checkout / "apps/README.md").write_text("# A\n\n2026-11-22: 3 %.\n\nIt makes 12 img/s.\n")
    known = adopt.Library({"apps/README.md": "apps.md"}, {})
    with pytest.raises(UsageError, match=r"^apps/README.md:5: '12 img/s' has neither date"):
        known.page("apps/README.md")


def test_every_document_is_adopted_and_its_links_lead_somewhere() -> None:
    known = documents.library(READ)
    for page in documents.pages(known):
        assert page.text.startswith("# "), page.place
    for file in known.taken:
        assert (paths.repository() / file).is_file()


@pytest.mark.parametrize(
    ("link", "turned"),
    [
        ("[a](../apps/README.md#tests)", "[a](../reference/app-contract.md#tests)"),
        ("![b](graph.svg)", "![b](../files/containers/graph.svg)"),
        ("[c](https://a.example/b)", "[c](https://a.example/b)"),
        ("[d](#here)", "[d](#here)"),
        ("    [e](nothing)", "    [e](nothing)"),
        ("[f](../.github/workflows/images.yml)", "[f](../files/github/workflows/images.yml)"),
    ],
)
def test_links_of_documents_are_turned(
    link: str, turned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = adopt.Library({"containers/x.md": "images/building.md",
                           "apps/README.md": "reference/app-contract.md"}, {})
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: link)
    assert known.page("containers/x.md") == turned + "\n"


def test_a_document_that_links_to_nothing_stops_with_its_line(checkout: Path) -> None:
    (checkout / "apps/README.md").write_text("# A\n\nsee [b](nothing.md)\n")
    known = adopt.Library({"apps/README.md": "apps.md"}, {})
    with pytest.raises(UsageError, match=r"apps/README\.md:3: apps/nothing\.md"):
        known.page("apps/README.md")


def test_the_page_of_hardware_facts_has_every_target_its_marks_and_sources() -> None:
    text = hardware.page().text
    for name in targets.names():
        facts = targets.load(name).hardware
        if facts is not None:
            part = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
            assert all(markdown.cell(one) in part for one in facts.assumed.values()), name
            assert all(f"not checked: {markdown.cell(one)}" in part
                       for one in facts.unchecked.values()), name
            assert all(f"- {one}\n" in part for one in facts.sources), name


def test_a_recipes_page_says_which_numbers_are_not_judged() -> None:
    page = made()["recipes/resnet-imagenet/h100x8-throughput.md"]
    assert "not judged: the source has MXNet" in page.text
    assert "A run says PASS" not in page.text


def test_the_catalogue_has_each_recipe_once_with_its_facets() -> None:
    index = made()["recipes/index.md"].text
    assert index.count('<li class="card"') == len(READ.recipes)
    assert ('data-app="resnet-imagenet" data-hardware="V100" data-purpose="throughput"'
            ' data-status="published"') in index
    for status in ("published", "measured", "reproduced"):
        assert f'<option value="{status}">' in index


def test_every_number_on_a_recipes_page_has_source_and_year() -> None:
    for name in READ.recipes:
        page = made()[f"recipes/{name}.md"]
        for one, number in itertools.chain.from_iterable(
            ((one, number) for number in one.numbers) for one in READ.recipes[name]
        ):
            row = next(line for line in page.text.splitlines()
                       if number.text in line and line.startswith("|"))
            assert number.source in row, (one.name, row)
            assert str(number.year) in row, (one.name, row)


def test_evidence_on_a_recipes_page_has_date_image_and_file() -> None:
    page = made()["recipes/resnet-imagenet/cpu-quickstart.md"]
    for piece in READ.shelf.runs["resnet-imagenet/cpu-quickstart"]:
        row = next(line for line in page.text.splitlines() if piece.path in line)
        assert f'datetime="{piece.content.day}"' in row
        assert piece.content.run.image.digest[7:19] in row
        assert piece.content.verdict.outcome in row


def test_an_image_page_has_what_the_catalogue_promises() -> None:
    page = made()["images/torch-cpu.md"]
    for text in ("MB, unpacked", "sha256:", "torch-cpu.cdx.json", "Python packages",
                 "Debian packages", "Licences, by kind", "self-test", "trimaran pull torch-cpu",
                 "trimaran build torch-cpu", "| for | CPU; processors: amd64, arm64 (",
                 "## For amd64", "## For arm64"):
        assert text in page.text, text
    bills = [str(page.files[f"images/torch-cpu{arch}.cdx.json"]) for arch in ("", ".arm64")]
    assert all('"bomFormat": "CycloneDX"' in bill for bill in bills)
    assert "pkg:pypi/torch@2.9.1" in bills[1]
    assert "pkg:pypi/torch@2.9.1" not in bills[0]


def test_a_benchmark_that_compares_nothing_is_a_table_without_a_plot() -> None:
    pieces = [piece for found in READ.shelf.benchmarks.values() for piece in found]
    plain = next(piece for piece in pieces if not piece.content.ratios)
    text, plots = benchmarks.part("results/benchmarks.md", plain)
    assert plots == []
    assert text.startswith(f"## {plain.content.benchmark}, {plain.content.day}\n")
    for rate in plain.content.rates:
        assert f"| {rate.name} | {rate.unit} |" in text


def test_the_catalogue_of_images_has_digest_and_licences() -> None:
    seen = next(one.content for one in READ.shelf.images["torch-cpu"]
                if one.content.architecture == "amd64")
    row, _ = (line for line in made()["images/index.md"].text.splitlines()
              if line.startswith("| [`torch-cpu`]"))
    counts = [sum(of.get(kind, 0) for of in seen.licences.values())
              for kind in ("proprietary", "copyleft")]
    assert f"| `{seen.digest[7:19]}` |" in row
    assert f"| {counts[0]} proprietary, {counts[1]} copyleft |" in row


def test_the_table_of_results_has_all_runs_of_the_newest_day() -> None:
    rows = {row[0]: row for row in results.real(READ)}
    assert set(rows) == {
        one.name for one in READ.standings.values() if one.status == "reproduced"}
    assert all(len(row) == len(results.REAL) for row in rows.values())
    # Three seeds, of which one failed by the bound of that day; no run with another rate.
    assert rows["resnet-imagenet/cpu-2core-large-batch-convergence"][2:5] == [
        "at least 90.92 %", "92.20 %", "2 of 3 PASS"]


def test_a_run_that_judged_nothing_is_counted_in_no_table() -> None:
    """A run with the verdict NO REFERENCE is not counted in the tables of results.

    Two of the three runs had no bound yet; the bound of the third run was derived from them.
    """
    name = "resnet-imagenet/cpu-2node-smoke"
    outcomes = [row.outcome for piece in READ.standings[name].own_runs()
                if (row := piece.content.row("val_top1"))]
    assert sorted(outcomes) == ["NO REFERENCE", "NO REFERENCE", "PASS"]
    (row,) = (row for row in results.real(READ) if row[0] == name)
    assert row[3:5] == ["63.29 %", "1 of 1 PASS"]
    overview = made()["results/index.md"].text
    (line,) = (line for line in overview.splitlines() if line.startswith(f"| [{name}]"))
    assert "| 63.12 % | 1 of 1 PASS |" in line
    assert " 0 of " not in overview  # no run of these judged it: the recipe's status stands there


def test_every_suite_has_all_its_tests_with_day_machine_command_and_revision() -> None:
    text = made()[suites.PLACE].text
    assert set(READ.shelf.suites) == set(suites.KINDS)
    for kind, pieces in READ.shelf.suites.items():
        for piece in pieces:
            suite, found = piece.content, piece.content.tests + piece.content.mutants
            assert f"## {suites.KINDS[kind].title}, {suite.day}\n" in text
            for said in (f"{suites.came_to(kind, found)} on <time", suite.host.text, suite.command,
                         suite.revision[:12], f"files/{piece.path}", f"All {len(found)}"):
                assert said in text, said
    fault = READ.shelf.suites["faults"][-1].content.tests[0]
    assert f"| a rank is killed at a random step[1] | survived | {fault.seconds:.1f} |" in text


def test_what_did_not_come_out_well_is_counted_and_named() -> None:
    whole = READ.shelf.suites["faults"][-1]
    good, *others = [one.model_copy(update={"outcome": "passed"}) for one in whole.content.tests]
    worse = good.model_copy(update={"outcome": "failed"})
    suite = whole.content.model_copy(update={"tests": [worse, *others]})
    count = len(suite.tests)
    assert suites.came_to("faults", suite.tests) == f"{count - 1} of {count} survived"
    again = whole.content.model_copy(update={"tests": [good]})
    last = suites.newest([again, suite])  # a later run of some replaces what these came to
    assert suites.came_to("faults", last) == f"{count} of {count} survived"
    shelf = dataclasses.replace(
        READ.shelf, suites={"faults": [dataclasses.replace(whole, content=suite)]})
    assert "random step[1] | failed |" in suites.page(shelf).text


def test_a_page_tells_what_a_suite_came_to_with_its_source() -> None:
    filled = fill('{{ suite("faults") }}')
    pieces = [piece.content for piece in READ.shelf.suites["faults"]]
    newest, last = pieces[0], suites.newest(pieces)
    assert len(last) > len(newest.tests)
    assert filled.startswith(f"{suites.came_to('faults', last)}, the last on {newest.day}<sup")
    assert f"{newest.host.text}, `{newest.command}`, revision `{newest.revision[:12]}`" in filled


def test_navigation_has_generated_pages_in_their_place() -> None:
    entries = [{"R": ["recipes/index.md", "generated: recipes"]}]
    whole = navigation.expand(entries, list(made().values()))
    sections = {title: content for entry in whole[0]["R"][1:] for title, content in entry.items()}
    assert set(sections) == {one.file.recipe.app for one in READ.standings.values()}
    assert {"cpu-quickstart": "recipes/chexnet/cpu-quickstart.md"} in sections["chexnet"]


def test_links_between_pages_are_relative() -> None:
    assert markdown.link("a/b/c.md", "a/d.md#e") == "../d.md#e"
    assert markdown.link("index.md", "files/x") == "files/x"
    assert markdown.link("a/b.md", "a/b.md#c") == "#c"


def test_empty_heads_of_tables_get_a_word() -> None:
    table = "| | a |\n|---|---|\n| | 1 |\n"
    named = markdown.named_heads(f"text | | x\n\n{table}")
    assert named == "text | | x\n\n" + table.replace("| |", "| <span class=unseen>item</span> |", 1)


def test_the_commands_of_generated_pages_exist() -> None:
    pages = [page for place, page in made().items()
             if place.startswith(("recipes/", "images/", "reference/"))]
    shown = [line for page in pages for block in copied(page.text)
             for line in commandlines.lines(block)]
    assert len(shown) > 150
    for line in dict.fromkeys(shown):
        fault = commandlines.fault(line, defined_by_readers())
        assert fault is None, f"trimaran {line}: {fault}"


def test_the_command_line_and_the_exit_codes_are_whole() -> None:
    page = made()["reference/cli.md"]
    for command in ("trimaran run", "trimaran data pack", "trimaran site init", "trimaran cache"):
        assert f"## {command}\n" in page.text
    codes = (DOCS / "reference/exit-codes.md").read_text()
    assert {int(row) for row in re.findall(r"^\| (\d+) \|", codes, re.MULTILINE)} == set(ExitCode)
