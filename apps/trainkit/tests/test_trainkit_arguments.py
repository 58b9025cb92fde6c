"""Tests of options that are made from dataclass fields, and of the rules of the --out folder."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field
import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from trainkit import options, outputs
from trainkit.exits import ArgumentError
from trainkit.options import option
from trainkit.strategy import Strategy
from trainkit.testing.refusals import refused


@dataclass(frozen=True)
class Settings:
    """Sample options."""

    epochs: int = option(90, "passes over the images", options.positive_int)
    base_lr: float = option(0.1, "learning rate", options.positive_float)
    data: Path | None = option(None, "folder", Path)
    model: str = option("a", "network", choices=("a", "b"))
    synthetic: bool = option(False, "no data")
    runs: list[Path] | None = option(None, "folders", Path, nargs="+")


def parse(*arguments: str) -> Settings:
    parser = argparse.ArgumentParser(exit_on_error=False)
    options.add_options(parser, Settings)
    return options.collect(Settings, parser.parse_args(arguments))


def test_defaults_and_values() -> None:
    assert parse() == Settings(90, 0.1, None, "a", False)
    assert parse(
        "--epochs", "3", "--base-lr", "1e-2", "--data", "d", "--model", "b", "--synthetic"
    ) == Settings(3, 0.01, Path("d"), "b", True)
    assert parse("--no-synthetic").synthetic is False
    assert parse("--runs", "a", "b").runs == [Path("a"), Path("b")]


@dataclass(frozen=True)
class Changed(Settings):
    """Sample options, in which `epochs` replaces the older name `old_epochs`."""

    RENAMED: ClassVar[dict[str, str]] = {"old_epochs": "epochs"}


@pytest.mark.parametrize("words", [["--old-epochs", "3"], ["--old-epochs=3"], ["--old-epochs"]])
def test_an_old_name_of_an_option_is_told_the_new_one(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    options.add_options(parser, Changed)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "--old-epochs" in said
    assert "--epochs " in said
    assert "--old-epochs" not in parser.format_help()
    assert options.collect(Changed, parser.parse_args([])).epochs == 90


def test_help_shows_each_option_with_its_default() -> None:
    parser = argparse.ArgumentParser()
    options.add_options(parser, Settings)
    text = parser.format_help()
    for part in ("--epochs", "passes over the images", "(default: 90)", "--no-synthetic"):
        assert part in text
    assert "default: None" not in text


def test_the_options_as_data_say_what_the_parser_takes() -> None:
    said = json.loads(options.described({"train": (Settings, "train it")}))["verbs"]["train"]
    assert said["description"] == "train it"
    assert said["options"]["epochs"] == {
        "type": "integer", "minimum": 1, "exclusiveMaximum": 2**63, "default": 90,
        "description": "passes over the images",
    }
    assert said["options"]["model"]["enum"] == ["a", "b"]
    assert said["options"]["synthetic"]["type"] == "boolean"
    assert said["options"]["data"] == {"type": "string", "default": None, "description": "folder"}
    assert "renamed" not in said
    changed = json.loads(options.described({"train": (Changed, "train it")}))["verbs"]["train"]
    assert changed["renamed"] == {"old-epochs": "epochs"}


@pytest.mark.parametrize("kind", list(options._RANGES))
def test_a_range_as_data_is_that_of_the_parser(kind: Callable[[str], float]) -> None:
    limits = options._RANGES[kind]
    for text in ("-1", "0", "0.5", "1", "2"):
        try:
            kind(text)
            taken = True
        except argparse.ArgumentTypeError:
            taken = False
        value = float(text)
        assert taken == (
            (limits["type"] == "number" or (value.is_integer() and "." not in text))
            and value >= limits.get("minimum", value)
            and value > limits.get("exclusiveMinimum", value - 1)
            and value < limits.get("exclusiveMaximum", value + 1)
        ), text


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (options.positive_int, "0", "at least 1"),
        (options.positive_int, "two", "whole number"),
        (options.non_negative_int, "-1", "at least 0"),
        (options.non_negative_int, "99999999999999999999999", "below 9223372036854775808"),
        (options.positive_float, "0", "above 0"),
        (options.positive_float, "nan", "finite"),
        (options.non_negative_float, "-0.1", "at least 0"),
        (options.fraction, "1", "below 1"),
        (options.fraction, "half", "a number"),
        (options.up_to(64), "65", "below 65, got 65"),
        (options.non_negative_int, "9" * 5000, r"from 0 to 9223372036854775807, got '9{40}…'"),
        (options.positive_float, "1e39", r"at most 1e\+38, got 1e39"),
    ],
)
def test_wrong_values_say_what_is_allowed(kind, text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        kind(text)


def test_right_values() -> None:
    assert options.non_negative_int("0") == 0
    assert options.non_negative_float("0") == 0.0
    assert options.fraction("0.9") == 0.9


def open_new(folder: Path, resume: str = "never", **identity: object) -> outputs.Outputs:
    return outputs.open_outputs(
        folder, resume, identity,
        strategy=Strategy(), keep=2, packages=["trainkit"], warn=lambda text: None,
    )


def test_a_new_folder_is_made_and_says_where_it_ran(tmp_path: Path) -> None:
    out = open_new(tmp_path / "a" / "b")
    assert out.state is None
    assert (tmp_path / "a" / "b" / "environment.json").exists()
    out.log.close()


def test_a_folder_that_cannot_be_made_is_a_wrong_argument(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused(ArgumentError, "file-unwritable", tmp_path / "file" / "run"):
        open_new(tmp_path / "file" / "run")


def test_files_of_others_do_not_make_a_run(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert outputs.is_finished(tmp_path, "never", warn=print) is False


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "checkpoints"])
def test_an_existing_run_is_never_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    for resume in ("never", str(tmp_path / "elsewhere" / "step-00000001.npz")):
        with refused(ArgumentError, "run-not-empty", tmp_path, f"({name})"):
            outputs.is_finished(tmp_path, resume, warn=print)


def test_other_settings_than_the_checkpoints_are_refused(tmp_path: Path) -> None:
    out = open_new(tmp_path, seed=1, epochs=3)
    out.log.close()
    identity = {"seed": 1, "epochs": 3}
    out.checkpoints.save(5, {"step": 5, "identity": identity, "metrics_offset": 0})
    again = open_new(tmp_path, "auto", seed=1, epochs=3)
    again.log.close()
    assert again.state is not None
    with refused(ArgumentError, "run-changed", "epochs: 3 ", " 4 "):
        open_new(tmp_path, "auto", seed=1, epochs=4)
    with refused(ArgumentError, "run-changed", "batch: None ", " 8 "):
        open_new(tmp_path, "auto", seed=1, epochs=3, batch=8)
    with refused(ArgumentError, "run-changed", "epochs: 3 ", " None "):
        open_new(tmp_path, "auto", seed=1)
