"""Real runs of a small app: with an overlay, a virtual environment, a required
signature, or an initial checkpoint.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

import tinyapp
from tinyapp import Trimaran
from trimaran.engines.apptainer import Apptainer
from trimaran.files import sha256

pytestmark = [pytest.mark.engine("apptainer"), pytest.mark.timeout(280)]

PACKAGES = "opt/trimaran/lib/python3.11/site-packages"


@pytest.fixture
def sif(trimaran: Trimaran) -> Path:
    done = trimaran("build", tinyapp.APP_IMAGE, "--engine", "apptainer")
    return Path(done.stdout.strip())


def run_words(out: Path, *more: str) -> list[str]:
    return ["run", tinyapp.RECIPE, "--engine", "apptainer", "--out", str(out), *more]


def execute(sif: Path, *words: str, options: tuple[str, ...] = ()) -> None:
    """Run `words` in the image, in the way that the documentation describes."""
    done = subprocess.run(
        [Apptainer().executable, "--quiet", "exec", *options, str(sif), *words],
        capture_output=True, text=True, check=False, timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return a folder with the wheel of a package that requires another package of the image."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    facts = "Metadata-Version: 2.1\nName: extra\nVersion: 1.0\nRequires-Dist: six\n"
    kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / "extra-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("extra.py", "import six\n")
        wheel.writestr("extra-1.0.dist-info/METADATA", facts)
        wheel.writestr("extra-1.0.dist-info/WHEEL", kind)
        wheel.writestr("extra-1.0.dist-info/RECORD", "")
    return folder


@pytest.fixture
def venv(trimaran: Trimaran, sif: Path, wheels: Path, tmp_path: Path) -> Path:
    """Create a virtual environment with this package, as containers/EXTENDING.md describes."""
    made = tmp_path / "venv"
    done = trimaran(*extend_words(made, "extra", wheels))
    assert done.returncode == 0, done.stderr
    assert not (made / "lib/python3.11/site-packages/six.py").exists(), "the image has it"
    (wheel,) = wheels.iterdir()
    assert json.loads((made / "trimaran.json").read_text()) == {
        "image": tinyapp.APP_IMAGE, "digest": f"sha256:{sha256(sif)}", "asked": ["extra"],
        "packages": [{"name": "extra", "version": "1.0", "sha256": sha256(wheel)}],
    }
    return made


def extend_words(out: Path, package: str, wheels: Path) -> list[str]:
    return ["extend", tinyapp.APP_IMAGE, "--pip", package, "--engine", "apptainer", "--offline",
            "--find-links", str(wheels), "--out", str(out)]


def test_a_package_that_cannot_be_had_leaves_nothing(
    trimaran: Trimaran, sif: Path, wheels: Path, tmp_path: Path
) -> None:
    done = trimaran(*extend_words(tmp_path / "venv", "nowhere", wheels))
    assert done.returncode == 3
    assert "[install-failed]" in done.stderr
    assert " nowhere" in done.stderr
    assert not (tmp_path / "venv").exists()


def record(out: Path) -> dict[str, object]:
    return dict(json.loads((out / "run.json").read_text()))


def refused_as_evidence(trimaran: Trimaran, out: Path) -> bool:
    evidence = out.parent / "evidence.json"
    done = trimaran("report", str(out), "--evidence", str(evidence))
    assert not evidence.exists()
    return done.returncode == 2 and "was modified" in done.stderr


def test_a_plain_run_is_not_modified(trimaran: Trimaran, tmp_path: Path) -> None:
    done = trimaran(*run_words(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert record(tmp_path / "run")["modified"] == []
    assert "found extra None" in (tmp_path / "run/log.txt").read_text()
    evidence = tmp_path / "evidence.json"
    assert trimaran("report", str(tmp_path / "run"), "--evidence", str(evidence)).returncode == 0
    assert json.loads(evidence.read_text())["run"]["modified"] == []


def test_packages_of_a_venv_are_found_in_the_container(
    trimaran: Trimaran, sif: Path, venv: Path, tmp_path: Path
) -> None:
    before = sha256(sif)
    out = tmp_path / "run"
    done = trimaran(*run_words(out, "--venv", str(venv)))
    assert "the image was modified (venv" in done.stdout, done.stderr
    log = (out / "log.txt").read_text()
    assert "found extra /venv/extra.py" in log
    assert f"found six /{PACKAGES}/six.py" in log
    (added,) = record(out)["modified"]  # type: ignore[misc, attr-defined]
    assert added["kind"] == "venv"
    assert added["path"] == str(venv / "lib/python3.11/site-packages")
    assert len(added["sha256"]) == 64
    assert sha256(sif) == before
    assert refused_as_evidence(trimaran, out)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_an_overlay_is_seen_in_the_container(
    trimaran: Trimaran, sif: Path, tmp_path: Path, kind: str
) -> None:
    overlay = tmp_path / "overlay"
    if kind == "folder":
        overlay.mkdir()
    elif shutil.which("fuse2fs") is None:
        pytest.skip("fuse2fs is not installed: it mounts the file of an overlay for a user")
    else:
        subprocess.run(
            [Apptainer().executable, "overlay", "create", "--size", "64", str(overlay)],
            check=True, capture_output=True,
        )
    before = sha256(sif)
    script = f"echo 'x = 1' > /{PACKAGES}/laidover.py; rm /{PACKAGES}/six.py"
    execute(sif, "sh", "-c", script, options=("--overlay", str(overlay)))
    out = tmp_path / "run"
    done = trimaran(*run_words(out, "--overlay", str(overlay)))
    assert "the image was modified (overlay" in done.stdout, done.stderr
    log = (out / "log.txt").read_text()
    assert f"found laidover /{PACKAGES}/laidover.py" in log
    # Of an overlay in a file deletions do not show, as containers/EXTENDING.md says.
    assert ("found six None" in log) == (kind == "folder")
    (added,) = record(out)["modified"]  # type: ignore[misc, attr-defined]
    assert (added["kind"], added["path"]) == ("overlay", str(overlay))
    assert sha256(sif) == before
    assert refused_as_evidence(trimaran, out)


def test_binds_of_the_site_are_seen_read_only(trimaran: Trimaran, tmp_path: Path) -> None:
    (tmp_path / "licences").mkdir()
    (tmp_path / "licences/key").write_text("")
    site = tmp_path / "site.yaml"
    site.write_text("binds: {licences: /mnt/site}\n")
    done = trimaran(*run_words(tmp_path / "run", "--site", str(site)))
    assert done.returncode == 0, done.stderr
    assert "mounted ['key']" in (tmp_path / "run/log.txt").read_text()
    assert "destination=/mnt/site,ro" in " ".join(record(tmp_path / "run")["command"]["argv"])  # type: ignore[index]


def test_a_demanded_signature_is_checked_before_anything_runs(
    place: Path, trimaran: Trimaran, sif: Path, tmp_path: Path
) -> None:
    keys = {"APPTAINER_KEYSDIR": str(tmp_path / "keys")}
    subprocess.run(
        [Apptainer().executable, "key", "newpair", "--name", "maker", "--email", "m@example.org",
         "--comment", "", "--password", "", "--push=false", "--bit-length", "2048"],
        env={**os.environ, **keys}, check=True, capture_output=True,
    )
    other = "0" * 40
    site = tmp_path / "site.yaml"
    unsigned, out = sif.read_bytes(), tmp_path / "run"
    recorded = next(sif.parent.glob(f"{tinyapp.APP_IMAGE}-*.apptainer.json"))
    text = recorded.read_text()
    try:
        tinyapp.write_recipe(place, signed_by=[other])
        done = trimaran(*run_words(out), **keys)
        assert done.returncode == 4
        assert "[signature-missing]" in done.stderr
        assert not out.exists()

        done = trimaran("sign", tinyapp.APP_IMAGE, **keys)
        assert done.returncode == 0, done.stderr
        signer = done.stderr.split()[2]
        done = trimaran(*run_words(out), **keys)
        assert done.returncode == 4
        assert f"signed by {signer}" in done.stderr
        assert f"not by {other}" in done.stderr
        assert not out.exists()

        tinyapp.write_recipe(place, signed_by=[other, signer])
        done = trimaran(*run_words(out), **keys)
        assert done.returncode == 0, done.stderr
        image = record(out)["image"]
        assert image["signature"] == {"fingerprint": signer, "verified": True}  # type: ignore[index]
        assert image["digest"] == f"sha256:{sha256(sif)}"  # type: ignore[index]

        tinyapp.write_recipe(place)
        site.write_text(f'signatures: {{required: true, keys: ["{other}"]}}\n')
        done = trimaran(*run_words(tmp_path / "refused", "--site", str(site)), **keys)
        assert done.returncode == 4
        assert f"not by {other}" in done.stderr
        site.write_text(f'signatures: {{required: true, keys: ["{signer}"]}}\n')
        done = trimaran(*run_words(tmp_path / "again", "--site", str(site)), **keys)
        assert done.returncode == 0, done.stderr
        assert trimaran("verify", tinyapp.APP_IMAGE, "--site", str(site), **keys).returncode == 0
    finally:
        tinyapp.write_recipe(place)
        sif.write_bytes(unsigned)
        recorded.write_text(text)


def test_other_engines_refuse_what_they_cannot_do(trimaran: Trimaran, tmp_path: Path) -> None:
    (tmp_path / "overlay/upper").mkdir(parents=True)
    for option, folder in (("--overlay", "overlay"), ("--venv", "overlay")):
        done = trimaran("run", tinyapp.RECIPE, "--engine", "host", option, str(tmp_path / folder))
        assert done.returncode == 2
        assert f"{option} needs" in done.stderr


@pytest.mark.long
@pytest.mark.engine("podman")
@pytest.mark.timeout(580)  # buildah builds both images first
def test_podman_takes_a_venv_and_refuses_an_overlay(
    trimaran: Trimaran, venv: Path, tmp_path: Path
) -> None:
    (tmp_path / "overlay/upper").mkdir(parents=True)
    words = ["run", tinyapp.RECIPE, "--engine", "podman", "--out", str(tmp_path / "run")]
    done = trimaran(*words, "--overlay", str(tmp_path / "overlay"))
    assert done.returncode == 2
    assert "[engine-unsuitable]" in done.stderr
    assert "--overlay" in done.stderr
    done = trimaran(*words, "--venv", str(venv))
    assert "found extra /venv/extra.py" in (tmp_path / "run/log.txt").read_text(), done.stderr
    image = record(tmp_path / "run")["image"]["reference"]  # type: ignore[index]
    subprocess.run(["podman", "--storage-driver", "vfs", "rmi", image], check=True)


def test_a_second_stage_reads_the_checkpoint_it_begins_with(
    place: Path, trimaran: Trimaran, tmp_path: Path
) -> None:
    second = "hello/cpu-2core-second-smoke"
    tinyapp.write_recipe(place, name=second, initial={"recipe": tinyapp.RECIPE, "step": 2})
    checkpoint, out = tmp_path / "step-00000002.npz", tmp_path / "run"
    checkpoint.write_text("weights")
    words = ["run", second, "--engine", "apptainer", "--out", str(out)]
    refused = trimaran(*words)
    assert refused.returncode == 2
    assert "[initial-missing]" in refused.stderr
    assert "step-00000002.npz" in refused.stderr
    assert not out.exists()
    done = trimaran(*words, "--initial", str(checkpoint))
    assert done.returncode == 0, done.stderr
    assert "begins with weights" in (out / "log.txt").read_text()
    assert json.loads((out / "run.json").read_text())["initial"] == {
        "path": str(checkpoint), "sha256": sha256(checkpoint)
    }
