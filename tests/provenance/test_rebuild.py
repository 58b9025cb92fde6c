"""Test `build --check`: the result of a second build, and the corresponding exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refusals import refused
from trimaran.cli import app
from trimaran.engines import BuiltImage, Description, image_contents, selection
from trimaran.errors import BuildError, UsageError
from trimaran.images import definition
from trimaran.provenance import rebuild
from trimaran.reporting import Reporter, Silent

TINY = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")
FIRST = BuiltImage("tiny", "apptainer", "tiny.sif", "sha256:1", "f00d" * 16, 1)
CREATED = "org.opencontainers.image.created"


class Engine:
    """An engine with one image; its second build of the image has the content `second`.

    The environment variable `variable` has another value in each container.
    """

    name = "apptainer"
    container = True

    def __init__(
        self, *, second: str = "content", label: str = "1", variable: str = "", **changes: str
    ) -> None:
        self.second, self.label, self.variable = second, label, variable
        self.made = replace(FIRST, reference="again.sif", **changes)
        self.built: BuiltImage | None = FIRST

    def find(self, image: definition.Image) -> BuiltImage | None:
        return self.built

    def damage(self, image: definition.Image) -> str | None:
        return None

    @contextmanager
    def again(
        self, image: definition.Image, *, base: str | None, reporter: Reporter
    ) -> Iterator[BuiltImage]:
        yield self.made

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        digest = self.second if built is self.made else "content"
        return json.dumps({
            "release": {}, "python_version": "3.11", "debian": [],
            "environment": {self.variable: built.reference} if self.variable else {},
            "python": [], "hidden": [],
            "files": {"/a": {"type": "file", "mode": 420, "size": 1, "sha256": digest}},
        })

    def described(self, built: BuiltImage) -> Description:
        return Description({CREATED: self.label if built is self.made else "1"}, "python")


def check(engine: Engine, image: definition.Image = TINY) -> rebuild.Comparison:
    return rebuild.check(engine, image, base=None, reporter=Silent())  # type: ignore[arg-type]


def test_equal_bytes_are_said_to_be_equal() -> None:
    found = check(Engine())
    assert (found.equal, found.identical, found.differences) == (True, True, [])


def test_another_date_alone_is_equal_but_not_identical() -> None:
    found = check(Engine(label="2", digest="sha256:2"))
    assert (found.equal, found.identical) == (True, False)
    assert [difference.name for difference in found.differences] == [CREATED]


@pytest.mark.parametrize(("variable", "equal"), [("KERAS_HOME", True), ("OMP_NUM_THREADS", False)])
def test_the_folder_of_a_cache_may_differ_and_no_other_variable(
    variable: str, equal: bool
) -> None:
    found = check(Engine(variable=variable), definition.load("tensorflow-cpu"))
    assert [difference.name for difference in found.differences] == [variable]
    assert found.equal is equal


def test_another_file_is_a_difference() -> None:
    found = check(Engine(second="other", digest="sha256:2"))
    assert not found.equal


def test_it_compares_with_what_was_recorded_not_with_what_is_there_now() -> None:
    engine = Engine()
    image_contents.record(engine, FIRST)  # type: ignore[arg-type]
    engine.second = "other"
    engine.made = FIRST  # the probe would see the second content in the first image, too
    assert not check(engine).equal


def test_nothing_built_or_another_base_is_an_error() -> None:
    engine = Engine()
    engine.built = None
    with pytest.raises(BuildError, match="not built"):
        check(engine)
    with refused("base-different", "tiny", kind=BuildError):
        check(Engine(inputs="another"))


def test_the_host_engine_has_nothing_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    host = selection.select("host")
    monkeypatch.setattr(host, "find", lambda image: FIRST)
    with pytest.raises(UsageError, match="no images"):
        rebuild.check(host, TINY, base=None, reporter=Silent())


@pytest.mark.parametrize(("second", "code", "said"), [
    ("content", 0, "equal byte by byte (0 packages and 1 files compared)"),
    ("other", 3, "file /a: file 644 content -> file 644 other"),
])
def test_the_exit_code_says_it(
    monkeypatch: pytest.MonkeyPatch, second: str, code: int, said: str
) -> None:
    monkeypatch.setattr(selection, "select", lambda name: Engine(second=second))
    monkeypatch.setattr(definition, "load", lambda name: TINY)
    done = CliRunner().invoke(app, ["build", "tiny", "--check"])
    assert done.exit_code == code, done.output
    assert said in done.output
