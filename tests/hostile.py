"""Generate malformed or malicious input: strategies for Hypothesis, and fixed samples.

Each function that reads input must terminate and return the content or raise a `TrimaranError`, but
no other exception; no message may contain control sequences for a terminal.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any

import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from trimaran.errors import ExitCode, TrimaranError
from trimaran.terminal_safety import message

quick = settings(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""Hypothesis settings for tests that write a file per example: few examples, always the same."""

CODES = ("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b2J", "a\rb", "\u202egnp.exe", "[red]a[/]",
         "[link=http://a.example]a[/link]", "\ud800", "a\x00b", "\u2028", ":smile:")
"""Texts with control characters of a terminal, or with markup of rich."""

YAML = (
    "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefghijk", "bcdefghijkl", strict=True)
    ),
    "a: &a [*a]", "a: &a {b: *a}", "a: &a [" + "a," * 9000 + "]\nb: [" + "*a," * 9000 + "]",
    "d: 2026-02-31", "a: {b: !!int zz}", "a: !!float zz", "a: !!bool zz", "a: !!timestamp zz",
    "a: " + "9" * 5000, "a: 0x" + "f" * 5000, "a: 1" + ":59" * 2000, "a: 1" + ":59" * 2000 + ".5",
    "? [a]\n: 1", "? {a: 1}\n: 2", "? " * 2000, "a: " + "[" * 3000, "a: " + "{a: " * 3000,
    "- " * 3000, "".join(" " * depth + "a:\n" for depth in range(200)), "[" + "a," * 30_000 + "]",
    "a: &a {x: 1}\nb: {<<: *a}", "a: !!map [b]", "a: !!seq {}", "a: !!set {? [b]}", "a: =",
    "a: !!python/object/apply:os.getcwd []", '"\\e[31m": 1\n"\\e[31m": 2', '"\\e[31m": "\\e]0;\\a"',
    'a: "\\U99999999"', 'a: "\\ud800"', "--- a\n--- b", "%YAML 9.9\n--- a", "a: \x00",
    "%TAG ! a\n%TAG ! b\n--- a", "\ufeffa: 1", "a: .nan", "a: .inf", "1: a\n1: b", "~: a",
    "a: !!binary '###'",
    "'", '"' * 200, "&a " * 200, "*a", "!" * 200, "@", "`", "\t", "a:\tb", "- -\n -", "|", ">", "",
)
"""Texts that can crash a YAML parser: alias bombs, invalid values, deep nesting, long input."""

JSON = (
    "[" * 5000, '{"a":' * 5000, "[" * 100 + "]" * 100, "9" * 5000, "-" + "9" * 5000, "1e99999",
    "NaN", '{"a": 1, "a": 2}', '"\\ud800"', '{"\\u001b[31m": "\\u001b]0;a\\u0007"}', "null", "[]",
    "{}", '"', "{", "\x00", "tru", "1 2", "",
)
"""Texts that can crash a JSON parser."""

words = st.one_of(st.sampled_from(CODES), st.text(max_size=8))
scalars = st.one_of(
    words, st.none(), st.booleans(), st.floats(), st.integers(), st.just(10**99), st.just(-1),
    st.dates(),
)
_keys = st.one_of(words, st.integers(), st.booleans(), st.none())
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=8,
)
"""Values of every type that a file can contain, to be used in place of a correct value."""

names = st.one_of(
    words,
    st.sampled_from(["..", ".", "/", "a/../../b", "-rf", "~", "a" * 300, " ", "a\nb", "$(a)"]),
)
"""Malformed names of files, images and options."""

yaml_texts = st.one_of(st.sampled_from(YAML), st.text(max_size=40), values.map(yaml.safe_dump))

json_values = st.recursive(
    st.one_of(words, st.none(), st.booleans(), st.floats(), st.integers(), st.just(10**200)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)

MOMENTS = st.sampled_from([
    "0001-01-01T00:00:00", "9999-12-31T23:59:59+14:00", "2026-01-01", 0, -(10**9), 1e308, "now",
])
"""Extreme dates, dates without a time zone, and values that are not dates."""

json_texts = st.one_of(st.sampled_from(JSON), st.text(max_size=40), json_values.map(json.dumps))


places = st.integers(0, 10_000)
"""Strategy for the argument `place` of `spoil`, a number that selects the value to replace."""

more_keys = st.none() | words
"""Strategy for the argument `key` of `spoil`: a key to add, or None to replace a value."""


def spoil(sound: Any, place: int, value: Any, key: str | None = None) -> Any:
    """Return a copy of the valid content `sound` with one fault, at any depth.

    Args:
        sound: dictionaries and lists, as read from a valid file.
        place: number that selects a value in `sound`.
        value: the wrong value, which replaces the selected value.
        key: if given, the dictionary that contains the selected value gets `value` under this key,
            and the selected value stays; if a list contains the selected value, `value` replaces
            the list.
    """
    known = list(_places(sound))
    at = known[place % len(known)]
    return _with(sound, at if key is None else (*at[:-1], key), value)


def _places(content: Any) -> Any:
    items = content.items() if isinstance(content, dict) else (
        enumerate(content) if isinstance(content, list) else ()
    )
    for key, value in items:
        yield (key,)
        yield from ((key, *below) for below in _places(value))


def _with(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    if isinstance(content, dict):
        return {**content, place[0]: _with(content.get(place[0]), place[1:], value)}
    if isinstance(content, list) and isinstance(place[0], int):
        return [_with(old, place[1:], value) if number == place[0] else old
                for number, old in enumerate(content)]
    return value


lock_texts = st.lists(st.one_of(
    st.sampled_from([
        "a==1 \\\n", f"    --hash=sha256:{'a' * 64}\n", "a==1 ; python_version < '3.12' \\\n",
        "a @ file:///etc/passwd \\\n", "a==1; extra == 'b' \\\n", "-r /etc/passwd\n", "--hash=\n",
        f"a b debian d p/../x.deb 1 {'a' * 64}\n", f"a b debian d p/x.deb ² {'a' * 64}\n",
        "a==1 ; python_version < 3 \\\n", "a==1; os_name == '\x1b[31m' \\\n",
    ]), st.text(max_size=12),
), max_size=6).map("".join)
"""Texts that resemble the content of `requirements.lock` and `debian.lock`."""


def keeps_the_property(read: Callable[[], object]) -> None:
    """Check that `read` returns, or raises a documented error whose message can be printed."""
    error = refusal(read)
    if error is not None:
        assert error.exit_code in set(ExitCode) - {ExitCode.PASS}
        assert error.message
        assert is_harmless(message(f"{error.message}\n{error.hint}"))


def refusal(read: Callable[[], object]) -> TrimaranError | None:
    """Call `read`, and return the `TrimaranError` that it raises, or None.

    Any other exception is a defect in the code under test: it is not caught, and fails the test.
    """
    try:
        read()
    except TrimaranError as error:
        return error
    return None


def is_harmless(shown: str) -> bool:
    """Return whether `shown` has no control characters and can be encoded."""
    return not any(
        unicodedata.category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for one in shown
        if one not in "\n\t"
    )
