from __future__ import annotations

import io

from rich.console import Console

from trimaran.terminal import Terminal


def test_details_replace_each_other_on_a_terminal_and_are_silent_elsewhere() -> None:
    screen, pipe = io.StringIO(), io.StringIO()
    for out, is_terminal in ((screen, True), (pipe, False)):
        terminal = Terminal(
            Console(file=out, force_terminal=is_terminal, width=30, color_system=None)
        )
        terminal.detail("unpacking [bold]" + "x" * 40)
        terminal.detail("installing")
        terminal.note("built")
    assert pipe.getvalue() == "built\n"
    text = screen.getvalue()
    assert "[bold]" in text, "markup of a child's output is not obeyed"
    assert text.count("\r\x1b[2K") == 2
    assert text.count("\n") == 1


def test_a_step_shows_its_number_and_its_time() -> None:
    out = io.StringIO()
    with Terminal(Console(file=out, width=60)).step(2, 4, "image: [a]"):
        pass
    first, last = out.getvalue().splitlines()
    assert first == "[2/4] image: [a]"
    assert last.strip().startswith("done in 0.")
