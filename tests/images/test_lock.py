"""Tests of locks: parsing, errors for unpinned requirements, and support of all Python versions."""

from __future__ import annotations

import itertools
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from refusals import refused
from trimaran.architectures import MACHINES
from trimaran.errors import BuildError, UsageError
from trimaran.files import sha256
from trimaran.images import definition, lock, resolve
from trimaran.images.parts import PYTHONS, Source
from trimaran.process import Result
from trimaran.reporting import Silent

IMAGES = [definition.load(name) for name in definition.names()]
FRAMEWORKS = [image for image in IMAGES if image.kind == "framework"]
BRINGING = [image for image in IMAGES if image.kind == "app" and definition.wheels_lock(image)]
HASH = "0" * 64


@pytest.mark.parametrize("image", FRAMEWORKS, ids=lambda image: image.name)
def test_the_committed_lock_serves_every_python(image: definition.Image) -> None:
    locked = lock.read(image.folder / "requirements.lock")
    other = image.folder.parent / image.variant.of if image.variant else image.folder
    lines = (other / "requirements.in").read_text().splitlines()
    asked = [Requirement(line.split("#")[0]) for line in lines if line and line[0] != "#"]
    for python, architecture in itertools.product(PYTHONS, image.architectures):
        names = [entry.name for entry in locked if entry.applies_to(python, architecture)]
        assert len(names) == len(set(names))
        machine = {"platform_machine": MACHINES[architecture]}
        wanted = {one.name for one in asked if not one.marker or one.marker.evaluate(machine)}
        assert wanted <= set(names)


VARIANTS = [image for image in FRAMEWORKS if image.variant]


@pytest.mark.parametrize("image", VARIANTS, ids=lambda image: image.name)
def test_a_variant_has_the_very_packages_of_the_other_image_and_more(
    image: definition.Image,
) -> None:
    assert image.variant is not None
    other = definition.load(image.variant.of)
    wheels, fewer = (set(lock.read(one.folder / "requirements.lock")) for one in (image, other))
    assert {(w.name, w.version) for w in wheels} > {(w.name, w.version) for w in fewer}
    debs, fewer_debs = (set(lock.read_debian(one.folder / "debian.lock")) for one in (image, other))
    assert {d.sha256 for d in debs} > {d.sha256 for d in fewer_debs}
    assert {"jupyterlab", "pip"} <= {wheel.name for wheel in wheels}
    assert {"git", "less", "procps", "g++"} <= {package.name for package in debs}


def test_there_are_variants_of_the_torch_images_whose_packages_are_locked() -> None:
    assert {"torch-cpu-dev", "torch-cuda12-dev", "torch-cuda13-dev"} == {i.name for i in VARIANTS}


@pytest.mark.parametrize("image", FRAMEWORKS, ids=lambda image: image.name)
def test_wheels_from_elsewhere_are_locked_by_their_hashes(image: definition.Image) -> None:
    assert image.python is not None
    hashes = {h for entry in lock.read(image.folder / "requirements.lock") for h in entry.hashes}
    assert {wheel.sha256 for wheel in image.python.elsewhere} <= hashes


@pytest.mark.parametrize("image", FRAMEWORKS, ids=lambda image: image.name)
def test_locks_name_no_machine(image: definition.Image) -> None:
    for path in image.folder.iterdir():
        text = path.read_text()
        assert not re.search(r"file:|/home/|/root/|/work/|index-url|find-links http", text)
        hosts = set(re.findall(r"https?://([^/\s]+)", text))
        assert hosts <= {"download.pytorch.org", "files.pythonhosted.org", "deb.debian.org"}


@pytest.mark.parametrize("line", ["six", "six>=1 --hash=sha256:" + HASH, "six==1.17.0", "si x=="])
def test_what_is_not_pinned_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "requirements.lock"
    path.write_text(f"# comment\n{line}\n")
    with refused("lock-invalid", f"{path}:2: ", kind=UsageError):
        lock.read(path)


