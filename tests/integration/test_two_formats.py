"""Compare the two formats of a definition: the SIF of image.def and the image of Dockerfile.

Apptainer and buildah build `tiny`, and the image of buildah is converted to a SIF. All three
images are compared: packages, environment, labels, entry point, the digest of every file, and the
output of the self-test. This file lists the allowed differences with their reasons.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclonedx.validation.json import JsonStrictValidator

import tinyapp
from commandline import command
from trimaran.engines import BuiltImage, Engine, image_contents
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.image_contents import Inventory, Reasons
from trimaran.engines.podman import STORAGE, Podman
from trimaran.files import sha256
from trimaran.images import definition, lock
from trimaran.provenance import rebuild, sbom
from trimaran.reporting import Silent

pytestmark = [
    pytest.mark.long, pytest.mark.engine("apptainer"), pytest.mark.engine("podman"),
    pytest.mark.timeout(900),
]

LABELS: Reasons = {
    ("label", r"io\.buildah\.version"): "buildah says that it built the image",
    ("label", r"org\.label-schema\..*"): "Apptainer describes the SIF: date, help, definition",
}
CARRIED: Reasons = {
    **LABELS,
    ("entry point", "command"): "Apptainer's script around the OCI entry point; run below",
}


@pytest.fixture(scope="module")
def cache(engine_cache: Path) -> Iterator[Path]:
    """Use the same cache and the same build date for all images of this module."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TRIMARAN_CACHE", str(engine_cache))
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        yield engine_cache


