"""Execute the commands on the hand-written pages of the site, in the order of each page.

This module executes the code blocks with the language `sh`. A comment before a block changes this:

- `<!-- real: ENGINES -->`: `tests/integration/test_site_commands.py` executes the block, with
  these engines.
- `<!-- small -->`: the same module executes it, with a small app on a cluster of two nodes.
- `<!-- given: NAME -->`: the function NAME of `given.py` first creates what the block requires.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commandlines import fault, lines
from given import GIVEN
from showncommands import DOCS, PAGES, WAYS, Block, blocks, tried


def executed(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.how == "executed"]


@pytest.mark.parametrize("page", [page for page in PAGES if executed(page)])
def test_the_commands_of_a_page_run(page: str, own_place: Path) -> None:
    tried(executed(page), own_place)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_exist(page: str) -> None:
    """Each `trimaran` command on a page is valid for the parser of the command line.

    Tests with engines, which execute the commands, would find faults late.
    """
    for block in blocks(page):
        for line in lines(block.text):
            assert fault(line) is None, f"trimaran {line}: {fault(line)}"


def test_each_way_of_trying_is_used_and_known() -> None:
    shown = [block for page in PAGES for block in blocks(page)]
    assert {block.how for block in shown} == set(WAYS)
    assert {name for block in shown for name in block.given} == set(GIVEN)
    with pytest.raises(ValueError, match="parsed"):
        next(iter(blocks("x.md", "<!-- parsed -->\n```sh\ntrue\n```\n")))


@pytest.mark.parametrize("page", PAGES)
def test_no_commands_of_a_page_are_left_out(page: str) -> None:
    """Every command must be in a block `sh`, because other blocks would not be tested."""
    text = (DOCS / page).read_text()
    assert re.findall(r"^ *```(?:bash|shell|console)", text, re.MULTILINE) == []
    assert len(re.findall(r"^ *```sh", text, re.MULTILINE)) == len(list(blocks(page)))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"^(?:    |\t)(?:trimaran|make) ", prose, re.MULTILINE)


@pytest.mark.parametrize("wrong", [
    "trimaran list recipes --jsno\ntrue\n", "head no-such-file\ntrue\n",
    "A=$(trimaran show recipes no/such)\ntrue\n",
    "trimaran run resnet-imagenet/cpu-quickstart --data no-such-file --engine host --dry-run\n",
])
def test_a_wrong_command_fails_its_page(wrong: str, own_place: Path) -> None:
    page = f"```sh\ntrue\n```\n\n<!-- given: photos -->\n```sh\nls photos\n{wrong}```\n"
    with pytest.raises(AssertionError, match=r"jsno|no-such-file|no/such"):
        tried(blocks("x.md", page), own_place)


def test_a_preparation_that_fails_fails_its_page(own_place: Path) -> None:
    (own_place / "photos").touch()
    with pytest.raises(AssertionError, match=r"photos.*Error|Error.*photos"):
        tried(blocks("x.md", "<!-- given: photos -->\n```sh\ntrue\n```\n"), own_place)


def test_a_command_that_is_not_there_is_found() -> None:
    assert fault("run x --engien host") is not None
    assert fault("biuld torch-cpu") is not None
    (line,) = lines("A=$(trimaran build torch-cpu --engine podman)")
    assert fault(line) is None
