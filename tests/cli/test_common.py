"""A signal ends every command after its cleanup, with one message and the documented exit code."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from trimaran import cli, process


@pytest.mark.parametrize(
    ("words", "work"),
    [
        ("data verify .", "trimaran.data.dataset_json.verify_folder"),
        ("data pack . -o packed", "trimaran.data.packing.class_folders.listing"),
        ("report .", "trimaran.cli.runs.refuse_folder"),
        ("fetch torch-cpu --offline", "trimaran.images.wheelhouse.fetch"),
        ("build torch-cpu --engine host", "trimaran.engines.host.Host.build"),
        ("unbundle b.tar", "trimaran.bundles.unpack.extract"),
    ],
)
@pytest.mark.parametrize("signum", process.STOPS)
def test_a_stop_is_said_and_has_its_code(
    words: str, work: str, signum: signal.Signals, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:
    cleared = tmp_path / "half-written"

    def stopped(*_: object, **__: object) -> None:
        cleared.touch()
        try:
            os.kill(os.getpid(), signum)
            time.sleep(10)
        finally:
            cleared.unlink()

    if words.startswith("data pack"):
        (tmp_path / "work/source").mkdir()
        words = words.replace(" . ", " source ")
    monkeypatch.setattr(work, stopped)
    monkeypatch.setattr(sys, "argv", ["trimaran", *words.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    said = capsys.readouterr().err
    assert "interrupted: " in said
    assert "hint: " in said
    assert not cleared.exists(), "SIGTERM and SIGHUP clear up as Ctrl-C does"
