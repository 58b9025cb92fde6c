"""Test `trimaran compare`: tables, JSON, an HTML page, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import variantapp
from comparable import leave
from finished import start
from trimaran import cli
from trimaran.compare.noise import METHODS, NONE
from trimaran.recipes.library import RecipeFile


@pytest.fixture
def runs(recipe: RecipeFile, own_place: Path) -> list[str]:
    """Create two runs with different arguments; the second run fails. Return their paths."""
    return [
        str(leave(own_place / "a", recipe, (0.9,), (1000.0,), None, None, {})),
        str(leave(own_place / "b", recipe, (0.5,), (900.0,), None, None, {"epochs": 2})),
    ]


def ask(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.app, ["compare", *words], env={"COLUMNS": "200"})
    return done.exit_code, done.output


def test_what_differs_is_told_and_is_no_failure(runs: list[str]) -> None:
    code, said = ask(*runs)
    assert code == 0
    assert "B differs from A in: arguments epochs=2 instead of the recipe's." in said
    assert "val_top1: B is 40.00 points lower than A" in said
    assert METHODS[NONE] in said


def test_json_is_all_of_it(runs: list[str]) -> None:
    code, said = ask(*runs, "--json")
    found = json.loads(said)
    assert code == 0
    assert [run["source"] for run in found["runs"]] == runs
    assert found["metrics"][0]["differences"][0]["outcome"] == "not known"


def test_variants_have_a_table_and_drawings(checkout: Path, own_place: Path) -> None:
    variantapp.write(checkout)
    sloop = variantapp.recipe(checkout)
    ketch = variantapp.recipe(checkout, "cpu-2core-ketch-smoke", rig="ketch")
    paths = [
        str(variantapp.leave(own_place / "a", sloop, (0.5, 0.7), (99, 40), sent=0, size=1)),
        str(variantapp.leave(own_place / "b", ketch, (0.4, 0.8), (99, 16), sent=2.5e6, size=2)),
    ]
    code, said = ask(*paths, "--html", "page.html")
    assert code == 0
    [row] = [line for line in said.splitlines() if "│ ketch" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "ketch", "B", "2", "16.0", "2.50", "2.50", "3", "40.0, 80.0"]
    assert "score, %, after epochs 1, 2" in said
    page = (own_place / "page.html").read_text()
    assert "<h2>By rig</h2>" in page
    for text in ("score, % over epochs: sloop from 50 to 70; ketch from 40 to 80",
                 "score, % over time in min: sloop from 50 to 70; ketch from 40 to 80",
                 "lap, s: sloop 40.0, 1.00x; ketch 16.0, 2.50x"):
        assert f'aria-label="{text}"' in page
    code, said = ask(*paths, "--json")
    [first, second] = json.loads(said)["variants"]["groups"]
    assert (first["time"], second["speedup"], second["lines"]) == (40, 2.5, 3)


def test_a_page_is_written_and_replaces_no_link(runs: list[str], own_place: Path) -> None:
    (own_place / "precious").write_text("precious")
    (own_place / "page.html").symlink_to(own_place / "precious")
    assert ask(*runs, "--html", "page.html")[0] == 0
    assert (own_place / "precious").read_text() == "precious"
    assert "<!doctype html>" in (own_place / "page.html").read_text()


def test_a_page_that_cannot_be_written_is_named(
    runs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["trimaran", "compare", *runs, "--html", "missing/p.html"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "[file-missing]: missing/p.html:" in capsys.readouterr().err


def test_runs_that_cannot_be_compared_have_a_code_and_leave_no_page(
    runs: list[str], recipe: RecipeFile, own_place: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    start(own_place / "unfinished", recipe)
    for words, code in (
        (["unfinished"], "run-incomplete"), (["nowhere"], "file-missing"),
        (runs[:1], "run-repeated"),
        (["--pool", "x"], "argument-missing"), ([runs[1], "--pool", "x"], "name-unknown"),
    ):
        monkeypatch.setattr("sys.argv", ["trimaran", "compare", runs[0], *words, "--html", "p"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2
        shown = capsys.readouterr().err
        assert f"[{code}]" in shown
    (Path(runs[1]) / "result.json").unlink()
    monkeypatch.setattr("sys.argv", ["trimaran", "compare", *runs, "--html", "p"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 4
    assert not (own_place / "p").exists()
