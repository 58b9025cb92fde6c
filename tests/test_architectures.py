"""Processor architectures of images: names, emulation, and errors for unsupported ones."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sifs
from jobplaces import write_program
from refusals import refused
from trimaran import architectures, engines, publishing
from trimaran.architectures import Architecture
from trimaran.cli import app
from trimaran.engines import BuiltImage, store
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import BuildError, UsageError
from trimaran.images import content_hash, definition, emulation, lock, resolve, wheelhouse
from trimaran.reporting import Silent
from trimaran.run import inputs

TINY = definition.read(Path(__file__).parent / "images/tiny/image.yaml")
REGISTERED = "enabled\ninterpreter /usr/bin/qemu\nflags: {}\noffset 0\nmagic 7f45\n"


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate an amd64 machine; return the path at which Linux registers an arm64 emulator.

    No file exists at this path yet.
    """
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(emulation, "BINFMT", tmp_path)
    return tmp_path / "qemu-aarch64"


def test_the_processor_of_the_machine_needs_no_emulator(register: Path) -> None:
    assert emulation.require_processor("amd64") is False


def test_a_machine_of_another_architecture_is_not_taken_for_amd64(
    register: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "ppc64le")
    with refused("emulation-missing", "ppc64le", "amd64", kind=BuildError):
        emulation.require_processor("amd64")


def test_a_registered_emulator_serves_containers(register: Path) -> None:
    register.write_text(REGISTERED.format("PF"))
    assert emulation.require_processor("arm64") is True


@pytest.mark.parametrize("text", [
    None, REGISTERED.format("P"), REGISTERED.format("F").replace("enabled", "disabled"), "",
])
def test_an_emulator_that_does_not_serve_containers_is_refused(
    register: Path, text: str | None
) -> None:
    """An emulator is refused if it is not registered, or is disabled.

    It is also refused without the flag F (opened at its registration), or if its file is empty.
    """
    if text is not None:
        register.write_text(text)
    with refused("emulation-missing", "arm64", kind=BuildError) as caught:
        emulation.require_processor("arm64")
    assert "qemu-user-static" in str(caught.value.hint)


@pytest.mark.parametrize(("oldest", "printed", "accepted"), [
    ("10.0", "qemu-aarch64 version 7.2.22 (Debian 1:7.2+dfsg-7)", False),
    ("10.0", "qemu-aarch64 version 9.2.0", False),
    ("10.0", "qemu-aarch64 version 10.0.2 (Debian 1:10.0.2+ds-2)", True),
    ("10.0", "qemu-aarch64 version 11.1.3", True),
    ("10.0", "another emulator", True),  # it may work
    (None, "qemu-aarch64 version 7.2.22", True),
])
def test_an_emulator_that_is_too_old_for_an_image_is_refused(
    register: Path, tmp_path: Path, oldest: str | None, printed: str, accepted: bool
) -> None:
    """The kernel has registered a link to the emulator, under whose name it prints no version."""
    write_program(tmp_path / "qemu", f'#!/bin/sh\n[ "$0 $*" = "{tmp_path}/qemu --version" ] || '
                                     f"exit 1\necho '{printed}'\n")
    (tmp_path / "link").symlink_to("qemu")
    register.write_text(REGISTERED.format("PF").replace("/usr/bin/qemu", str(tmp_path / "link")))
    image = definition.on(TINY.model_copy(update={"qemu": oldest}), "arm64")
    if accepted:
        assert emulation.require_for(image) is True
        return
    with refused("emulation-outdated", image.name, "10.0", kind=BuildError) as caught:
        emulation.require_for(image)
    assert "qemu-user" in str(caught.value.hint)


@pytest.mark.parametrize(("oldest", "install"), [("10.0", False), ("11.0", True), (None, None)])
def test_an_emulator_that_was_upgraded_must_be_registered_again(
    register: Path, tmp_path: Path, oldest: str | None, install: bool | None
) -> None:
    """The kernel keeps the old program open; the new one may be too old as well."""
    register.write_text(REGISTERED.format("PF").replace("/usr/bin/qemu", str(tmp_path / "qemu")))
    os.utime(register, (1, 1))
    write_program(tmp_path / "qemu", "#!/bin/sh\necho qemu-aarch64 version 10.0.2\n")
    image = definition.on(TINY.model_copy(update={"qemu": oldest}), "arm64")
    if oldest is None:
        assert emulation.require_for(image) is True
        return
    with refused("emulation-outdated", "10.0.2", kind=BuildError) as caught:
        emulation.require_for(image)
    assert "update-binfmts --enable qemu-aarch64" in str(caught.value.hint)
    assert ("apt-get install" in str(caught.value.hint)) is install


