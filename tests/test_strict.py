from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from refusals import refused
from trimaran import strict
from trimaran.errors import UsageError


class Inner(strict.Model):
    size: int
    tags: list[str] = Field(default_factory=list)


class Outer(strict.Model):
    name: str
    inner: Inner
    more: list[Inner] = Field(default_factory=list)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    return path


def test_a_right_file_loads(tmp_path: Path) -> None:
    path = write(tmp_path, "name: a\ninner: {size: 3}\n")
    assert strict.load(Outer, path) == Outer(name="a", inner=Inner(size=3))


def test_every_fault_is_named_at_once_with_line_key_and_what_is_allowed(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "inner:\n  size: large\n  sizee: 3\nmore:\n  - size: 1\n  - {}\ncolour: red\n",
    )
    with refused("file-invalid") as caught:
        strict.load(Outer, path)
    assert caught.value.message.splitlines() == [
        f"{path}:1: name: is missing",
        f"{path}:2: inner.size: Input should be a valid integer, unable to parse string as an "
        "integer (found: 'large')",
        f"{path}:3: inner.sizee: unknown key (allowed: size, tags)",
        f"{path}:6: more.1.size: is missing",
        f"{path}:7: colour: unknown key (allowed: name, inner, more)",
    ]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("name: a\nname: b\n", 2, "key 'name' occurs twice"),
        ("name: [a\n", 2, "did not find expected ',' or ']'"),
        ("a: !!python/object/apply:os.getcwd []\n", 1, "a: could not determine a constructor"),
    ],
)
def test_what_is_no_plain_yaml_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    path = write(tmp_path, text)
    with refused("file-invalid") as caught:
        strict.load(Outer, path)
    assert caught.value.message.startswith(f"{path}:{line}: {problem}")


def test_missing_file_and_binary_file_are_usage_errors(tmp_path: Path) -> None:
    with refused("file-missing", tmp_path / "none.yaml"):
        strict.load(Outer, tmp_path / "none.yaml")
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with refused("file-invalid", path):
        strict.load(Outer, path)


def test_json_is_read_as_json(tmp_path: Path) -> None:
    """JSON is read correctly with characters that YAML treats differently: tab, U+0085, U+007F."""
    path = write(tmp_path, '{\n\t"name": "a\x85b\x7f",\n\t"inner": {"size": 3}\n}\n')
    assert strict.load_json(Outer, path) == Outer(name="a\x85b\x7f", inner=Inner(size=3))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", ":1: Expecting value"),
        ('{"name": "a",\n"inner": {"size": 3}', ":2: Expecting ',' delimiter"),
        ("name: a\ninner: {size: 3}\n", ":1: Expecting value"),
        ('{"name": "a", "name": "b"}', ": key 'name' occurs twice"),
        ('{"name": ' + "[" * 100_000, ": more than 32 nested levels"),
        ('{"name": "a",\n"inner": {"sizee": 3}}', ":2: inner.size: is missing"),
        ('{\n\t"name": 3,\n\t"inner": {"size": 3}\n}', ":2: name: Input should be a valid string"),
        ('{"name": ["\\ud83d\\ude00"], "inner": {"size": 3}}', ": name: Input should be a valid"),
        ("[]", ":1: the file: Input should be a valid dictionary"),
    ],
)
def test_faults_of_json_are_told(tmp_path: Path, text: str, fault: str) -> None:
    path = write(tmp_path, text)
    with refused("file-invalid") as caught:
        strict.load_json(Outer, path)
    assert caught.value.message.startswith(f"{path}{fault}")


@given(st.text(max_size=60))
def test_no_text_gives_anything_but_a_model_or_a_usage_error(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.yaml"
        path.write_text(text, encoding="utf-8", errors="replace")
        with pytest.raises(UsageError):
            strict.load(Outer, path)
