from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path

import pytest

import hostile
from trimaran.cli.common import say
from trimaran.cli.terminal import Screen, Terminal, show_error, show_table, show_verdict
from trimaran.errors import UsageError
from trimaran.terminal_safety import message
from trimaran.verdict.metrics import Row, Verdict


def test_a_terminal_that_is_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as gone:
        monkeypatch.setattr("sys.stderr", gone)
        terminal = Terminal()
        with terminal.bar("training", None):
            terminal.note("said to nobody")
        monkeypatch.undo()
        with suppress(OSError):
            gone.close()


def test_a_step_shows_its_number_and_its_time() -> None:
    out = io.StringIO()
    with Terminal(Screen(file=out, width=60)).step(2, 4, "image: [a]"):
        pass
    first, last = out.getvalue().splitlines()
    assert first == "[2/4] image: [a]"
    assert last.strip().startswith("done in 0.")


@pytest.mark.parametrize("text", hostile.CODES)
@pytest.mark.parametrize("is_terminal", [True, False])
def test_text_of_others_neither_steers_the_terminal_nor_is_it_markup(
    text: str, is_terminal: bool
) -> None:
    out = io.StringIO()
    terminal = Terminal(
        Screen(file=out, force_terminal=is_terminal, width=90, color_system=None)
    )
    terminal.note(text)
    terminal.warn(text)
    terminal.line(text)
    with terminal.step(1, 2, text):
        pass
    said = out.getvalue()
    assert said.count(message(text)) == 4
    assert hostile.is_harmless(said)


@pytest.mark.parametrize("text", hostile.CODES)
def test_errors_tables_and_verdicts_show_text_as_it_is(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_error(UsageError(text, hint=text))
    show_table(text, ["name", text], [[text, text]])
    row = Row(
        metric=text, unit=text, at=text, measured=1.0, basis=text, outcome="PASS", required=True
    )
    show_verdict(Verdict(outcome="PASS", rows=(row,), reasons=(text,)), text, [text])
    printed = capsys.readouterr()
    assert printed.err.count(message(text)) == 2
    said = printed.out + printed.err
    assert "VERDICT PASS" in said
    assert hostile.is_harmless(said)


def test_a_line_without_end_is_cut() -> None:
    out = io.StringIO()
    Terminal(Screen(file=out)).note("a" * 10**6)
    assert len(out.getvalue()) < 3000


def test_results_on_standard_output_carry_no_codes(capsys: pytest.CaptureFixture[str]) -> None:
    say("run\x1b]0;title\x07/file")
    say('{"name": "\x9b"}')
    assert capsys.readouterr().out == 'run\\u001b]0;title\\u0007/file\n{"name": "\\u009b"}\n'
