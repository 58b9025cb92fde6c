"""Test `inspect` and `sbom`: their output about a built image, and the files they write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimaran.cli import app
from trimaran.engines import BuiltImage, Description, selection
from trimaran.errors import BuildError, UsageError
from trimaran.hostfacts import host_facts
from trimaran.images import content_hash, definition
from trimaran.provenance import starts
from trimaran.provenance.inspection import Examination
from trimaran.reporting import Reporter

TINY = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")
BUILT = BuiltImage("tiny", "apptainer", "tiny.sif", "sha256:1", "f00d" * 16, 1_500_000)


class Engine:
    """An engine with one image that has one package of each kind; `starts` counts containers."""

    name = "apptainer"
    container = True

    def __init__(self) -> None:
        self.built: BuiltImage | None = BUILT
        self.starts = 0

    def find(self, image: definition.Image) -> BuiltImage | None:
        return self.built

    def damage(self, image: definition.Image) -> str | None:
        return None

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        if list(words) == ["-c", "pass"]:
            self.starts += 1
            return ""
        return json.dumps({
            "release": {"ID": "debian"}, "python_version": "3.11", "environment": {}, "hidden": [],
            "debian": [{"name": "libc6", "version": "2", "architecture": "amd64",
                        "source": "glibc", "licences": ["LGPL-2.1"]}],
            "python": [{"name": "six", "version": "1", "licences": ["MIT"], "installer": "pip"}],
            "files": {"/opt/big": {"type": "file", "mode": 420, "size": 4_000_000, "sha256": "0"}},
        })

    def test(self, image: definition.Image, built: BuiltImage, reporter: Reporter) -> None:
        reporter.detail("six is there")
        reporter.detail("self-test passed")

    def described(self, built: BuiltImage) -> Description:
        return Description({}, "python")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(selection, "select", lambda name: made)
    monkeypatch.setattr(definition, "load", lambda name: TINY)
    return made


def test_size_packages_licences_and_largest_items_are_shown(engine: Engine) -> None:
    done = CliRunner().invoke(app, ["inspect", "tiny"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    for text in ("2 MB, unpacked 4 MB", "1 debian, 1 python", "/opt/big", "weak copyleft"):
        assert text in said
    assert engine.starts == starts.WARM + 1  # the image is not a file here: no cold start
    plain = CliRunner().invoke(app, ["inspect", "tiny", "--json"])
    assert json.loads(plain.stdout)["selftest"] == []  # it takes long: for evidence only


def test_no_time_is_measured_under_emulation(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    file = tmp_path / "evidence.json"
    done = CliRunner().invoke(app, ["inspect", "tiny", "--arch", "arm64", "--evidence", str(file)])
    assert done.exit_code == 0, done.output
    assert engine.starts == 0
    found = Examination.model_validate_json(
        json.dumps(json.loads(file.read_text()) | {"host": host_facts().model_dump()}))
    assert (found.architecture, found.emulated, found.start) == ("arm64", True, None)
    assert found.command == "trimaran inspect tiny --engine apptainer --arch arm64"


@pytest.mark.parametrize(("limit", "refused"), [(None, False), (2, False), (1, True)])
def test_an_image_above_its_size_limit_fails_the_test(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, limit: int | None, refused: bool
) -> None:
    sizes = {} if limit is None else {TINY.architecture: limit}
    limited = TINY.model_copy(update={"max_megabytes": sizes})
    monkeypatch.setattr(definition, "load", lambda name: limited)
    done = CliRunner().invoke(app, ["test-image", "tiny"])
    assert (done.exit_code != 0) == refused
    if refused:
        assert isinstance(done.exception, BuildError)
        assert done.exception.code == "image-too-large"
        assert "/opt/big" in str(done.exception)
    shown = CliRunner().invoke(app, ["inspect", "tiny"])
    assert ("limit of the SIF" in shown.output) == (limit is not None)


def test_the_size_limit_is_not_an_input_of_the_image() -> None:
    limited = TINY.model_copy(update={"max_megabytes": {TINY.architecture: 1}})
    assert content_hash.content_of(limited) == content_hash.content_of(TINY)


def test_evidence_has_no_name_of_the_machine_and_is_never_overwritten(
    engine: Engine, own_place: Path
) -> None:
    words = ["inspect", "tiny", "--json", "--evidence", "site/results/images/tiny/now.json"]
    done = CliRunner().invoke(app, words)
    written = json.loads((own_place / words[-1]).read_text())
    shown = json.loads(done.stdout)
    del shown["host"]["hostname"]
    assert written == shown
    assert written["selftest"] == ["six is there", "self-test passed"]
    assert written["command"] == "trimaran inspect tiny --engine apptainer"
    assert written["version"] == TINY.version
    assert (written["size"], written["packages"]) == (1_500_000, {"debian": 1, "python": 1})
    assert written["largest"] == [{"path": "/opt/big", "size": 4_000_000}]
    again = CliRunner().invoke(app, words)
    assert isinstance(again.exception, UsageError)
    assert words[-1] in str(again.exception)


def test_an_image_that_is_not_built_is_one_error(engine: Engine) -> None:
    engine.built = None
    for words in (["inspect", "tiny"], ["sbom", "tiny", "-o", "x.json"]):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, BuildError)
        assert str(done.exception.hint) == "trimaran build tiny --engine apptainer"
    assert not Path("x.json").exists()


def test_a_bill_of_materials_is_written_and_not_overwritten(
    engine: Engine, own_place: Path
) -> None:
    words = ["sbom", "tiny", "-o", "tiny.cdx.json"]
    done = CliRunner().invoke(app, words)
    assert done.output == "tiny.cdx.json: 1 Debian and 1 Python packages\n"
    assert json.loads((own_place / "tiny.cdx.json").read_text())["bomFormat"] == "CycloneDX"
    assert isinstance(CliRunner().invoke(app, words).exception, UsageError)
    lost = CliRunner().invoke(app, ["sbom", "tiny", "-o", "missing/x.json"])
    assert isinstance(lost.exception, UsageError)
    assert lost.exception.code == "file-missing"
