"""Check the workflows against the command line and the definitions, without actionlint."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import commandlines
from trimaran import paths
from trimaran.images import definition

ROOT = paths.repository()
WORKFLOWS = {path.name: path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")}
SHELLCHECK = Path(sys.executable).parent / "shellcheck"

PINNED = re.compile(r"\./\.github/workflows/[a-z]+\.yml|[\w.-]+/[\w./-]+@[0-9a-f]{40}")


def faults(text: str) -> list[str]:
    """Return the faults of a workflow that actionlint does not detect."""
    workflow = yaml.safe_load(text)
    found = [] if workflow.get("permissions") == {} else ["permissions: none by default"]
    for name, job in workflow["jobs"].items():
        if not isinstance(job.get("permissions"), dict):
            found.append(f"{name}: says what it may")
        if "uses" not in job and "timeout-minutes" not in job:
            found.append(f"{name}: has a time limit")
        for step in [job, *job.get("steps", [])]:
            found += [f"{name}: {fault}" for fault in _step_faults(step)]
    found += _shell_faults(
        [step["run"] for job in workflow["jobs"].values() for step in job.get("steps", [])
         if "run" in step]
    )
    found += [
        f"names {name}: a second list of images"
        for name in definition.names() if re.search(rf"\b{name}\b", text)
    ]
    return found


def _step_faults(step: dict[str, Any]) -> Iterator[str]:
    uses = step.get("uses")
    if uses and not PINNED.fullmatch(uses):
        yield f"{uses} is not pinned to a commit"
    if uses and uses.startswith("./") and not (ROOT / uses).is_file():
        yield f"{uses} is not there"
    script = step.get("run", "")
    if "${{" in script:
        yield "an expression in a script: a value becomes code; hand it over by env"
    if re.search(r"set -\w*x|--password(?!-stdin)|echo .*\$\{?\w*(PASSPHRASE|TOKEN|KEY)", script):
        yield "shows a secret"
    for file in re.findall(r"\bscripts/\w+\.py", script):
        if not (ROOT / file).is_file():
            yield f"{file} is not there"
    for line in commandlines.lines(script):
        if fault := commandlines.fault(line):
            yield f"trimaran {line}: {fault}"


def _shell_faults(scripts: list[str]) -> list[str]:
    together = "".join(f"(\n{script}\n)\n" for script in scripts)
    done = subprocess.run(
        [str(SHELLCHECK), "--shell=bash", "--exclude=SC2234", "--format=json", "-"],
        input=together, text=True, capture_output=True, check=False,
    )
    return [f"SC{fault['code']} {fault['message']}" for fault in json.loads(done.stdout)]


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_workflow_keeps_the_rules(name: str) -> None:
    assert faults(WORKFLOWS[name]) == []


GOOD = """
on: push
permissions: {}
jobs:
  one:
    runs-on: ubuntu-24.04
    timeout-minutes: 1
    permissions: {contents: read}
    steps:
      - uses: actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd
      - env: {IMAGE: "${{ inputs.image }}"}
        run: trimaran build "$IMAGE" --engine apptainer
"""


def test_a_good_workflow_has_no_faults() -> None:
    assert faults(GOOD) == []


@pytest.mark.parametrize(
    ("good", "bad", "fault"),
    [
        ("permissions: {}\n", "", "permissions: none by default"),
        ("    permissions: {contents: read}\n", "", "one: says what it may"),
        ("    timeout-minutes: 1\n", "", "one: has a time limit"),
        ("de0fac2e4500dabe0009e67214ff5f5447ce83dd", "v6", "is not pinned to a commit"),
        ("actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd",
         "./.github/workflows/other.yml", "is not there"),
        ('"$IMAGE" --', '${{ inputs.image }} --', "an expression in a script"),
        ('"$IMAGE" --', '"torch-cpu" --', "a second list of images"),
        ('"$IMAGE" --', '$IMAGE --', "SC2086"),
        ("trimaran build", "trimaran biuld", "biuld"),
        ("--engine", "--engien", "--engien"),
        ("apptainer\n", "apptainer && scripts/none.py\n", "scripts/none.py is not there"),
        ("apptainer\n", "apptainer; echo $TOKEN\n", "shows a secret"),
    ],
)
def test_a_fault_is_found(good: str, bad: str, fault: str) -> None:
    assert good in GOOD
    assert fault in "\n".join(faults(GOOD.replace(good, bad, 1)))


def test_the_matrices_are_those_of_the_plan() -> None:
    jobs = yaml.safe_load(WORKFLOWS["images.yml"])["jobs"]
    for kind in ("frameworks", "apps"):
        plan = f"${{{{ fromJSON(needs.plan.outputs.{kind}) }}}}"
        assert jobs[kind]["strategy"]["matrix"] == {"include": plan}
        assert jobs["plan"]["outputs"][kind] == f"${{{{ steps.plan.outputs.{kind} }}}}"
    assert "scripts/release_plan.py" in WORKFLOWS["images.yml"]


def test_one_image_that_fails_stops_only_the_images_that_are_built_on_it() -> None:
    jobs = yaml.safe_load(WORKFLOWS["images.yml"])["jobs"]
    for name in ("apps", "names"):
        # Without a status function, GitHub adds `success()`: of all jobs of each matrix.
        assert "!cancelled() && needs.plan.result == 'success'" in jobs[name]["if"]
    steps = yaml.safe_load(WORKFLOWS["image.yml"])["jobs"]["image"]["steps"]
    [handed_on] = [
        step["with"] for step in steps if "upload-artifact@" in step.get("uses", "")
        and step["with"]["name"].startswith("digests-")]
    [taken] = [step for step in steps if "download-artifact@" in step.get("uses", "")]
    assert handed_on["name"] == "digests-${{ inputs.image }}-${{ inputs.architecture }}"
    assert taken["with"]["name"] == "digests-${{ inputs.framework }}-${{ inputs.architecture }}"
    assert taken["if"] == "inputs.framework != ''"
    names = [step.get("name") for step in steps]
    assert names.index(taken["name"]) < names.index("Test, train, sign and push")


def test_images_yml_gives_what_image_yml_takes() -> None:
    called = yaml.safe_load(WORKFLOWS["image.yml"])
    takes = called[True]["workflow_call"]  # YAML 1.1 reads the key `on` so
    for kind in ("frameworks", "apps"):
        job = yaml.safe_load(WORKFLOWS["images.yml"])["jobs"][kind]
        required = {name for name, about in takes["inputs"].items() if about.get("required")}
        assert required <= set(job["with"]) <= set(takes["inputs"])
        assert set(job["secrets"]) == set(takes["secrets"])
        assert job["permissions"] == called["jobs"]["image"]["permissions"]
