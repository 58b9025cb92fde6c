"""The generated definitions: whole files compared, and hpccm's silence turned into errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran import images, render
from trimaran.errors import UsageError

TINY = Path(__file__).with_name("images") / "tiny" / "image.yaml"
ALL = [*(images.load(name) for name in images.names()), images.read(TINY)]


@pytest.mark.parametrize("image", ALL, ids=lambda image: image.name)
@pytest.mark.parametrize("file", list(render.FILES))
def test_the_committed_file_is_what_is_rendered(image: images.Image, file: str) -> None:
    assert (image.folder / file).read_text() == render.text(image, file)


@pytest.mark.parametrize("image", ALL, ids=lambda image: image.name)
def test_both_formats_have_the_same_content(image: images.Image) -> None:
    definition, dockerfile = (render.text(image, file) for file in render.FILES)
    for key, value in images.environment(image).items():
        assert f'export {key}="{value}"\n' in definition
        assert f'{key}="{value}"' in dockerfile
    for name, place in image.files.items():
        assert f"\n    {name} {place}\n" in definition
        assert f"COPY {name} {place}\n" in dockerfile
    commands = [line.strip() for line in definition.splitlines() if "/mnt/" in line]
    assert commands
    for command in commands:
        assert command in dockerfile
    assert definition.index("%files") < definition.index("%post")
    assert dockerfile.index("COPY") < dockerfile.index("RUN")


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    for path in TINY.parent.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    image = images.read(tmp_path / "image.yaml")
    with pytest.raises(UsageError, match="not current"):  # the folder gives another name
        render.check(image)
    render.write(image)
    render.check(image)
    (tmp_path / "Dockerfile").write_text((tmp_path / "Dockerfile").read_text() + "RUN true\n")
    with pytest.raises(UsageError, match=r"not current: \S+Dockerfile$"):
        render.check(image)


def test_a_misspelt_argument_of_hpccm_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown arguments comands"):
        render.primitive("shell", comands=["true"])


def test_a_primitive_outside_the_list_is_refused() -> None:
    with pytest.raises(ValueError, match="'user' is not used here"):
        render.primitive("user", user="nobody")


def test_what_hpccm_only_logs_is_an_error() -> None:
    lost = render.primitive("runscript", commands=["true"], _app="train")
    with render._format("docker"), pytest.raises(ValueError, match="Docker does not have"):
        str(lost)
