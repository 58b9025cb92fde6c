"""The page "Your own script" shows or names each script in the folder `porting`.

The script `porting/prepare.py` can read packed data.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from shards.formats import webdataset
from shards.formats.records import Record
from shards.kinds import Kind
from showncommands import DOCS

PAGE = DOCS / "tutorials/own-script.md"
SCRIPTS = DOCS / "tutorials/porting"


def test_every_script_is_shown_and_every_training_is_started() -> None:
    text = PAGE.read_text()
    shown = re.findall(r"<!-- (?:script|diff): ([^>]+) -->", text)
    named = {name for paths in shown for name in paths.split()}
    trainings = {path.name for path in SCRIPTS.iterdir()} - {"prepare.py"}
    assert named == {f"porting/{name}" for name in trainings}
    for name in trainings | {"prepare.py"}:
        assert re.search(rf"^(?!<!--).*scripts/{re.escape(name)}\b", text, re.MULTILINE), name


def test_the_plain_scripts_are_short() -> None:
    for name in ("keras_plain.py", "torch_plain.py"):
        code = [line for line in (SCRIPTS / name).read_text().splitlines() if line.strip()]
        assert len(code) <= 40


def test_the_data_of_the_page_is_one_packed_shard(tmp_path: Path) -> None:
    writer = webdataset.Writer(tmp_path, "train-00000", Kind())
    for number in range(3):
        out = io.BytesIO()
        Image.new("L", (28, 28), 7 * number).save(out, "PNG")
        writer.add(Record(number, "", (2 * number,), (out.getvalue(),), "png"))
    writer.finish()
    words = [str(SCRIPTS / "prepare.py"), "train-00000.tar", "images.npz"]
    subprocess.run([sys.executable, *words], check=True, cwd=tmp_path)
    with np.load(tmp_path / "images.npz") as found:
        images, labels = found["images"], found["labels"]
    assert images.dtype == labels.dtype == np.uint8
    assert images.tolist() == [[[7 * number] * 28] * 28 for number in range(3)]
    assert labels.tolist() == [0, 2, 4]
