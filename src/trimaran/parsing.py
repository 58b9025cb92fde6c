"""Parse YAML and JSON with limits; a text that violates a rule always raises `Malformed`.

YAML files are written by people: they are small, and errors in them need a line and a key. JSON
files are written by Trimaran and other programs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.composer import Composer

from trimaran.terminal_safety import excerpt

Location = tuple[str | int, ...]

YAML_BYTES = 1024 * 1024
"""Maximum size of a YAML file in bytes; the largest file of the project is fifty times smaller."""

JSON_BYTES = 64 * 1024 * 1024
"""Maximum size of a JSON file in bytes; a data set with ten thousand shards needs 4 MB."""

NODES = 20_000
"""Maximum number of keys and values of a YAML file after all aliases are expanded."""

DEPTH = 32
"""Maximum number of nested levels of lists and mappings."""

DIGITS = 100
"""Maximum length of a number in characters."""


class Malformed(ValueError):  # noqa: N818 - an outcome that the caller always handles
    """The error that a text is not YAML or JSON, or exceeds a limit.

    Attributes:
        line: the line of the problem, counted from 1 (None: unknown).
    """

    def __init__(self, problem: str, *, line: int | None = None, at: Location = ()) -> None:
        super().__init__(f"{dotted(at)}: {problem}" if at else problem)
        self.line = line


class NotYaml(Malformed):
    """The error that a text violates the grammar of YAML, for example by a word such as `@a`."""


@dataclass(frozen=True)
class Document:
    """The content of a YAML text, and the line of each of its keys and items."""

    content: object
    lines: dict[Location, int]


def dotted(at: Location) -> str:
    """Return the key path of a value for messages, such as `layers.0.size`."""
    return ".".join(str(part) for part in at)


def line_of(lines: dict[Location, int], at: Location) -> int:
    """Return the line number of the key path `at`, or of its longest prefix that has one.

    Return 1 if no prefix has a line number.
    """
    # A location of pydantic may contain names of union members, and an alias has one line only.
    while at and at not in lines:
        at = at[:-1]
    return lines.get(at, 1)


def parse_yaml(text: str) -> Document:
    """Parse the YAML in `text`, and return its content and lines.

    Raises:
        Malformed: the text is not YAML, repeats a key, has a value that does not match its tag, or
            exceeds a limit.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        content = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise NotYaml(str(error.problem), line=line) from error
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise Malformed(f"not YAML: {error.reason}", line=line) from error
    except Malformed:
        raise
    except (OverflowError, ValueError) as error:
        raise Malformed(f"not YAML: {error}") from error  # such as the escape "\\U99999999"
    _check_values(content, NODES, loader.lines)
    return Document(content, loader.lines)


