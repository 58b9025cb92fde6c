"""Containers of images for GPUs use the driver of the host, if the driver is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from commandline import command
from refusals import refused
from trimaran import hostfacts
from trimaran.engines import BuiltImage, commands
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.podman import Podman
from trimaran.images import definition
from trimaran.images.parts import Gpu

FOR_GPUS = [name for name in definition.names() if commands.gpu_vendor(name)]


def options(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    monkeypatch.setattr(hostfacts, "root_lacks_capabilities", lambda: False)
    built = BuiltImage(name, "apptainer", "/x.sif", "sha256:0", "0", 1)
    argv = command(Apptainer("/bin/apptainer"), built, []).argv
    return [word for word in argv if word in commands.GPU_OPTION.values()]


@pytest.mark.parametrize(("name", "of", "option"), [
    ("torch-cuda13", "nvidia", "--nv"),
    ("resnet-imagenet-torch-cuda12", "nvidia", "--nv"),  # by its framework image
    ("torch-rocm", "amd", "--rocm"),
])
def test_a_run_sees_the_gpus_only_with_a_driver_on_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, of: Gpu, option: str
) -> None:
    monkeypatch.setitem(commands.GPU_DEVICES, of, tmp_path / "device")
    assert options(monkeypatch, name) == []
    (tmp_path / "device").touch()
    assert options(monkeypatch, name) == [option]


@pytest.mark.parametrize("name", ["torch-cpu", "image-from-elsewhere"])
def test_other_images_never_see_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    for of in commands.GPU_DEVICES:
        monkeypatch.setitem(commands.GPU_DEVICES, of, tmp_path)
    assert options(monkeypatch, name) == []


def podman_options(name: str) -> list[str]:
    built = BuiltImage(name, "podman", "x", "sha256:0", "0", 1)
    argv = command(Podman(), built, []).argv
    return [argv[at + 1] for at, word in enumerate(argv) if word == "--device"]


@pytest.mark.parametrize(("name", "of", "kind", "file"), [
    ("torch-cuda13", "nvidia", "nvidia.com/gpu", "nvidia.yaml"),
    ("torch-rocm", "amd", "amd.com/gpu", "amd.json"),
])
def test_podman_hands_gpus_in_by_the_container_device_interface(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, of: Gpu, kind: str, file: str
) -> None:
    monkeypatch.setattr(commands, "CDI", (tmp_path / "absent", tmp_path / "cdi"))
    monkeypatch.setitem(commands.GPU_DEVICES, of, tmp_path / "device")
    assert podman_options(name) == [], "without a driver"
    (tmp_path / "device").touch()
    with refused("gpu-unavailable", name, kind, tmp_path / "cdi"):
        podman_options(name)
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi/broken.yaml").write_text("kind: [")
    (tmp_path / "cdi/other.json").write_text('{"cdiVersion": "0.5.0", "kind": "vendor.com/net"}')
    (tmp_path / "cdi" / file).write_text(f'{{"cdiVersion": "0.5.0", "kind": "{kind}"}}')
    assert podman_options(name) == [f"{kind}=all"]
    assert podman_options("torch-cpu") == []
