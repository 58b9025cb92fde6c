"""The commands that the README shows are valid, and all except the long ones are executed."""

import re
import shutil
from pathlib import Path

import pytest

from resnet_imagenet.__main__ import COMMANDS, main
from trainkit import commands
from trainkit.data.dataset import open_dataset

pytestmark = pytest.mark.slow

README = (Path(__file__).parents[1] / "README.md").read_text().replace("\\\n", " ")
LONG = ("train", "benchmark")
SHOWN = [line.split() for line in re.findall(r"^python -m resnet_imagenet (.*)$", README, re.M)]


def test_every_command_is_shown() -> None:
    assert {words[0] for words in SHOWN} == set(COMMANDS)


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_a_shown_command_is_valid(words: list[str]) -> None:
    parser = commands.parser("resnet_imagenet", "", COMMANDS, {})
    assert parser.parse_args(words).command == words[0]


@pytest.mark.parametrize("words", [w for w in SHOWN if w[0] not in LONG], ids=" ".join)
def test_a_shown_command_runs(
    words: list[str], run: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test creates the files that the command names, and uses a smaller data set."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run, "run")
    shutil.copytree(run, "other-run", ignore=shutil.ignore_patterns("checkpoints"))
    image = open_dataset(tiny).records("test").encoded(0).tobytes()
    (tmp_path / "photos").mkdir()
    for name in ("photo.png", "photos/1.png"):
        (tmp_path / name).write_bytes(image)
    assert main([word.replace("/data/fashion-mnist", str(tiny)) for word in words]) == 0
