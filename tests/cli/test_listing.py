"""Tables of `trimaran list`: names are never shortened, so that users can copy them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import sifs
from trimaran import cli
from trimaran.engines import store
from trimaran.images import definition
from trimaran.inventory import catalog
from trimaran.inventory.catalog import LocalImage


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
    found: dict[str, list[str]] = {}
    for line in listed(monkeypatch, "images").splitlines():
        if line.startswith("│"):
            name, architecture = (cell.strip() for cell in line.split("│")[1:3])
            found.setdefault(name or list(found)[-1], []).append(architecture)
    assert found["torch-cpu"] == found["resnet-imagenet-torch-cpu"] == ["amd64", "arm64"]
    assert found["torch-cuda12"] == found["resnet-imagenet-torch-cuda12"] == ["amd64"]


def test_the_table_of_images_on_this_machine_has_whole_digests_on_eighty_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = max(definition.names(), key=len)
    record = store.Record(
        name=name, engine="apptainer", reference="/image.sif", digest=sifs.DIGEST,
        content="c" * 64, inputs="a" * 64, built="2026-01-01T00:00:00Z", base_name="debian",
        base_digest="sha256:1", size=5_432_000_000, architecture="arm64",
    )
    here = [LocalImage(record, "pulled", current=True)] * 2
    monkeypatch.setattr(catalog, "local_images", lambda models: {
        model.name: here if model.name == name else [] for model in models})
    shown = listed(monkeypatch, "images")
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    assert shown.count(f"│ {sifs.DIGEST.removeprefix('sha256:')[:12]} ") == len(here)


def test_an_app_image_is_shown_with_the_architectures_of_its_framework_image() -> None:
    framework = catalog.details("images", "torch-cuda12")
    app = catalog.details("images", "resnet-imagenet-torch-cuda12")
    assert (app["architectures"], app["lacks"].keys()) == (["amd64"], {"arm64"})
    for key in ("architectures", "lacks"):
        assert app[key] == framework[key]
