"""Generate the page of the rare test suites: long tests, fault injection and mutants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from generator import markdown
from generator.evidence import AllEvidence, Outcome, Piece, Suite
from generator.pages import Page, fill

PLACE = "results/tests.md"


class Kind(NamedTuple):
    """A kind of suite: its heading, the expected outcome, and the word for this outcome."""

    title: str
    wanted: str
    word: str


KINDS = {
    "faults": Kind("Faults done to real runs", "passed", "survived"),
    "tests": Kind("Long tests", "passed", "passed"),
    "mutants": Kind("Mutants: programs made wrong, which a test must notice", "killed", "noticed"),
}


def newest(suites: Sequence[Suite]) -> list[Outcome]:
    """Return the last outcome of each test or mutant.

    `suites` begins with the newest suite. A suite may have the outcomes of only some tests.
    """
    found = {(one.test, one.what): one
             for suite in reversed(suites) for one in suite.tests + suite.mutants}
    return list(found.values())


def came_to(kind: str, found: Sequence[Outcome]) -> str:
    """Return how many outcomes are as expected, as a text such as `17 of 17 survived`."""
    good = sum(one.outcome == KINDS[kind].wanted for one in found)
    return f"{good} of {len(found)} {KINDS[kind].word}"


def page(shelf: AllEvidence) -> Page:
    """Return the page: a summary of each suite, then all of its tests."""
    pieces = [(kind, piece) for kind in KINDS for piece in shelf.suites.get(kind, [])]
    rows = [
        [KINDS[kind].title, came_to(kind, newest([piece.content])),
         markdown.moment(piece.content.day), piece.content.host.text]
        for kind, piece in pieces
    ]
    text = fill(
        "tests.md.j2", PLACE, rows=markdown.table(["suite", "result", "date", "machine"], rows),
        parts="\n\n".join(_part(kind, piece) for kind, piece in pieces),
    )
    return Page(PLACE, text, "Tests and faults")


def _part(kind: str, piece: Piece[Suite]) -> str:
    suite, known = piece.content, KINDS[kind]
    found = suite.tests + suite.mutants
    where = [
        f"{came_to(kind, found)} on {markdown.moment(suite.day)}, {suite.host.text},"
        f" {suite.host.memory_gib:g} GiB, {suite.host.os}",
        f"revision `{suite.revision[:12]}{'+' if suite.revision.endswith('+') else ''}`,"
        f" {suite.seconds or sum(one.seconds for one in found):,.0f} s in all",
        f"[all values]({markdown.link(PLACE, f'files/{piece.path}')})",
    ]
    table = markdown.table(["what is tried", "outcome", "seconds:", "file"],
                           [_row(known, one) for one in found])
    return "\n\n".join([
        f"## {known.title}, {suite.day}", "\n".join(f"- {line}" for line in where),
        markdown.code(suite.command, title="the command"),
        markdown.folded(f"All {len(found)}", table, "abstract"),
    ])


def _row(kind: Kind, one: Outcome) -> list[str]:
    file, _, test = one.test.rpartition("::")
    what = one.what or test.removeprefix("test_").replace("_", " ")
    outcome = kind.word if one.outcome == kind.wanted else one.outcome
    name = f"`{(one.file or file).rpartition('/')[2]}`"
    return [what, outcome, f"{one.seconds:.1f}", name]
