"""Tests that the tests of the app contract cover every strategy of an app."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainkit.testing import App
from trainkit.testing.program import launcher


def test_a_strategy_that_nothing_here_can_start_is_no_less_tested(tmp_path: Path) -> None:
    strategy = {"enum": ["single", "ddp", "gloo"]}
    described = {"verbs": {"train": {"options": {"strategy": strategy}}}}
    (tmp_path / "options.json").write_text(json.dumps(described))
    app = App(tmp_path, training="", steps=1, diverging="", alone="", shared="")
    assert app.strategies == ["ddp", "gloo"]
    assert "torch.distributed.run" in launcher("ddp")
    with pytest.raises(AssertionError, match="nothing here says how ranks of 'gloo' are started"):
        launcher("gloo")