@pytest.fixture(autouse=True)
def same_cache(own_place: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_CACHE", str(cache))


@pytest.fixture(scope="module")
def sif(tiny: definition.Image, cache: Path) -> BuiltImage:
    """Build the image from image.def, with a umask that gives other users no access."""
    before = os.umask(0o077)
    try:
        return Apptainer().build(tiny, base=None, offline=False, reporter=Silent())
    finally:
        os.umask(before)


@pytest.fixture(scope="module")
def oci(tiny: definition.Image, cache: Path) -> BuiltImage:
    """Build the image from the Dockerfile with buildah."""
    return Podman().build(tiny, base=None, offline=False, reporter=Silent())


@pytest.fixture(scope="module")
def carried(oci: BuiltImage, tmp_path_factory: pytest.TempPathFactory) -> BuiltImage:
    """Convert the image of the Dockerfile to a SIF."""
    folder = tmp_path_factory.mktemp("carried")
    run("podman", *STORAGE, "save", "--format", "docker-archive", "-o", f"{folder}/x.tar",
        oci.reference)
    made = folder / "x.sif"
    run(Apptainer().executable, "build", str(made), f"docker-archive:{folder}/x.tar")
    return BuiltImage("tiny", "apptainer", str(made), f"sha256:{sha256(made)}", oci.inputs, 0)


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout


def unexplained(first: Inventory, second: Inventory, reasons: Reasons) -> list[str]:
    return [str(d) for d in image_contents.unexplained(first.differences(second, reasons))]


def test_the_two_images_have_the_same_content(sif: BuiltImage, oci: BuiltImage) -> None:
    first, second = image_contents.of(Apptainer(), sif), image_contents.of(Podman(), oci)
    assert len(first.files) > 5000
    assert first.environment["TINY"] == "from the image"
    assert first.entry_point == second.entry_point == "/opt/trimaran/bin/python"
    assert unexplained(first, second, LABELS) == []


def test_no_file_has_rights_that_nobody_needs(sif: BuiltImage, oci: BuiltImage) -> None:
    for engine, built in ((Apptainer(), sif), (Podman(), oci)):
        files = image_contents.of(engine, built).files
        assert tinyapp.excessive(files) == []
        profile = files["/etc/profile.d/trimaran.sh"]
        assert (profile.type, profile.mode) == ("file", 0o644)


def test_the_image_of_the_dockerfile_as_a_sif_is_the_sif_of_the_definition(
    sif: BuiltImage, carried: BuiltImage
) -> None:
    first, second = (image_contents.collect(Apptainer(), built) for built in (sif, carried))
    assert unexplained(first, second, CARRIED) == []
    title = "org.opencontainers.image.title"
    assert first.labels[title] == second.labels[title] == "tiny"


def test_the_entry_point_does_the_same(
    sif: BuiltImage, oci: BuiltImage, carried: BuiltImage
) -> None:
    words = ["-c", "import sys; print(sys.argv[1:], sys.executable)", "a b", "$HOME", "'"]
    pairs: list[tuple[Engine, BuiltImage]] = [
        (Apptainer(), sif), (Podman(), oci), (Apptainer(), carried)
    ]
    printed = []
    for engine, built in pairs:
        exact = command(engine, built, words)
        done = subprocess.run(
            exact.argv, env=dict(exact.env), capture_output=True, text=True, check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed == ["""['a b', '$HOME', "'"] /opt/trimaran/bin/python\n"""] * 3


def test_the_self_test_prints_the_same(
    tiny: definition.Image, sif: BuiltImage, oci: BuiltImage, carried: BuiltImage
) -> None:
    by_engine = [
        Apptainer().inside(sif, [tiny.test]), Podman().inside(oci, [tiny.test]),
        Apptainer().inside(carried, [tiny.test]),
        run(Apptainer().executable, "--quiet", "test", sif.reference),
    ]
    assert by_engine == ["self-test passed\n"] * 4


def test_the_packages_are_those_of_the_locks(tiny: definition.Image, sif: BuiltImage) -> None:
    found = image_contents.of(Apptainer(), sif)
    installed = {package.name: package.version for package in found.debian}
    for locked in lock.read_debian(tiny.folder / "debian.lock"):
        assert installed[locked.name] == locked.version
    assert [(p.name, p.version, p.installer) for p in found.python] == [("six", "1.17.0", "pip")]


def test_the_bill_of_materials_of_both_lists_the_same_packages_by_their_locked_hashes(
    tiny: definition.Image, sif: BuiltImage, oci: BuiltImage
) -> None:
    hashes = sbom.locked_hashes(tiny)
    listed = []
    for found in (image_contents.of(Apptainer(), sif), image_contents.of(Podman(), oci)):
        text = sbom.text(found, hashes)
        assert JsonStrictValidator(sbom.VERSION).validate_str(text) is None
        listed.append(json.loads(text)["components"])
    assert listed[0] == listed[1]
    from_the_locks = [part for part in listed[0] if "hashes" in part]
    assert len(from_the_locks) == len(lock.read_debian(tiny.folder / "debian.lock")) + 1  # and six


@pytest.mark.parametrize("engine", [Apptainer, Podman])
def test_a_second_build_from_the_same_lock_and_date_is_the_same_image_byte_by_byte(
    engine: type[Apptainer | Podman], tiny: definition.Image, sif: BuiltImage, oci: BuiltImage
) -> None:
    found = rebuild.check(engine(), tiny, base=None, reporter=Silent())
    assert found.differences == []
    assert found.identical
    assert engine().find(tiny) in (sif, oci)  # the first one is where it was


def test_build_check_of_an_app_image_says_that_it_is_equal(
    tmp_path_factory: pytest.TempPathFactory, engine_cache: Path
) -> None:
    root = tmp_path_factory.mktemp("tinyapp")
    tinyapp.build(root, tmp_path_factory.mktemp("sources"), engine_cache)
    env = tinyapp.environment(root, engine_cache)
    words = ["build", tinyapp.APP_IMAGE, "--engine", "apptainer"]
    done = tinyapp.call([*words, "--check"], env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tinyapp.APP_IMAGE}: the second build is equal" in done.stdout
    file = root / "hello.json"
    found = tinyapp.call(["inspect", *words[1:], "--evidence", str(file)], env)
    assert found.returncode == 0, found.stderr
    assert json.loads(file.read_text())["packages"]["python"] == 2  # six and the app
