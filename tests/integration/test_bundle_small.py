"""Real bundles of a small app: a required signature, and an interrupted run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import tinyapp
from trimaran.engines.apptainer import Apptainer

pytestmark = [pytest.mark.engine("apptainer"), pytest.mark.timeout(280)]


def bundle(env: dict[str, str], folder: Path, *words: str) -> Path:
    """Bundle the small app's recipe with its data; unpack it at `folder`; return its `run.sh`."""
    tar = folder.with_suffix(".tar")
    for command in (
        ["bundle", tinyapp.RECIPE, "--with-data", "-o", str(tar), *words],
        ["unbundle", str(tar), "--to", str(folder)],
    ):
        done = tinyapp.call(command, env)
        assert done.returncode == 0, done.stderr
    return folder / "run.sh"


def test_a_run_that_is_stopped_says_so(place: Path, engine_cache: Path, tmp_path: Path) -> None:
    script = bundle(
        tinyapp.environment(place, engine_cache), tmp_path / "b", "--set", "sleep=200"
    )
    out = tmp_path / "run"
    with subprocess.Popen(["sh", str(script), "--out", str(out)]) as child:
        deadline = time.monotonic() + 200
        log = out / "log.txt"
        while not log.exists() or "mounted" not in log.read_text():
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.2)
        child.send_signal(signal.SIGTERM)
        code = child.wait(timeout=300)
    record = json.loads((out / "run.json").read_text())
    assert record["status"] == "interrupted"
    assert record["exit_status"] == code != 0
    judged = tinyapp.call(["report", str(out)], tinyapp.environment(place, engine_cache))
    assert judged.returncode == 2
    assert "[run-incomplete]" in judged.stderr


def test_a_demanded_signature_is_checked_on_the_node(
    place: Path, engine_cache: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"  # the image gets a signature, which others must not see
    shutil.copytree(engine_cache, cache, symlinks=True)
    for record in (cache / "images").glob("*.json"):
        record.write_text(record.read_text().replace(str(engine_cache), str(cache)))
    keys = {"APPTAINER_KEYSDIR": str(tmp_path / "keys")}
    env = tinyapp.environment(place, cache, **keys)
    subprocess.run(
        [Apptainer().executable, "key", "newpair", "--name", "maker", "--email", "m@example.org",
         "--comment", "", "--password", "", "--push=false", "--bit-length", "2048"],
        env=env, check=True, capture_output=True,
    )
    signed = tinyapp.call(["sign", tinyapp.APP_IMAGE], env)
    assert signed.returncode == 0, signed.stderr
    signer = signed.stderr.split()[2]
    try:
        tinyapp.write_recipe(place, signed_by=[signer])
        script = bundle(env, tmp_path / "b")
    finally:
        tinyapp.write_recipe(place)
    stranger = {**os.environ, "APPTAINER_KEYSDIR": str(tmp_path / "none")}
    out = tmp_path / "run"
    words = ["sh", str(script), "--out", str(out)]
    done = subprocess.run(words, env=stranger, capture_output=True, text=True, check=False)
    assert done.returncode == 65
    assert "image.sif" in done.stderr
    assert not out.exists()
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    image = json.loads((out / "run.json").read_text())["image"]
    assert image["signature"]["fingerprint"] == signer
    judged = tinyapp.call(["report", str(out)], env)
    assert judged.returncode == 0, judged.stderr
    assert "VERDICT PASS" in judged.stdout
