"""Tests of the image model: valid files load; errors of invalid files name file and line."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from refusals import refused
from trimaran.errors import UsageError
from trimaran.images import content_hash, definition
from trimaran.images.parts import Source

GOOD = Path(__file__).parents[1] / "images" / "tiny"


def edited(tmp_path: Path, old: str, new: str) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    for path in GOOD.iterdir():
        (folder / path.name).write_text(path.read_text())
    text = (folder / "image.yaml").read_text()
    assert old in text
    (folder / "image.yaml").write_text(text.replace(old, new))
    return folder / "image.yaml"


def test_a_file_that_several_images_build_with_is_the_same_one() -> None:
    """All images that use a source file, such as Horovod's, name the same address and hash."""
    sources: dict[str, set[Source]] = defaultdict(set)
    for image in map(definition.load, definition.names()):
        for source in image.build.sources if image.build else ():
            sources[source.url.rpartition("/")[2]].add(source)
    assert "horovod-0.28.1.tar.gz" in sources
    assert {name: found for name, found in sources.items() if len(found) > 1} == {}


@pytest.mark.parametrize("name", definition.names())
def test_every_image_of_the_checkout_loads(name: str) -> None:
    image = definition.load(name)
    assert image.name == name
    assert definition.chain(image)[-1] == image


def test_an_app_image_stands_on_its_framework_image() -> None:
    image = definition.load("resnet-imagenet-torch-cpu")
    assert [part.name for part in definition.chain(image)] == ["torch-cpu", image.name]
    assert definition.environment(image)["PYTHONNOUSERSITE"] == "1"


def test_an_unknown_image_gets_the_nearest_names() -> None:
    with refused("name-unknown", "torch-cpv", kind=UsageError) as caught:
        definition.load("torch-cpv")
    assert "torch-cpu" in str(caught.value.hint)


@pytest.mark.parametrize(("old", "new", "fault"), [
    ("summary:", "sumary:", "image.yaml:2: sumary: "),
    ("debian: [python3, python3-pip-whl]", "debian: [Python3]", "image.yaml:11: debian.0"),
    ("  TINY: from the image", "  TINY: $(id)", "image.yaml:16: environment.TINY"),
    ("  digest: sha256:96e3", "  digest: md5:96e3", "image.yaml:9: base.digest"),
    ('python: {version: "3.11"}', 'python: {version: "3.9"}', "image.yaml:12: python.version"),
    ("test: /opt/trimaran/libexec/selftest.py", "test: /opt/other.py", "test: /opt/other.py"),
    ("base:\n", "framework: torch-cpu\nbase:\n", "'base'"),
    ("files: {selftest.py:", "files: {other.py:", "files: other.py"),
    ("help:", "build: {files: [a.sh], script: b.sh}\nhelp:", "script: b.sh"),
    ("help:", "build: {files: [a.sh], script: a.sh, check: b.py}\nhelp:", "check: b.py"),
    # what Apptainer and Docker mean differently, with the reason
    ("help:", "user: nobody\nhelp:", "'user'"),
    ("help:", "workdir: /out\nhelp:", "'workdir'"),
    ("help:", "cmd: train\nhelp:", "'cmd'"),
    ("  TINY: from", "  HOME: from", "HOME"),
    ("  TINY: from", "  APPTAINER_X: from", "APPTAINER_X"),
    ("  TINY: from", "  TINY: /opt/x:/tmp/x", "environment: TINY: "),
    ("/opt/trimaran/libexec/selftest.py}", "/tmp/selftest.py}", "files.selftest.py: "),
    ("/opt/trimaran/libexec/selftest.py}", "/opt/trimaran/}", "files.selftest.py: "),
])
def test_a_faulty_file_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, fault: str
) -> None:
    with pytest.raises(UsageError) as caught:
        definition.read(edited(tmp_path, old, new))
    assert fault in str(caught.value)


@pytest.mark.parametrize("packages", ["[trainkit, slope]", "[trainkit, shards, slope]"])
def test_an_app_image_has_the_library_of_shards_before_trainkit(
    tmp_path: Path, packages: str
) -> None:
    text = (definition.load("resnet-imagenet-torch-cpu").folder / "image.yaml").read_text()
    old = "packages: [shards, trainkit, resnet-imagenet]"
    assert old in text
    (tmp_path / "image.yaml").write_text(text.replace(old, f"packages: {packages}"))
    with refused("file-invalid", "app.packages", "[shards, trainkit, ...]", kind=UsageError):
        definition.read(tmp_path / "image.yaml")


def test_a_variant_says_only_of_what_and_has_all_of_it(tmp_path: Path) -> None:
    dev, other = definition.load("torch-cpu-dev"), definition.load("torch-cpu")
    assert set(dev.debian) > set(other.debian)
    assert dev.python is not None
    assert other.python is not None
    # torch.compile includes them
    assert set(other.python.remove) - set(dev.python.remove) == {"torch/include"}
    assert (dev.build, dev.base) == (other.build, other.base)
    assert dev.environment.items() > other.environment.items()
    assert dev.tag == f"{other.tag}-dev"
    assert definition.environment(dev).items() > definition.environment(other).items()
    folder = tmp_path / "x-dev"
    folder.mkdir()
    (folder / "image.yaml").write_text("schema: 1\nvariant: dev\nof: tiny\nsummary: mine\n")
    with pytest.raises(UsageError, match="4: summary: "):
        definition.read(folder / "image.yaml")


def test_all_faults_of_a_file_are_named_at_once(tmp_path: Path) -> None:
    path = edited(tmp_path, "licenses: MIT", 'licences: MIT\nextra: "1"')
    with pytest.raises(UsageError) as caught:
        definition.read(path)
    assert str(caught.value).count("image.yaml:") == 3  # two unknown keys, one missing


@pytest.mark.parametrize("name", ["image.def", "requirements.lock", "debian.lock", "selftest.py"])
def test_content_changes_with_every_file_that_goes_into_the_image(
    tmp_path: Path, name: str
) -> None:
    path = edited(tmp_path, "schema", "schema")
    before = content_hash.content_of(definition.read(path))
    assert before == content_hash.content_of(definition.read(path))
    with (path.parent / name).open("a") as file:
        file.write("# changed\n")
    assert content_hash.content_of(definition.read(path)) != before


def test_a_shared_self_test_is_found_unless_the_image_has_its_own(tmp_path: Path) -> None:
    path = edited(tmp_path, "files: {selftest.py:", "files: {selftest_common.py:")
    image = definition.read(path)
    assert definition.file_of(image, "selftest_common.py").parent.name == "selftests"
    shared = content_hash.content_of(image)
    (path.parent / "selftest_common.py").write_text("its own\n")
    assert definition.file_of(image, "selftest_common.py").parent == path.parent
    assert content_hash.content_of(image) != shared


def test_a_self_test_is_told_whose_gpus_the_image_is_for() -> None:
    told = {name: definition.self_test(definition.load(name))[1] for name in definition.names()}
    assert told["torch-cpu"] == "none"
    assert told["resnet-imagenet-torch-cuda13"] == "nvidia"
    assert told["tensorflow-rocm"] == "amd"
