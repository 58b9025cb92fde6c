"""Write a made-up app with variants, whose option `rig` has three values, and runs of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import yaml

from finished import DATA, SIF, launch
from samples import GOOD
from trimaran.recipes import library
from trimaran.recipes.cards import Argument
from trimaran.recipes.library import RecipeFile
from trimaran.run import run_directory

APP = "sailing"

CARD = """\
schema: 1
title: Boats
framework: tensorflow
module: sailing
verbs: {train: learn to sail}
data: {kinds: [class], sets: one}
metrics:
  score: {key: eval_score, unit: "%", factor: 100, better: higher, digits: 1, result: score,
          least: 0, most: 100, panel: score}
  lap: {key: lap_seconds, unit: s, better: lower, digits: 1, least: 0}
  freight: {key: sent_bytes, unit: MB, factor: 1.0e-6, better: lower, digits: 2}
neutral_options: [seed]
variants:
  option: rig
  further: [spinnaker]
  follow: [masts]
  files: {sloop: src/sloop.py, ketch: src/ketch.py, yawl: src/yawl.py}
  per_epoch: score
  time: lap
  sent: freight
"""

OPTIONS = {"schema": 1, "verbs": {"train": {"description": "learn to sail", "options": {
    "rig": {"type": "string", "enum": ["sloop", "ketch", "yawl", "raft"], "default": "sloop",
            "description": "which boat"},
    "spinnaker": {"type": "boolean", "default": False, "description": "a large sail"},
    "masts": {"type": "integer", "default": 1, "description": "how many"},
    "crew": {"type": "integer", "default": 2, "description": "how many"},
    "seed": {"type": "integer", "default": 0, "description": "the seed"},
}}}}

FILES = {
    "sloop": '"""A sloop."""\n\nimport sea\n\n\ndef main():\n    """Sail."""\n    hoist(1)\n'
             "    sail()\n",
    "ketch": '"""A ketch."""\n\nimport sea\nimport wind\n\n\ndef main():\n    """Sail fast."""\n'
             "    hoist(2)\n\n    trim()\n    sail()\n",
    "yawl": '"""A yawl."""\n\n\ndef main():\n    hoist(1)\n    sail()\n',
}
"""Variant -> code. Without docstrings, empty lines and imports, the file of the variant `ketch`
differs from that of `sloop` by one removed line and two added lines.
"""


def write(checkout: Path) -> Path:
    """Write the app with the three files of its variants into `checkout`; return its folder."""
    folder = checkout / "apps" / APP
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "app.yaml").write_text(CARD)
    (folder / "options.json").write_text(json.dumps(OPTIONS))
    for name, text in FILES.items():
        (folder / f"src/{name}.py").write_text(text)
    return folder


def recipe(checkout: Path, name: str = "cpu-quickstart", **args: Argument) -> RecipeFile:
    """Write a recipe of the app with these arguments, and return it."""
    path = checkout / f"recipes/{APP}/{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    expected = [{"metric": "score", "unit": "%", "at": "end", "value": 50, "lower": -0.9,
                 "source": "A paper (2019)"}]
    path.write_text(yaml.safe_dump({
        **GOOD, "app": APP, "purpose": name.rpartition("-")[2], "args": args, "expected": expected,
    }))
    return library.load(f"{APP}/{name}")


def leave(
    directory: Path, of: RecipeFile, scores: Sequence[float | None], laps: Sequence[float | None],
    *, sent: float | None = None, size: int | None = None,
    changed: dict[str, Argument] | None = None,
) -> Path:
    """Create a completed run, whose epochs take 100 s each.

    `scores` and `laps` are the values of the metrics `score` and `lap`, one for each epoch; None
    for an epoch without the value.
    """
    changed = changed or {}
    record = run_directory.start(
        directory, of, changed, SIF, [DATA], launch(of, changed, SIF))
    if size is not None:
        told = {"strategy": {"size": size}}
        (directory / "environment.json").write_text(json.dumps(told))
    lines: list[dict[str, object]] = [{"time_ms": 5000, "key": "run_start"}]
    if "seed" in changed:
        lines.append({"time_ms": 5000, "key": "seed", "value": changed["seed"]})
    if sent is not None:
        lines.append({"time_ms": 6000, "key": "sent_bytes", "value": sent})
    for epoch, (score, lap) in enumerate(zip(scores, laps, strict=True), start=1):
        where = {"step": 10 * epoch, "epoch_num": epoch}
        lines += [
            {"time_ms": 5000 + 100_000 * epoch + late, "key": key, "value": value,
             "metadata": where}
            for late, key, value in ((0, "lap_seconds", lap), (2000, "eval_score", score))
            if value is not None
        ]
    end = {"status": "success", "step": 10 * len(scores)}
    lines.append({"time_ms": 10_000_000, "key": "run_stop", "metadata": end})
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    last = next(score for score in reversed(scores) if score is not None)
    result = {"status": "success", "steps": 10 * len(scores), "evaluation": {"score": last}}
    (directory / "result.json").write_text(json.dumps(result))
    run_directory.finish(directory, record, "completed", 0)
    return directory
