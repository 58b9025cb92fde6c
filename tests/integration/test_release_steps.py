"""Run the steps of the release workflow that do not need CI, with the text of the workflow file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import tinyapp
from registries import running
from trimaran import architectures, paths
from trimaran.engines.apptainer import program

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
@pytest.mark.engine("podman")
@pytest.mark.engine("registry")
@pytest.mark.timeout(600)
def test_the_publishing_step_signs_pushes_and_leaves_no_key(
    place: Path, engine_cache: Path, tmp_path: Path
) -> None:
    root = tmp_path / "project"
    shutil.copytree(place, root)
    shutil.copy(paths.repository() / "containers/licences.yaml", root / "containers")
    secret = armored_key(tmp_path / "maker", tmp_path / "armor")
    keyring, outputs = tmp_path / "runner/keyring", tmp_path / "outputs"
    keyring.parent.mkdir()
    programs = [Path(sys.executable).parent, Path(str(program())).parent]
    with running(tmp_path / "harbour") as harbour:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script("Test, train, sign and push")],
            env={
                **tinyapp.environment(root, engine_cache),
                "PATH": f"{programs[0]}:{programs[1]}:{os.environ['PATH']}",
                "IMAGE": tinyapp.APP_IMAGE, "ARCHITECTURE": architectures.native(),
                "TRIMARAN_REGISTRY": harbour.namespace, "no_proxy": "localhost",
                "SIGNING_KEY": secret, "SIGNING_PASSPHRASE": PASSPHRASE,
                "APPTAINER_KEYSDIR": str(keyring), "GITHUB_OUTPUT": str(outputs),
            },
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "unchanged since" in said
    assert PASSPHRASE not in said
    assert secret.splitlines()[4] not in said
    assert not keyring.exists()
    found = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    published = yaml.safe_load((root / "containers/digests.yaml").read_text())["published"]
    assert {one["form"]: one["manifest"] for one in published} == {
        "sif": found["sif"], "oci": found["oci"]}
    assert found["name"] == f"{harbour.namespace}/{tinyapp.APP_IMAGE}"
