"""Test which numbers without a source a page may contain, and which ones are refused."""

from __future__ import annotations

import pytest

from generator import undated
from trimaran.errors import UsageError


def refused(text: str) -> str | None:
    """Return the error message for a page with this text, or None."""
    try:
        undated.refuse(text, "a.md")
    except UsageError as error:
        return error.message
    return None


def test_the_line_of_such_a_number_is_named() -> None:
    text = "# A\n\n```\n5 %\n```\n\nOne (Smith 2019): 3 %.\n\nmore\n1,017 % more\n"
    assert refused(text) == "a.md:10: '1,017 %' has neither date nor source"
    assert refused("It takes\nthree minutes") == (
        "a.md:1: 'takes three minutes' has neither date nor source")


@pytest.mark.parametrize("number", [
    "90 %", "1,200 img/s", "31 images/s", "7.5 clips/s", "12 GB/s", "3 TFLOP/s", "3.1 dB", "4 MB",
    "8 GiB", "0.5 points", "1 point", "7.3x", "7.3\u00d7", "1.2 times", "18 to 24 minutes", "3.5 h",
    "36 ms", "185.0 s", "583 seconds", "3 min", "14 days", "99.5%", "two GPUs, 7 s", "18-24 min",
])
@pytest.mark.parametrize("around", [
    "It came to {}.", "It came\nto {}, which is good.", "| a |\n|---|\n| {} |", "- a\n- b {}\n",
    "It came to **{}**.", "In 2026 it came to {}.", "On 2048 GPUs it came to {}.",
    "With 2019 nodes (of 2020 that are there) it came to {}.", "{{{{ ratio('a') }}}} and {} here.",
    "{{{{ came_to('a', day='2026-11-22') }}}} and {} here.", "[a](2026-11-22.json): {}",
    "`2026-11-22.json` has {}.", "2026-11-22\n\nIt came to {}.", "It came to {}.\n\n2026-11-22",
])
def test_a_measured_number_without_date_and_source_is_refused(number: str, around: str) -> None:
    said = refused(around.format(number))
    assert said is not None
    assert said.endswith("has neither date nor source")


@pytest.mark.parametrize("text", [
    "It takes a minute.", "Each run took about\ntwo hours.", "It takes three to four minutes.",
    "a `b` took, as one saw, 7 s", "`a` (3 %)", "It ended after 3 %.", "8 GiB on one P100",
])
def test_neither_words_nor_what_looks_like_a_setting_hide_one(text: str) -> None:
    assert refused(text) is not None


@pytest.mark.parametrize("dated", [
    "On 2026-11-22 {}", "{} (He et al. 2015).", "A guide (2019, section 6) has {}.",
    "arXiv:1706.02677 has {}", "{} (Goyal et al. 2017,\narXiv:1706.02677)",
])
@pytest.mark.parametrize("number", ["90 %", "7.3x", "3.5 h", "1,200 img/s", "It takes two minutes"])
def test_a_day_or_a_source_with_its_year_is_enough(dated: str, number: str) -> None:
    assert refused(dated.format(number)) is None


@pytest.mark.parametrize("text", [
    "8 ranks, 3 nodes of 2 x 24 cores, 24.6 GFLOP, 16 X-rays", "images of 224x224, a 3x3 kernel",
    "```\n90 %\n```", "`--margin 3 %`", "    90 %", "{{ published('a') }} and {{ rate('b') }}",
    "[skx](skx6148-2s.md) and [a](b-90%.md)", "1. **5 epochs** of 90, half as many\n2. more",
    "It looks every 5 s, ends within 30 s, tells after 1.5 minutes; a closed terminal gives the "
    "app 30 s.", "`--watchdog` (300 s; more with `--slow`)", "8 GiB of disk, some 23 GiB with CUDA",
    "a second one, a line every four seconds, an hour apart", "It takes a second copy of a file.",
])
def test_counts_settings_limits_and_what_others_say_are_left_alone(text: str) -> None:
    assert refused(text) is None


@pytest.mark.parametrize("text", [
    "On 2026-11-22:\n\n{}", "{}\n\nOn 2026-11-22.", "On 2026-11-22:\n\n{}\n\n{}"])
def test_a_table_is_dated_by_the_text_around_it(text: str) -> None:
    table = "| a |\n|---|\n| 5 img/s |"
    assert refused(text.replace("{}", table)) is None
    far = f"2026-11-22\n\nmore\n\n{table}\n\nmore\n\n2026-11-22"
    assert refused(far) == "a.md:7: '5 img/s' has neither date nor source"
