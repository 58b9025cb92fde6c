"""Run the steps of the release workflow that do not need CI, with the text of the workflow file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from trimaran import paths
from trimaran.engines.apptainer import Apptainer, program
from trimaran.images import definition
from trimaran.reporting import Silent

PASSPHRASE = "correct horse"


def script(name: str) -> str:
    """Return the script of the step called `name` in image.yml."""
    workflow = yaml.safe_load((paths.repository() / ".github/workflows/image.yml").read_text())
    return next(s["run"] for s in workflow["jobs"]["image"]["steps"] if s.get("name") == name)


def armored_key(keyring: Path, target: Path) -> str:
    """Create a key with a passphrase in `keyring`; return its armored text, as in a CI secret."""
    env = {**os.environ, "APPTAINER_KEYSDIR": str(keyring)}
    apptainer = str(program())
    subprocess.run(
        [apptainer, "key", "newpair", "--name", "Release", "--email", "release@example.org",
         "--comment", "", "--password", PASSPHRASE, "--push=false", "--bit-length", "2048"],
        env=env, check=True, capture_output=True, input="", text=True,
    )
    with subprocess.Popen(
        [apptainer, "key", "export", "--secret", "--armor", str(target)], env=env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as export:
        assert export.stdin is not None
        assert export.stdout is not None
        for prompt, answer in ((b"private key to use :", "0"), (b"passphrase :", PASSPHRASE)):
            said = b""
            while not said.rstrip().endswith(prompt):  # each question throws away earlier input
                byte = export.stdout.read(1)
                assert byte, said
                said += byte
            export.stdin.write(f"{answer}\n".encode())
            export.stdin.flush()
        rest, _ = export.communicate()
        assert export.returncode == 0, rest
    return target.read_text()


@pytest.mark.long
@pytest.mark.engine("apptainer")
def test_the_signing_step_signs_and_leaves_no_key(
    engine_cache: Path, tmp_path: Path, tiny: definition.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))
    built = Apptainer().build(tiny, base=None, offline=False, reporter=Silent())
    secret = armored_key(tmp_path / "maker", tmp_path / "armor")
    keyring = tmp_path / "runner/keyring"
    keyring.parent.mkdir()
    programs = [Path(sys.executable).parent, Path(str(program())).parent]
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script("Sign the SIF")],
        env={
            **os.environ, "PATH": f"{programs[0]}:{programs[1]}:{os.environ['PATH']}",
            "IMAGE": built.reference,
            "SIGNING_KEY": secret, "SIGNING_PASSPHRASE": PASSPHRASE,
            "APPTAINER_KEYSDIR": str(keyring),
        },
        capture_output=True, text=True, check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "signed by" in said
    assert "unchanged since" in said
    assert PASSPHRASE not in said
    assert secret.splitlines()[4] not in said
    assert not keyring.exists()
