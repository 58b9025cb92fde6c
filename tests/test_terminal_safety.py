from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hostile
from trimaran import terminal_safety


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ümläut\n\tand 漢字 🚢", "plain text, ümläut\n\tand 漢字 🚢"),
        ("\x1b[31mred\x07", r"\u001b[31mred\u0007"),
        ("a\rb\x7f\x9b", r"a\u000db\u007f\u009b"),
        ("\u202egnp\u2028", r"\u202egnp\u2028"),
        ("\udcff", r"\udcff"),
        ("\U000e0001", r"\udb40\udc01"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert terminal_safety.visible(text) == shown


@given(st.text(alphabet=st.characters()))
def test_json_stays_what_it_was(text: str) -> None:
    written = json.dumps(text, ensure_ascii=False)
    assert json.loads(terminal_safety.visible(written)) == text
    assert hostile.is_harmless(terminal_safety.visible(text))


def test_only_overlong_lines_are_cut() -> None:
    assert terminal_safety.message("a" * 2000 + "\n" + "b" * 2000) == "a" * 2000 + "\n" + "b" * 2000
    cut = terminal_safety.message("short\n" + "b" * 70_000)
    assert cut == "short\n" + "b" * 2000 + "… (70,000 characters)"


def test_a_value_is_quoted_in_short() -> None:
    assert terminal_safety.excerpt("large") == "'large'"
    assert len(terminal_safety.excerpt("a" * 10**6)) < 200
    assert len(terminal_safety.excerpt([["a" * 1000] * 1000] * 1000)) < 10_000
