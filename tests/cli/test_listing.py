"""Tables of `trimaran list`: names are never shortened, so that users can copy them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from trimaran import cli
from trimaran.inventory import catalog


def listed(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(cli.app, ["list", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("kind", ["apps", "images", "targets", "recipes", "data"])
def test_a_name_is_whole_on_eighty_columns(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    shown = listed(monkeypatch, kind)
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    for name in catalog.names(kind):
        assert f"│ {name} " in shown


@pytest.mark.parametrize("columns", ["0", "20", "40"])
@pytest.mark.parametrize("kind", ["images", "recipes"])
def test_a_name_is_whole_on_any_terminal(
    monkeypatch: pytest.MonkeyPatch, kind: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = CliRunner().invoke(cli.app, ["list", kind]).stdout
    names = [line.split("│")[1].strip() for line in shown.splitlines() if "│" in line]
    assert sorted(filter(None, names)) == catalog.names(kind)
    words = shown.split()
    assert ("not" if kind == "images" else "ResNet-20") in words, "the other columns are there"


def test_json_has_more_than_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads(listed(monkeypatch, "recipes", "--json"))
    [row] = [row for row in rows if row["name"] == "resnet-imagenet/cpu-quickstart"]
    assert (row["purpose"], row["target"]) == ("quickstart", "cpu-2core")


def test_the_table_of_images_names_the_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = listed(monkeypatch, "images").splitlines()
    for name, architectures in (
        ("torch-cpu", "amd64, arm64"), ("resnet-imagenet-torch-cpu", "amd64, arm64"),
        ("torch-cuda12", "amd64"), ("resnet-imagenet-torch-cuda12", "amd64"),
    ):
        [line] = [line for line in lines if f"│ {name} " in line]
        assert line.split("│")[2].strip() == architectures


def test_an_app_image_is_shown_with_the_architectures_of_its_framework_image() -> None:
    framework = catalog.details("images", "torch-cuda12")
    app = catalog.details("images", "resnet-imagenet-torch-cuda12")
    assert (app["architectures"], app["lacks"].keys()) == (["amd64"], {"arm64"})
    for key in ("architectures", "lacks"):
        assert app[key] == framework[key]
