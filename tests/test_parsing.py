from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
import yaml
from hypothesis import given

import hostile
from trimaran import parsing
from trimaran.parsing import Malformed, parse_json, parse_yaml


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (hostile.YAML[0], 12, "more than 20,000 keys and values, including those of aliases"),
        ("a: 1\nb: [" + "a," * 30_000 + "]", 2, "b.19995: more than 20,000 keys and values"),
        ("a: 1\nb: " + "[" * 100, 2, "more than 32 nested levels"),
        ("a:\n  b: 2026-02-31", 2, "a.b: '2026-02-31' is not a valid timestamp"),
        ("a:\n- 1\n- !!int zz", 3, "a.1: 'zz' is not a valid int"),
        ("a: 1\nb: " + "9" * 5000, 2, "b: a number of 5,000 digits"),
        ("a: 1\nb: 0x" + "f" * 5000, 2, "b: a number of 5,002 digits"),
        ("a:\n  ? [b]\n  : 1", 2, "a: a key is not a word"),
        ("a: 1\nb: {a: !!map [b]}", 2, "b.a: is not a mapping"),
        ('a: 1\nb: "\\ud800"', 2, "found invalid Unicode character escape code"),
        ('a: 1\nb: "x\\0"', 2, r"b: 'x\x00' contains the character NUL"),
        ("é: 1\nb: \x07\n\n", 2, "not YAML: control characters are not allowed"),
    ],
)
def test_yaml_beyond_the_limits_is_refused_with_line_and_key(
    text: str, line: int, problem: str
) -> None:
    with pytest.raises(Malformed) as caught:
        parse_yaml(text)
    assert problem in str(caught.value)
    assert caught.value.line == line


def test_aliases_are_read_and_their_lines_are_those_of_the_values() -> None:
    found = parse_yaml("a: &a\n  size: 3\nb: *a\nc: [*a, 4]\n")
    assert found.content == {"a": {"size": 3}, "b": {"size": 3}, "c": [{"size": 3}, 4]}
    lines = [parsing.line_of(found.lines, at) for at in [("a", "size"), ("b", "size"), ("c", 1)]]
    assert lines == [2, 3, 4]


@pytest.mark.parametrize("text", [hostile.YAML[0], hostile.YAML[3], hostile.YAML[-1], "#" * 10**5])
def test_no_yaml_takes_long(text: str) -> None:
    begin = time.monotonic()
    with pytest.raises(Malformed):
        parse_yaml(text + "\n[")
    assert time.monotonic() - begin < 40


@pytest.mark.parametrize("text", hostile.YAML)
def test_each_known_trap_of_yaml_is_content_or_malformed(text: str) -> None:
    with suppress(Malformed):
        repr(parse_yaml(text).content)


@pytest.mark.parametrize("text", hostile.JSON)
def test_each_known_trap_of_json_is_content_or_malformed(text: str) -> None:
    with suppress(Malformed):
        repr(parse_json(text))


@hostile.quick
@given(hostile.values)
def test_what_a_program_writes_as_yaml_is_read_as_that(value: object) -> None:
    text = yaml.safe_dump(value)
    with suppress(Malformed):
        assert repr(parse_yaml(text).content) == repr(yaml.safe_load(text))


@hostile.quick
@given(hostile.json_values)
def test_what_a_program_writes_as_json_is_read_as_that(value: object) -> None:
    text = json.dumps(value)
    with suppress(Malformed):
        assert json.dumps(parse_json(text)) == text
