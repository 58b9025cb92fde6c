"""`apptainer run` without Trimaran, as most users start images: the effect of host settings."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import tinyapp
from tinyapp import Trimaran
from trimaran.engines.apptainer import Apptainer

pytestmark = [pytest.mark.engine("apptainer"), pytest.mark.timeout(280)]

PYTHON = "/opt/trimaran/bin/python"


@pytest.fixture
def sif(trimaran: Trimaran) -> Path:
    done = trimaran("build", tinyapp.APP_IMAGE, "--engine", "apptainer")
    return Path(done.stdout.strip())


def apptainer(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Apptainer().executable, *words], cwd=cwd, env={**os.environ, **env},
        capture_output=True, text=True, check=False, timeout=300,
    )


def test_a_start_says_nothing(sif: Path, tmp_path: Path) -> None:
    done = apptainer("exec", str(sif), "true", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_hosts_python_variables_do_not_act(sif: Path, tmp_path: Path) -> None:
    (tmp_path / "six.py").write_text("raise SystemExit('the module of the host')\n")
    foreign = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere"}
    script = "import six; print(six.__version__)"
    done = apptainer("exec", "--pwd", "/", str(sif), PYTHON, "-c", script, cwd=tmp_path, **foreign)
    assert done.returncode == 0, done.stderr
    given = {"APPTAINERENV_PYTHONPATH": str(tmp_path), **foreign}
    done = apptainer("exec", "--pwd", "/", str(sif), PYTHON, "-c", script, cwd=tmp_path, **given)
    assert "the module of the host" in done.stderr


@pytest.mark.parametrize("start", [
    ["run", "SIF"], ["run", "--app", "train", "SIF"],
    # a rank of a launcher, on the host or in the image, is a command of the image
    ["exec", "SIF", "python", "-m", "hello"],
    ["exec", "SIF", "sh", "-c", "python -m hello \"$@\"", "rank"],
])
def test_an_app_takes_no_module_of_the_folder_it_runs_in(
    sif: Path, tmp_path: Path, start: list[str]
) -> None:
    (tmp_path / "six.py").write_text("")
    (tmp_path / "argparse.py").write_text("raise SystemExit('the module of the folder')\n")
    splits = {name: {"samples": 1} for name in ("train", "test")}
    (tmp_path / "dataset.json").write_text(json.dumps({"splits": splits}))
    words = [*(str(sif) if word == "SIF" else word for word in start)]
    verb = [] if "--app" in start else ["train"]
    done = apptainer(
        *words, *verb, "--find", "six", f"--data={tmp_path}", f"--out={tmp_path}", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "found six /opt/trimaran/lib" in done.stdout


def test_a_login_shell_finds_the_images_python(sif: Path, tmp_path: Path) -> None:
    done = apptainer("exec", "--no-home", str(sif), "bash", "-lc", "command -v python",
                     cwd=tmp_path, HOME="/nowhere")
    assert done.stdout.strip() == PYTHON, done.stderr
