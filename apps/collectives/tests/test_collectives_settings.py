"""Tests of the options: sizes, names of operations, and combinations."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from collectives import settings
from collectives.__main__ import main
from collectives.settings import MeasureSettings
from trainkit.exits import ArgumentError
from trainkit.testing.program import described
from trainkit.testing.refusals import assert_reported, refused

APP = Path(__file__).parents[1]
GOOD = MeasureSettings(out=Path("run"))


@pytest.mark.parametrize(("text", "count"), [
    ("4", 4), ("4B", 4), ("1KiB", 1024), ("16MiB", 1 << 24), ("8GiB", 1 << 33),
])
def test_sizes_are_parsed(text: str, count: int) -> None:
    assert settings.size(text) == count


@pytest.mark.parametrize(
    "text", ["", "0", "-4", "4 MiB", "4MB", "1e6", "1.5GiB", "2048GiB", "9" * 99, "\u0664", "4\n"]
)
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        settings.size(text)


@given(some.integers(1, 1 << 40))
def test_a_shown_size_is_parsed_again(count: int) -> None:
    assert settings.size(settings.shown_size(count).replace(" ", "")) == count


def test_the_sizes_grow_by_the_factor() -> None:
    assert replace(GOOD, max_bytes=100, factor=3).sizes == [4, 12, 36]
    assert len(GOOD.sizes) == 23


def test_operations_are_known_names_in_their_order() -> None:
    assert settings.operations("barrier,all-reduce") == ("all-reduce", "barrier")
    assert settings.operations("all") == settings.OPERATIONS
    for text in ("", "allreduce", "all-reduce,", "all-reduce,all"):
        with pytest.raises(ArgumentTypeError):
            settings.operations(text)


@pytest.mark.parametrize(("changes", "code"), [
    ({"out": None}, "argument-missing"),
    ({"min_bytes": 1 << 30}, "arguments-conflict"),
    ({"factor": 1}, "argument-invalid"),
    ({"backend": "gloo", "library": "mpi"}, "arguments-conflict"),
    ({"fusion_tensors": 2}, "arguments-conflict"),
])
def test_contradictions_are_refused(changes: dict[str, Any], code: str) -> None:
    GOOD.check()
    with refused(ArgumentError, code):
        replace(GOOD, **changes).check()


def test_options_json_is_current() -> None:
    assert (APP / "options.json").read_text() == described(APP)


@pytest.mark.parametrize("words", [
    ["--max-bytes", "lots"], ["--operations", "gossip"], ["--dtype", "float64"],
    ["--resume", "auto"],
])
def test_unknown_values_end_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["measure", "--out", "run", *words])
    assert ended.value.code == 2
    assert_reported(capsys.readouterr().err, "argument-invalid")
