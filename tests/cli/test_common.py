"""After a signal, a command cleans up, prints one message, and exits with the documented code."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from finished import IMAGE, SIF, start, write_recipe
from trimaran import cli, process
from trimaran.cli import common
from trimaran.plan import nearest
from trimaran.run.additions import Modification
from trimaran.run.record import ImageRecord


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


OVERLAY = [Modification(kind="overlay", path="/x.img", sha256="ab" * 32)]


@pytest.mark.parametrize(("image", "modified", "can"), [
    (SIF, [], True), (IMAGE, [], False), (SIF, OVERLAY, False),
])
def test_evidence_is_only_asked_for_where_it_is_accepted(
    image: ImageRecord, modified: list[Modification], can: bool, checkout: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(nearest, "sentences", lambda *_: iter(["the nearest target"]))
    record = start(tmp_path / "run", write_recipe(checkout), image=image)
    common._help_without_reference(
        tmp_path / "run", record.model_copy(update={"modified": modified}))
    said = capsys.readouterr().out
    assert "the nearest target" in said
    assert ("trimaran evidence add" in said) == can