def test_an_emulator_that_does_not_answer_in_time_is_not_too_old(
    register: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulation, "ANSWER_SECONDS", 0.2)
    write_program(tmp_path / "qemu", "#!/bin/sh\nsleep 30\necho qemu-aarch64 version 7.2.22\n")
    register.write_text(REGISTERED.format("PF").replace("/usr/bin/qemu", str(tmp_path / "qemu")))
    image = definition.on(TINY.model_copy(update={"qemu": "10.0"}), "arm64")
    assert emulation.require_for(image) is True


def test_an_emulator_that_cannot_be_started_is_not_too_old(register: Path) -> None:
    register.write_text(REGISTERED.format("PF").replace("/usr/bin/qemu", "/missing/qemu"))
    image = definition.on(TINY.model_copy(update={"qemu": "10.0"}), "arm64")
    assert emulation.require_for(image) is True


@pytest.mark.parametrize(("machine", "own"), [
    ("x86_64", "amd64"), ("aarch64", "arm64"), ("ppc64le", "amd64"),
])
def test_a_definition_is_for_the_processor_of_the_machine(
    machine: str, own: Architecture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert definition.load("torch-cpu").architecture == own
    assert definition.load("resnet-imagenet-torch-cpu").architecture == own


def test_an_app_image_is_built_on_a_framework_image_of_its_architecture() -> None:
    image = definition.on(definition.load("resnet-imagenet-torch-cpu"), "arm64")
    assert [part.architecture for part in definition.chain(image)] == ["arm64", "arm64"]


def test_each_architecture_has_its_own_locks_and_content() -> None:
    images = [definition.on(TINY, one) for one in architectures.ARCHITECTURES]
    names = [definition.lock_name(image, "debian.lock") for image in images]
    assert names == ["debian.lock", "debian.arm64.lock"]
    assert len({content_hash.content_of(image) for image in images}) == len(images)
    debs = [{one.filename for one in lock.read_debian(TINY.folder / name)} for name in names]
    assert all(name.endswith(("_amd64.deb", "_all.deb")) for name in debs[0])
    assert all(name.endswith(("_arm64.deb", "_all.deb")) for name in debs[1])


def test_the_cache_keeps_the_packages_of_every_architecture() -> None:
    other = lock.read_debian(TINY.folder / "debian.arm64.lock")
    assert {package.sha256 for package in other} <= wheelhouse.locked_hashes(TINY)


def test_an_image_that_does_not_exist_for_an_architecture_is_refused_with_the_reason() -> None:
    image = definition.load("tensorflow-cuda")
    with refused("architecture-unsupported", image.lacks["arm64"], kind=UsageError):
        definition.on(image, "arm64")


def test_a_definition_names_every_architecture_or_the_reason_against_it() -> None:
    content = TINY.model_dump(exclude={"lacks"}, by_alias=True)
    for wrong in (
        {"architectures": ["amd64"]}, {"lacks": {"arm64": "none"}},
        {"architectures": ["amd64", "amd64"]},
    ):
        with pytest.raises(ValueError, match="name each architecture once"):
            definition.Image.model_validate({**content, **wrong}, strict=False)


def test_a_self_test_needs_the_emulator_too(register: Path) -> None:
    image = definition.on(TINY, "arm64")
    pulled = BuiltImage("tiny", "apptainer", "tiny.sif", "sha256:" + "a" * 64, "b" * 64, 1)
    with refused("emulation-missing", "arm64", kind=BuildError):
        Apptainer("/opt/apptainer/bin/apptainer").test(image, pulled, Silent())


def test_a_build_needs_the_emulator_too(register: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, image = sifs.engine(monkeypatch), definition.on(TINY, "arm64")
    with refused("emulation-missing", "arm64", kind=BuildError):
        engine.build(image, base=None, offline=True, reporter=Silent())
    with (
        refused("emulation-missing", "arm64", kind=BuildError),
        engine.again(image, base=None, reporter=Silent()),
    ):
        pytest.fail("built again")


def test_a_program_in_an_image_needs_the_emulator_too(register: Path) -> None:
    record = store.Record(
        name="tiny", engine="apptainer", reference="/tiny.sif", digest=sifs.DIGEST,
        content="c" * 64, inputs="a" * 64, built="2026-01-01T00:00:00Z", base_name="debian",
        base_digest="sha256:1", size=3000, architecture="arm64",
    )
    with refused("emulation-missing", "arm64", kind=BuildError):
        Apptainer("/opt/apptainer/bin/apptainer").inside(record, ["-c", "pass"])


def test_the_way_out_of_a_missing_image_names_its_architecture(register: Path) -> None:
    engine = Apptainer("/opt/apptainer/bin/apptainer")
    for architecture, command in (
        ("amd64", f"trimaran build {TINY.name} --engine apptainer"),
        ("arm64", f"trimaran build {TINY.name} --engine apptainer --arch arm64"),
    ):
        with refused("image-missing", TINY.name, kind=BuildError) as caught:
            engines.require(engine, definition.on(TINY, architecture))
        assert caught.value.hint == command


@pytest.mark.parametrize("command", ["sign", "verify"])
def test_a_file_states_its_own_architecture(command: str, tmp_path: Path) -> None:
    file = tmp_path / "image.sif"
    file.touch()
    with refused("arguments-conflict", "--arch", kind=UsageError):
        CliRunner().invoke(
            app, [command, str(file), "--arch", "arm64"], catch_exceptions=False)


def test_a_definition_names_the_kinds_of_gpu_for_each_architecture() -> None:
    content = definition.load("torch-cuda13").model_dump(by_alias=True)
    content["gpu_architectures"].pop("arm64")
    with pytest.raises(ValueError, match="gpu_architectures"):
        definition.Image.model_validate(content, strict=False)


@pytest.mark.parametrize(("words", "sentence"), [
    ("build torch-cpu --arch aarch64", "aarch64 is called arm64 here"),
    ("publish torch-cpu --arch x86_64", "x86_64 is called amd64 here"),
    ("build torch-cpu --arch riscv64", None),
    ("list x86_64", None), ("publish torch-cpu --name never", None),
])
def test_the_error_about_an_option_names_the_architecture_as_it_is_called_here(
    words: str, sentence: str | None
) -> None:
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2
    assert "Value error" not in done.output, "this is pydantic's"
    assert (" is called " in done.output) is (sentence is not None)
    assert sentence is None or sentence in " ".join(done.output.split())


def said_by(*words: str) -> str:
    """Return what `trimaran WORDS` writes to standard error."""
    program = [sys.executable, "-c", "from trimaran.cli import main; main()"]
    return subprocess.run(
        [*program, *words], check=False, capture_output=True, text=True, timeout=120
    ).stderr


@pytest.mark.parametrize(("words", "code"), [
    (("build", "torch-cuda12", "--arch", "arm64"), "architecture-unsupported"),
    (("test-image", "torch-cuda12", "--arch", "arm64"), "architecture-unsupported"),
    (("inspect", "torch-cuda12", "--arch", "arm64"), "architecture-unsupported"),
    (("fetch", "torch-cuda12", "--arch", "arm64"), "architecture-unsupported"),
])
def test_the_command_line_refuses_an_architecture(words: tuple[str, ...], code: str) -> None:
    assert f"error[{code}]" in said_by(*words)


@pytest.mark.parametrize("words", [
    "run resnet-imagenet/v100x1-throughput", "run resnet-imagenet/v100x1-throughput --dry-run",
    "doctor resnet-imagenet/v100x1-throughput", "tune resnet-imagenet/v100x1-throughput",
    "build torch-cuda12", "test-image torch-cuda12", "inspect torch-cuda12", "fetch torch-cuda12",
    "extend torch-cuda12 --pip einops", "sbom torch-cuda12 -o new.json", "audit torch-cuda12",
    "sign torch-cuda12", "verify torch-cuda12", "pull torch-cuda12 --registry localhost:1/none",
    "push torch-cuda12 --registry localhost:1/none",
])
def test_an_image_that_this_machine_cannot_run_is_refused_before_anything_is_done(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens at port 1, so a command that asks the registry fails with another code."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(inputs, "prepare", lambda *_, **__: pytest.fail("prepared data"))
    with refused("architecture-unsupported", "torch-cuda12", "arm64", kind=UsageError):
        CliRunner().invoke(app, words.split(), catch_exceptions=False)


@pytest.mark.parametrize("words", [
    "render torch-cuda12 --check", "show images torch-cuda12", "list images",
])
def test_a_command_about_all_architectures_works_on_each_machine(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.exception


def test_an_image_for_another_architecture_is_locked_and_published_on_each_machine(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    asked: list[str] = []
    monkeypatch.setattr(resolve, "write_locks", lambda image, _: asked.append(image.name))
    monkeypatch.setattr(publishing, "publish", lambda image, *_: asked.append(image.name) or [])
    monkeypatch.setattr(publishing, "name", lambda *_: None)
    for words in ("lock torch-cuda12",
                  "publish torch-cuda12 --no-sign --registry localhost:1/none"):
        CliRunner().invoke(app, words.split(), catch_exceptions=False)
    assert asked == ["torch-cuda12", "torch-cuda12"]


def test_the_host_engine_does_not_emulate() -> None:
    other = next(one for one in architectures.ARCHITECTURES if one != architectures.native())
    said = said_by("build", "torch-cpu", "--engine", "host", "--arch", other)
    assert "error[engine-unsuitable]" in said