def test_tidying_drops_other_systems_and_adds_the_wheels_of_other_pythons() -> None:
    elsewhere = tuple(
        Source(url=f"https://example.org/x-1.0%2Bcpu-cp3{n}-cp3{n}-linux_x86_64.whl",
                     sha256=str(n) * 32)
        for n in (12, 11)
    )
    text = (
        f"colorama==0.4.6 ; sys_platform == 'win32' \\\n    --hash=sha256:{HASH}\n    # via tqdm\n"
        f"x==1.0+cpu \\\n    --hash=sha256:{'11' * 32}\n    # via -r requirements.in\n"
    )
    assert resolve._tidy(text, elsewhere, ["amd64"]) == (
        f"x==1.0+cpu \\\n    --hash=sha256:{'11' * 32} \\\n    --hash=sha256:{'12' * 32}\n"
        "    # via -r requirements.in\n"
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an image that wants the package `user`, which requires `required`."""
    index = tmp_path / "index"
    make_wheel(index, "user", requires="required")
    make_wheel(index, "required")
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    folder = tmp_path / "image"
    shutil.copytree(Path(__file__).parents[1] / "images" / "tiny", folder)
    (folder / "requirements.in").write_text("user\n")
    return folder


def test_what_is_excluded_is_locked_for_nobody(folder: Path) -> None:
    image = definition.read(folder / "image.yaml")

    assert "\nrequired==1.0 " in resolve._resolve(image, Silent())
    (folder / "excludes.txt").write_text("required  # by user, which does not import it\n")
    assert re.findall(r"^(\w+)==", resolve._resolve(image, Silent()), re.M) == ["user"]


def test_an_override_leaves_a_package_out_for_one_architecture(folder: Path) -> None:
    (folder / "overrides.txt").write_text("required==1.0 ; platform_machine == 'aarch64'\n")

    text = resolve._resolve(definition.read(folder / "image.yaml"), Silent())

    locked = {
        block.name: block for block in (lock.parse(folder, *each) for each in lock.blocks(text))
    }
    assert locked["user"].applies_to("3.11", "amd64")
    assert not locked["required"].applies_to("3.11", "amd64")
    assert locked["required"].applies_to("3.11", "arm64")


@pytest.fixture
def app(tmp_path: Path) -> definition.Image:
    """Define an app image on the framework image `tiny`; it requires the package `brought`."""
    folder = tmp_path / "images/app"
    shutil.copytree(Path(__file__).parents[1] / "images" / "tiny", tmp_path / "images/tiny")
    folder.mkdir()
    (folder / "selftest.py").touch()
    (folder / "requirements.in").write_text("brought\n")
    (folder / "image.yaml").write_text(
        "schema: 1\nsummary: An app\ndescription: An app.\nversion: '1'\nlicenses: MIT\n"
        "framework: tiny\nfiles: {selftest.py: /opt/selftest.py}\ntest: /opt/selftest.py\n"
        "app: {packages: [shards, trainkit]}\nhelp: An app.\n"
    )
    return definition.read(folder / "image.yaml")


def make_wheel(
    index: Path, name: str, requires: str | None = None, version: str = "1.0",
    tag: str = "py3-none-any",
) -> None:
    """Write the wheel of an empty package into a simple index."""
    file = f"{name}-{version}-{tag}.whl"
    (index / name).mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    with zipfile.ZipFile(index / name / file, "w") as wheel:
        about = f"{name}-{version}.dist-info"
        wheel.writestr(f"{about}/METADATA", metadata)
        wheel.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        wheel.writestr(f"{about}/RECORD", "")
    with (index / name / "index.html").open("a") as page:
        page.write(f'<a href="{file}#sha256={sha256(index / name / file)}">{file}</a>\n')


def test_the_debian_lock_is_read_as_it_is_written() -> None:
    path = FRAMEWORKS[0].folder / "debian.lock"
    packages = lock.read_debian(path)
    assert lock.debian_text(packages, FRAMEWORKS[0].name, "amd64") == path.read_text()
    assert {"python3", "libc6"} <= {package.name for package in packages}
    first, second = packages[0].urls
    assert first.startswith("http://deb.debian.org/debian/pool/")
    assert second.startswith("https://snapshot.debian.org/archive/debian/2")


@pytest.mark.parametrize("line", ["libc6 2.36", "a b c d e 1 " + HASH, "a b debian d e x " + HASH])
def test_a_damaged_debian_lock_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "debian.lock"
    path.write_text(f"# comment\n\n{line}\n")
    with refused("lock-invalid", f"{path}:3: ", kind=UsageError):
        lock.read_debian(path)


def test_a_file_name_is_what_apt_takes() -> None:
    path = "pool/main/g/g_1%2b2_amd64.deb"
    package = lock.DebianPackage("g", "1+2", "debian", "s", path, 1, HASH)
    assert package.filename == "g_1+2_amd64.deb"
    assert resolve._package(
        f"'http://deb.debian.org/debian/pool/main/g/g_1%2b2_amd64.deb' g_1%3a1+2_amd64.deb 1"
        f" SHA256:{HASH}", {"debian": "s"},
    ) == lock.DebianPackage(
        "g", "1:1+2", "debian", "s", "pool/main/g/g_1%2b2_amd64.deb", 1, HASH
    )


def test_an_app_image_that_brings_nothing_has_no_locks_to_make(app: definition.Image) -> None:
    (app.folder / "requirements.in").unlink()
    with refused("lock-inherited", "app", kind=UsageError) as caught:
        resolve.write_locks(app, Silent())
    assert "`trimaran lock tiny`" in str(caught.value.hint)


def test_the_lock_of_an_app_image_has_what_the_image_below_lacks(
    app: definition.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app image locks only the package `brought`, because the framework image has `six`.

    `brought` requires `six`. The framework image has locked an older version of `six` than
    the index offers.
    """
    index = tmp_path / "index"
    make_wheel(index, "brought", requires="six")
    make_wheel(index, "six", version="1.17.0")
    make_wheel(index, "six", version="1.99.0")
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    resolve.write_locks(app, Silent())
    assert [entry.name for entry in lock.read(app.folder / "requirements.lock")] == ["brought"]


@pytest.fixture
def x86_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an index in which the package `brought` has a wheel for x86-64 only."""
    index = tmp_path / "index"
    make_wheel(index, "brought", tag="cp311-cp311-manylinux_2_28_x86_64")
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())


@pytest.mark.usefixtures("x86_only")
def test_a_package_without_a_wheel_for_each_architecture_is_not_locked(
    app: definition.Image, tmp_path: Path
) -> None:
    place = tmp_path / "images/tiny/image.yaml"
    with refused("wheel-missing", "app", "brought==1.0 for arm64", place) as caught:
        resolve.write_locks(app, Silent())
    assert "brought==1.0 for amd64" not in caught.value.message
    assert "requirements.in" in str(caught.value.hint)
    assert not (app.folder / "requirements.lock").exists()


@pytest.mark.usefixtures("x86_only")
def test_a_marker_leaves_the_package_out_for_the_architecture_without_a_wheel(
    app: definition.Image
) -> None:
    (app.folder / "requirements.in").write_text("brought ; platform_machine == 'x86_64'\n")
    resolve.write_locks(app, Silent())
    [entry] = lock.read(app.folder / "requirements.lock")
    assert entry.applies_to("3.11", "amd64")
    assert not entry.applies_to("3.11", "arm64")


def test_what_contradicts_the_image_below_cannot_be_locked(
    app: definition.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    make_wheel(index, "brought", requires="six>1.17.0")
    make_wheel(index, "six", version="1.17.0")
    make_wheel(index, "six", version="1.99.0")
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    with pytest.raises(BuildError, match=r"six==1\.17\.0"):
        resolve.write_locks(app, Silent())
    assert not (app.folder / "requirements.lock").exists()


@pytest.mark.parametrize("image", BRINGING, ids=lambda image: image.name)
def test_the_committed_lock_of_an_app_image_is_none_of_what_is_below(
    image: definition.Image
) -> None:
    locked = {entry.name for entry in lock.read(image.folder / "requirements.lock")}
    assert locked
    assert not locked & resolve._below(image)
    asked = [
        Requirement(line) for line in (image.folder / "requirements.in").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert {one.name for one in asked} <= locked


def test_uv_is_told_to_trust_the_systems_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default uv uses its own certificates, and refuses a proxy that only the system trusts."""
    told: dict[str, str] = {}

    def run(argv: object, *, env: dict[str, str], **options: object) -> Result:
        told.update(env)
        return Result((), 0, f"six==1.17.0 \\\n    --hash=sha256:{HASH}\n", "")

    monkeypatch.delenv("UV_SYSTEM_CERTS", raising=False)
    monkeypatch.setattr("trimaran.process.run", run)
    tiny = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")
    assert "six==1.17.0" in resolve._resolve(tiny, Silent())
    assert told["UV_SYSTEM_CERTS"] == "1"
