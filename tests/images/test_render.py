"""Tests of the generated definitions: comparison with whole files, and errors of hpccm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goldens import TINY
from refusals import refused
from trimaran.errors import UsageError
from trimaran.images import definition, render

ALL = [*(definition.load(name) for name in definition.names()), definition.read(TINY)]


@pytest.mark.parametrize("image", ALL, ids=lambda image: image.name)
@pytest.mark.parametrize("file", list(render.FILES))
def test_the_committed_file_is_what_is_rendered(image: definition.Image, file: str) -> None:
    assert (image.folder / file).read_text() == render.text(image, file)


@pytest.mark.parametrize("image", ALL, ids=lambda image: image.name)
def test_both_formats_have_the_same_content(image: definition.Image) -> None:
    deffile, dockerfile = (render.text(image, file) for file in render.FILES)
    for key, value in definition.environment(image).items():
        assert f'export {key}="{value}"\n' in deffile
        assert f'{key}="{value}"' in dockerfile
    for name, place in image.files.items():
        assert f"\n    {name} {place}\n" in deffile
        assert f"COPY {name} {place}\n" in dockerfile
    commands = [
        line.strip().replace("{{ HOROVOD }}", "${HOROVOD}")
        for line in deffile.splitlines() if "/mnt/" in line
    ]
    assert commands
    for command in commands:
        assert command in dockerfile
    final = deffile[deffile.find("Stage: final"):] if image.build else deffile
    assert final.index("%files") < final.index("%post")
    final = dockerfile[dockerfile.find("AS final"):] if image.build else dockerfile
    assert final.index("COPY") < final.index("RUN")


def test_nothing_of_the_first_stage_but_its_product_is_in_the_image() -> None:
    image = definition.load("torch-cpu")
    for file in render.FILES:
        first, final = re.split(r"Stage: final|AS final", render.text(image, file))
        assert "/mnt/build/debs/*.deb" in first
        assert "sh /mnt/build/horovod.sh" in first
        assert "/mnt/build" not in final
        assert "/opt/stage/lib /opt/trimaran/lib" in final


@pytest.mark.parametrize(("name", "python"), [
    ("torch-rocm", "/opt/venv/bin/python"), ("tensorflow-rocm", "/usr/bin/python3"),
])
@pytest.mark.parametrize("file", list(render.FILES))
def test_the_base_image_of_amd_is_checked_before_anything_is_installed(
    name: str, python: str, file: str
) -> None:
    text = render.text(definition.load(name), file)
    commands = [line.strip() for line in text.splitlines() if "/mnt/" in line or "venv" in line]
    assert commands[0].endswith(" python3 /mnt/build/rocm_check.py base")
    assert f' PYTHON="{python}" ' in commands[0]


@pytest.mark.parametrize("image", ALL, ids=lambda image: image.name)
def test_the_hosts_python_is_kept_out(image: definition.Image) -> None:
    deffile, dockerfile = (render.text(image, file) for file in render.FILES)
    # Empty: Apptainer gives back the host's value of what is only unset.
    assert 'export PYTHONPATH=""\n' in deffile
    assert 'export PYTHONHOME=""\n' in deffile
    for text in (deffile, dockerfile):
        assert ('PYTHONSAFEPATH="1"' in text) == (image.kind == "app")


def test_a_cache_is_the_users_own_unless_the_image_says_where_it_is() -> None:
    framework, app = (
        render.text(definition.load(name), "image.def")
        for name in ("tensorflow-cpu", "keras-resnet-tensorflow-cpu")
    )
    assert 'caches="$HOME/.cache"; else caches=$(mktemp -d)' in framework
    assert 'export KERAS_HOME="$caches/keras"\n' in framework
    assert 'export KERAS_HOME="/opt/trimaran"\n' in app
    assert "caches" not in app
    assert "TORCHINDUCTOR" not in render.text(definition.load("torch-cpu"), "Dockerfile")


def test_every_step_of_a_build_has_one_umask_and_the_last_takes_rights_away() -> None:
    image = definition.load("torch-cpu")
    for file, step in (("image.def", "%post\n    cd /\n    "), ("Dockerfile", "RUN ")):
        _, *steps = render.text(image, file).split(step)
        assert [text.startswith("umask 022") for text in steps] == [True] * 5
        assert "-exec chmod ug-s,o-w" in steps[-1]


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    for path in TINY.parent.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    image = definition.read(tmp_path / "image.yaml")
    with refused("file-outdated", kind=UsageError):  # the folder gives another name
        render.check(image)
    render.write(image)
    render.check(image)
    (tmp_path / "Dockerfile").write_text((tmp_path / "Dockerfile").read_text() + "RUN true\n")
    with refused("file-outdated", tmp_path / "Dockerfile", kind=UsageError) as caught:
        render.check(image)
    assert "image.def" not in caught.value.message


def test_a_misspelt_argument_of_hpccm_is_refused() -> None:
    with pytest.raises(ValueError, match="comands"):
        render.primitive("shell", comands=["true"])


def test_a_primitive_outside_the_list_is_refused() -> None:
    with pytest.raises(ValueError, match="'user'"):
        render.primitive("user", user="nobody")


def test_what_hpccm_only_logs_is_an_error() -> None:
    lost = render.primitive("runscript", commands=["true"], _app="train")
    with (
        render.container_format("docker"),
        pytest.raises(ValueError, match="Docker does not have"),  # a message of hpccm
    ):
        str(lost)
