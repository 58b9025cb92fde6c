"""Tables of what there is: names stand whole, so that they can be copied."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from trimaran import catalog, cli


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


def test_json_has_more_than_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads(listed(monkeypatch, "recipes", "--json"))
    [row] = [row for row in rows if row["name"] == "resnet-imagenet/cpu-quickstart"]
    assert (row["purpose"], row["target"]) == ("quickstart", "cpu-2core")