def parse_json(text: str | bytes) -> Any:
    """Parse the JSON in `text`, and return its content.

    Raises:
        Malformed: the text is not JSON, repeats a key, or exceeds a limit.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        content = _JSON.decode(text)
        if not _is_flat(text):
            _check_values(content, len(text), {})
    except json.JSONDecodeError as error:
        raise Malformed(error.msg, line=error.lineno) from error
    except RecursionError:
        raise Malformed(_TOO_DEEP) from None
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 text (byte {error.start})") from error
    return content


def _is_flat(text: str) -> bool:
    r"""Return True if a quick test shows that the JSON text needs no full check of its values.

    This makes long metrics logs fast to read. Such a text is ASCII, has too few brackets to exceed
    the nesting limit, and has no `\u` escape, which could stand for a lone surrogate.
    """
    return text.isascii() and "\\u" not in text and text.count("[") + text.count("{") < DEPTH


_HALVES = re.compile("[\ud800-\udfff]")

_TOO_DEEP = f"more than {DEPTH} nested levels"


def _check_values(content: object, nodes: int, lines: dict[Location, int]) -> None:
    """Check the nesting and the characters of all values; there may be at most `nodes` values.

    A value counts again for each alias that refers to it.

    Raises:
        Malformed: the content exceeds a limit, or a text has NUL or half of a surrogate pair.
    """
    def refused(problem: str) -> Malformed:
        return Malformed(problem, line=line_of(lines, at) if lines else None, at=at)

    waiting: list[tuple[object, Location]] = [(content, ())]
    count = 1
    while waiting:
        value, at = waiting.pop()
        if isinstance(value, str) and not value.isascii() and _HALVES.search(value):
            raise refused(f"{excerpt(value)} contains half of a surrogate pair")
        if isinstance(value, str) and "\0" in value:  # file names cannot contain it
            raise refused(f"{excerpt(value)} contains the character NUL")
        if not isinstance(value, dict | list | set | tuple):
            continue
        count += len(value)
        if count > nodes:
            raise refused(f"more than {nodes:,} keys and values, including those of aliases")
        if len(at) == DEPTH:
            raise refused(_TOO_DEEP)
        if isinstance(value, dict):
            waiting += [(key, at) for key in value]
        items = value.items() if isinstance(value, dict) else enumerate(value)
        waiting += [(below, (*at, key)) for key, below in items]


def _integer(digits: str) -> int:
    if len(digits) > DIGITS:
        raise Malformed(f"a number of {len(digits):,} digits")
    return int(digits)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Malformed(f"key {excerpt(twice)} occurs twice")
    return found


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer)


class _Loader(Composer, yaml.CSafeLoader):
    """A loader of safe YAML that records the line and key of each node, and enforces the limits.

    A repeated key is an error. The C library libyaml scans the text, because a command reads dozens
    of files and would spend most of its time there; the nodes are composed in Python.
    """

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self.lines: dict[Location, int] = {(): 1}
        self._places: dict[yaml.Node, Location] = {}
        self._path: list[str | int] = []
        self._nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose the next node, and record its line; `index` is None for a key of a mapping."""
        event: Any = self.peek_event()
        part = _part(index)
        if part is not None:
            self._path.append(part)
            self.lines[tuple(self._path)] = _line(index if isinstance(index, yaml.Node) else event)
        place = tuple(self._path)
        if isinstance(parent, yaml.MappingNode) and index is None:
            self._check_key(event)
        self._nodes += 1
        if self._nodes > NODES or len(place) > DEPTH:
            problem = _TOO_DEEP if len(place) > DEPTH else f"more than {NODES:,} keys and values"
            raise Malformed(problem, line=_line(event), at=place)
        node = super().compose_node(parent, index)
        if node is not None:
            self._places.setdefault(node, place)
        if part is not None:
            self._path.pop()
        return node

    def _check_key(self, event: yaml.Event) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            raise Malformed("a key is not a word", line=_line(event), at=tuple(self._path))

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct the value of `node`, or raise Malformed with its line and key."""
        try:
            return super().construct_object(node, deep=deep)
        except Malformed:
            raise
        except yaml.MarkedYAMLError as error:
            raise self._fault(str(error.problem), node) from error
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            kind = node.tag.rpartition(":")[2]
            raise self._fault(f"{excerpt(node.value)} is not a valid {kind}", node) from error

    def unique_mapping(self, node: yaml.Node) -> dict[object, object]:
        """Construct a mapping, and check that no key occurs twice."""
        if not isinstance(node, yaml.MappingNode):
            raise self._fault("is not a mapping", node)
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise self._fault(f"key {excerpt(key)} occurs twice", key_node)
            seen.add(key)
        return self.construct_mapping(node, deep=True)

    def integer(self, node: yaml.ScalarNode) -> int:
        """Return the integer in a YAML scalar; reject a scalar of more than `DIGITS` characters."""
        return int(self.construct_yaml_int(self._short(node)))

    def real(self, node: yaml.ScalarNode) -> float:
        """Construct a float of at most `DIGITS` characters."""
        return float(self.construct_yaml_float(self._short(node)))

    def _short(self, node: yaml.ScalarNode) -> yaml.ScalarNode:
        # Python is slow with longer numbers, or refuses to print them.
        if len(node.value) > DIGITS:
            raise self._fault(f"a number of {len(node.value):,} digits", node)
        return node

    def _fault(self, problem: str, node: yaml.Node) -> Malformed:
        return Malformed(problem, line=_line(node), at=self._places.get(node, ()))


def _line(where: yaml.Node | yaml.Event) -> int:
    return where.start_mark.line + 1 if where.start_mark else 1


def _part(index: Any) -> str | int | None:
    """Return the last item of a node's key path: a key of a mapping, or the index in a list.

    Return None if PyYAML passes another kind of `index`, such as None for the root node.
    """
    if isinstance(index, yaml.ScalarNode):
        text = str(index.value)
        # pydantic reports the key of a mapping with integer keys as an int.
        return int(text) if text.isascii() and text.isdigit() and len(text) < DIGITS else text
    return index if isinstance(index, int) else None


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.unique_mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.real)
