"""Test `run.sh` of a bundle with a stand-in for Apptainer that records its arguments."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from commandline import of_run
from goldens import BUNDLED, FOLDER, bundle
from samples import write_outcome
from trimaran import hostfacts
from trimaran.bundles import runscript
from trimaran.bundles.runscript import Contents
from trimaran.engines import commands
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import UsageError
from trimaran.files import sha256
from trimaran.hostfacts import host_facts
from trimaran.recipes import library
from trimaran.recipes.cards import Argument
from trimaran.run import node_scripts, run_directory
from trimaran.run.record import RunRecord
from trimaran.run.request import Request

GOLDEN = FOLDER / "run.sh"
DATA = "fashion-mnist"
ODD: dict[str, Argument] = {"note": "a,b 'c' \"d\" $HOME `id` \\ ü", "flag": True, "steps": 3}
ENGINE = r"""#!/bin/sh
case $1 in --version) echo "${APPTAINER_IS:-apptainer version 1.4.5}"; exit ;; esac
case $2 in exec) exit 0 ;; esac
here=$(dirname "$0")
case $1 in verify) cat "$here/signed"; exit ;; esac
for word; do printf '%s\0' "$word"; done >"$here/argv"
env -0 >"$here/env"
echo "to the log"
. "$here/act"
"""


@dataclass
class Place:
    """A folder with a small bundle, and a stand-in for `apptainer` in its subfolder `bin`."""

    root: Path

    @property
    def bundle(self) -> Path:
        return self.root / "bundle"

    @property
    def data(self) -> Path:
        return self.root / 'da,ta "x" $y'

    @property
    def engine(self) -> Path:
        return self.root / "bin/apptainer"

    def run(self, *words: str, act: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
        """Run `run.sh`; the stand-in executes the shell code `act` instead of training."""
        (self.root / "bin/act").write_text(act)
        path = f"{self.root / 'bin'}:/usr/bin:/bin"
        return subprocess.run(
            ["sh", str(self.bundle / "run.sh"), *words], cwd=self.root, text=True,
            env={"HOME": "/home/x y", "PATH": path, "LEAK": "1", **extra},
            capture_output=True, check=False, timeout=60,
        )

    def recorded(self, name: str) -> list[str]:
        return (self.root / "bin" / name).read_text().split("\0")[:-1]


def make(root: Path, what: Contents) -> Place:
    place = Place(root)
    for folder in (place.bundle / "data", place.data, root / "bin"):
        folder.mkdir(parents=True)
    (place.data / "dataset.json").write_text("{}")
    shutil.copy(place.data / "dataset.json", place.bundle / "data")
    hashed = sha256(place.data / "dataset.json")
    made = {
        "run.sh": runscript.render(what), "image.sif": "sif",
        "recipe.yaml": library.load(BUNDLED).path.read_text(),
        "app.yaml": library.load(BUNDLED).card.path.read_text(),
        "data.sha256": f"{hashed}  dataset.json\n",
    }
    for name, text in made.items():
        (place.bundle / name).write_text(text)
    sums = [f"{sha256(place.bundle / name)}  {name}\n" for name in made]
    (place.bundle / "SHA256SUMS").write_text("".join(sums))
    place.engine.write_text(ENGINE)
    place.engine.chmod(0o755)
    return place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make(tmp_path / "a 'place', of \"its\" own", bundle(ODD))


def record(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "run.json").read_text())
    return found


def test_the_script_is_the_golden_file_and_shellcheck_finds_nothing() -> None:
    assert runscript.render(bundle({})) == GOLDEN.read_text(), "run: make generate"
    done = subprocess.run(
        ["shellcheck", "--shell=sh", str(GOLDEN)], capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert done.stdout == ""
    assert done.returncode == 0


def test_it_runs_what_trimaran_run_would(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    out = place.root / "o,ut"
    done = place.run("--data", place.data.name, "--out", "o,ut")
    assert done.returncode == 0, done.stderr
    given = bundle(ODD)
    monkeypatch.setenv("HOME", "/home/x y")
    for name in set(commands.PASSED_ON) - {"HOME"}:
        monkeypatch.delenv(name, raising=False)
    engine = Apptainer(str(place.engine))
    image = replace(given.built, reference=str(place.bundle / "image.sif"))
    exact = of_run(
        Request(given.recipe, engine, ODD), image, {DATA: place.data}, out
    )
    # Equal to the byte because these paths need quotes in CSV; run.sh always has them.
    assert place.recorded("argv") == list(exact.argv[1:])
    passed = dict(entry.split("=", 1) for entry in place.recorded("env"))
    shell_s_own = {"PWD", "OLDPWD", "_", "SHLVL"}
    assert {k: v for k, v in passed.items() if k not in shell_s_own} == exact.env


@pytest.mark.parametrize("driver", [True, False])
def test_an_image_for_gpus_sees_those_of_the_other_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: bool
) -> None:
    name = "resnet-imagenet-torch-cuda13"
    device = tmp_path / "the device"
    monkeypatch.setitem(commands.GPU_DEVICES, "nvidia", device)
    given = bundle({})
    given = replace(given, built=replace(given.built, name=name))
    if not driver:
        device.touch()  # where it is packed
    place = make(tmp_path / "p", given)
    device.unlink(missing_ok=True)
    if driver:
        device.touch()
    assert place.run("--data", place.data.name, "--out", "o,ut").returncode == 0
    image = replace(given.built, reference=str(place.bundle / "image.sif"))
    request = Request(given.recipe, Apptainer(str(place.engine)), {})
    exact = of_run(request, image, {DATA: place.data}, place.root / "o,ut")
    assert place.recorded("argv") == list(exact.argv[1:])
    assert ("--nv" in exact.argv) is driver


def test_a_demanded_signature_is_checked(tmp_path: Path) -> None:
    given = bundle({})
    image = given.recipe.recipe.image.model_copy(update={"signed_by": ["A" * 40, "B" * 40]})
    recipe = given.recipe.recipe.model_copy(update={"image": image})
    place = make(tmp_path, replace(given, recipe=replace(given.recipe, recipe=recipe)))
    words = ("--data", place.data.name, "--out", "out")
    done = place.run(*words)  # the stand-in finds no signature and fails
    assert done.returncode == 65
    assert "no signature" in done.stderr
    signed = place.root / "bin/signed"
    signed.write_text(f'{{"Name": "{"b" * 40}", "Fingerprint": "{"c" * 40}"}}')
    done = place.run(*words)
    assert done.returncode == 65
    assert f"is not signed by {'A' * 40} or {'B' * 40}" in done.stderr
    assert not (place.root / "out").exists()
    signed.write_text(f'{{"Name": "me", "Fingerprint": "{"b" * 40}"}}')
    assert place.run(*words).returncode == 0


def test_it_leaves_a_run_directory_that_trimaran_reads(place: Place) -> None:
    done = place.run(
        "--data", place.data.name, "--out", "out", act='echo \'{"torch": "2"}\' >environment.json'
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "to the log\n"
    out = place.root / "out"
    assert (out / "log.txt").read_text() == "to the log\n"
    assert sha256(out / "recipe.yaml") == sha256(library.load(BUNDLED).path)
    found = run_directory.load(out)
    assert (found.status, found.exit_status) == ("completed", 0)
    assert found.ended is not None
    assert found.ended >= found.started
    assert found.recipe.changed == ODD
    assert found.image.reference == str(place.bundle / "image.sif")
    assert found.data[0].path == str(place.data)
    assert found.environment == {"torch": "2"}
    assert found.command.argv == [str(place.engine), *place.recorded("argv")]
    assert shlex.split(found.command.shell) == [
        "env", "-i", *(f"{key}={value}" for key, value in found.command.env.items()),
        *found.command.argv,
    ]
    assert "LEAK" not in found.command.env
    here = host_facts()
    assert found.host.model_dump(exclude={"memory_gib"}) == here.model_copy(
        update={"python": None}
    ).model_dump(exclude={"memory_gib"})
    assert found.host.memory_gib == pytest.approx(here.memory_gib, abs=0.1)


def test_the_script_finds_amds_gpus_as_the_tool_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kfd, drm = tmp_path / "kfd", tmp_path / "drm"
    for number, (units, version) in enumerate(((0, 0), (440, 90010), (304, 90402))):
        (kfd / str(number)).mkdir(parents=True)
        (kfd / str(number) / "properties").write_text(
            f"cpu_cores_count 4\nsimd_count {units}\nvendor_id {4098 if units else 0}\n"
            f"gfx_target_version {version}\ndrm_render_minor {127 + number}\n"
        )
    (drm / "renderD128/device").mkdir(parents=True)
    (drm / "renderD128/device/product_name").write_text("Instinct MI250X\n")
    text = node_scripts.functions().replace(str(hostfacts.KFD), str(kfd)).replace(
        str(hostfacts.DRM), str(drm))
    monkeypatch.setattr(node_scripts, "functions", lambda: text)
    place = make(tmp_path / "place", bundle({}))
    place.run("--data", place.data.name, "--out", "out")
    found = record(place.root / "out")["host"]["accelerators"]
    assert found == ["AMD Instinct MI250X (gfx90a)", "AMD GPU (gfx942)"]
    assert found == hostfacts.amd(kfd, drm)
    for own, expected in (("1", found[1:]), ("GPU-2f", found[:1])):
        shell = f'{text}\nhost_facts {own}; printf %s "$accelerators"'
        done = subprocess.run(["sh", "-euc", shell], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == expected


def test_run_json_has_the_hashes_of_what_the_app_left(place: Place) -> None:
    write_outcome(place.root, 0.95)
    act = "cp ../metrics.jsonl ../result.json ."
    assert place.run("--data", place.data.name, "--out", "out", act=act).returncode == 0
    out = place.root / "out"
    assert run_directory.load(out).files == {
        name: sha256(place.root / name) for name in ("metrics.jsonl", "result.json")
    }


@pytest.mark.parametrize(
    ("code", "status"), [(4, "failed"), (75, "interrupted"), (255, "failed")]
)
def test_the_exit_code_of_the_app_is_passed_on(place: Place, code: int, status: str) -> None:
    done = place.run("--data", place.data.name, "--out", "out", act=f"exit {code}")
    assert done.returncode == code
    found = record(place.root / "out")
    assert (found["status"], found["exit_status"]) == (status, code)


def test_run_json_says_running_until_the_end(place: Place) -> None:
    place.run("--data", place.data.name, "--out", "out", act="cp run.json then.json")
    then = json.loads((place.root / "out/then.json").read_text())
    assert then["status"] == "running"
    assert then["ended"] is None
    RunRecord.model_validate(then)


def test_a_run_is_never_overwritten(place: Place) -> None:
    out = place.root / "out"
    out.mkdir()
    assert place.run("--data", place.data.name, "--out", "out").returncode == 0
    before = (out / "run.json").read_bytes()
    done = place.run("--data", place.data.name, "--out", "out")
    assert done.returncode == 73
    assert str(out) in done.stderr
    assert (out / "run.json").read_bytes() == before


def test_data_in_the_bundle_and_a_run_directory_of_its_own(tmp_path: Path) -> None:
    place = make(tmp_path / "p", bundle({}, included=True))
    assert place.run().returncode == 0
    made = list((place.root / "runs" / BUNDLED).glob("*/run.json"))
    assert len(made) == 1
    assert record(made[0].parent)["data"][0]["path"] == str(place.bundle / "data")


def test_damage_is_found_before_anything_runs(place: Place) -> None:
    assert place.run("--verify-only", "--data", place.data.name).returncode == 0
    (place.data / "dataset.json").write_text("{ }")
    done = place.run("--data", place.data.name, "--out", "out")
    assert done.returncode == 65
    assert "dataset.json: FAILED" in done.stderr
    (place.bundle / "image.sif").write_text("sir")
    done = place.run("--verify-only")
    assert done.returncode == 65
    assert "image.sif: FAILED" in done.stderr
    (place.bundle / "image.sif").unlink()
    assert place.run("--data", place.data.name, "--out", "out").returncode == 65
    assert not (place.root / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bad"], "unknown argument: --bad"),
        (["--out"], "--out needs a folder"),
        (["--out", "a\nb"], "control characters"),
        ([], "give --data DIR"),
    ],
)
def test_wrong_usage_is_said(place: Place, words: list[str], said: str) -> None:
    done = place.run(*words)
    assert done.returncode == 64
    assert said in done.stderr


def test_a_machine_of_another_architecture_starts_nothing(place: Place) -> None:
    uname = place.root / "bin/uname"
    uname.write_text('#!/bin/sh\n[ "$*" = -m ] && echo aarch64 || exec /bin/uname "$@"\n')
    uname.chmod(0o755)
    done = place.run("--data", str(place.data), "--out", "out")
    assert done.returncode == 69
    assert "aarch64" in done.stderr
    assert "x86_64" in done.stderr
    assert "verifying" not in done.stderr
    assert not (place.root / "out").exists()
    assert place.run("--verify-only").returncode == 0


def test_without_apptainer_it_says_so(place: Place) -> None:
    words = ("--data", place.data.name, "--out", "out")
    singularity = place.engine.rename(place.engine.with_name("singularity"))
    done = place.run(*words, APPTAINER_IS="singularity-ce version 4.1.0")
    assert done.returncode == 69
    assert "no Apptainer on PATH" in done.stderr
    assert f"{singularity} is singularity-ce version 4.1.0" in done.stderr
    assert not (place.root / "out").exists()
    assert place.run(*words).returncode == 0  # Apptainer under its older name


def test_control_characters_in_arguments_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        runscript.render(bundle({"note": "two\nlines"}))
    assert repr("--note=two\nlines") in caught.value.message
