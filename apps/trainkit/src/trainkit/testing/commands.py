"""Tests of the command line of an app: descriptions, and errors before a command starts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainkit.testing.fixtures import Fixtures
from trainkit.testing.program import Program, described
from trainkit.testing.refusals import assert_reported

FRAMEWORKS = {"torch", "tensorflow", "keras", "jax"}
HELP = """
import contextlib, io, json, sys
from {module}.__main__ import main
said = {{}}
for verb in {verbs}:
    with contextlib.redirect_stdout(io.StringIO()) as told:
        try:
            main([verb, "--help"])
        except SystemExit as ended:
            assert ended.code == 0, verb
    said[verb] = told.getvalue()
print(json.dumps([said, sorted(sys.modules)]))
"""


class CommandContract(Fixtures):
    """Tests that `app.yaml`, `options.json` and `--help` agree, and errors name bad arguments."""

    def test_options_json_is_that_of_the_parser(self) -> None:
        committed = (self.app.folder / "options.json").read_text()
        assert committed == described(self.app.folder), "run: make generate-apps"

    def test_the_verbs_of_the_card_are_the_commands(self) -> None:
        assert list(self.app.card["verbs"]) == list(self.app.options)

    def test_each_verb_has_help_that_loads_no_framework(self) -> None:
        code = HELP.format(module=self.app.module, verbs=list(self.app.options))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stderr
        said, modules = json.loads(done.stdout)
        assert not FRAMEWORKS.intersection(modules)
        for verb, known in self.app.options.items():
            assert [name for name in known if f"--{name}" not in said[verb]] == []
            assert ("75 stopped early" in said[verb]) == ("resume" in known)

    def test_commands_in_its_readme_have_verbs_and_options_that_there_are(self) -> None:
        text = (self.app.folder / "README.md").read_text().replace("\\\n", " ")
        commands = re.findall(rf"^[^`|\n]*-m {self.app.module} (.*)", text, re.MULTILINE)
        assert commands, "it shows no command"
        for line in commands:
            verb, *words = line.split()
            named = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
            assert verb in self.app.options, line
            assert named - self.app.options[verb].keys() == set(), line

    @pytest.mark.slow
    def test_a_wrong_value_of_an_option_is_refused_by_its_name(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for verb, known in self.app.options.items():
            for name, about in known.items():
                for value in _wrong(about):
                    with pytest.raises(SystemExit, match="2"):
                        self.app.main(verb, f"--{name}={value}")
                    named = f"argument --{name}: "
                    assert_reported(capsys.readouterr().err, "argument-invalid", named)

    def test_an_option_that_is_none_is_refused_by_its_name(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for verb in self.app.options:
            for word in ("--no-such-option", "--ou"):  # no abbreviation of --out
                with pytest.raises(SystemExit, match="2"):
                    self.app.main(verb, word, "x")
                assert_reported(capsys.readouterr().err, "argument-invalid", word)

    def test_a_training_needs_an_out(
        self, program: Program, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = program.words(Path("out"))
        del words[words.index("--out") : words.index("--out") + 2]
        assert self.app.main(*words) == 2
        assert_reported(capsys.readouterr().err, "argument-missing", "--out")

    @pytest.mark.slow
    def test_data_that_is_not_there_is_named(
        self, data: Path | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        if data is None:
            pytest.skip("it reads no data set")
        out = tmp_path / "run"
        assert Program(self.app, tmp_path / "nowhere").main(out) == 3
        assert_reported(capsys.readouterr().err, "data-missing", "nowhere/dataset.json")
        assert not out.exists()


def _wrong(about: dict[str, Any]) -> Iterator[str]:
    """Yield invalid values of an option; `about` is its description in `options.json`."""
    if "enum" in about:
        yield "no-such-word"
    if about["type"] in ("integer", "number"):
        yield from ("none", "1e999")
        if "minimum" in about:
            yield str(about["minimum"] - 1)
        if "exclusiveMaximum" in about:
            yield str(about["exclusiveMaximum"])
