"""Fixtures of the contract tests: the app, its data, and a finished training."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

import pytest

from trainkit.testing.program import App, Program


class Fixtures:
    """The app, and one finished training that all tests of a class share."""

    app: ClassVar[App]

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls) -> Path | None:
        """Return a small data set for the short training, or None if the app reads no data set."""
        return None

    @pytest.fixture(scope="class")
    @classmethod
    def program(cls, data: Path | None) -> Program:
        """Return the command `train` of the app, with the data set `data`."""
        return Program(cls.app, data)

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return the parent folder of the finished training; tests must not write files to it."""
        return tmp_path_factory.mktemp("whole")

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls, program: Program, place: Path) -> Path:
        """Return the folder of a finished training, which tests must not change.

        The training runs with a home folder that does not exist.
        """
        (place / "tmp").mkdir()
        program.train(place / "run", HOME=str(place / "home"), TMPDIR=str(place / "tmp"))
        return place / "run"

    @pytest.fixture
    def unfinished(self, whole: Path, tmp_path: Path) -> Path:
        """Return a copy of the finished training without its `result.json`."""
        out = tmp_path / "run"
        shutil.copytree(whole, out)
        (out / "result.json").unlink()
        return out
