"""Test the commands of the container engines and the choice of a base image, without an engine."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from commandline import command
from refusals import refused
from trimaran import hostfacts, paths
from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage, commands, podman, store
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import BuildError, UsageError
from trimaran.images import bases, content_hash, definition
from trimaran.launch import apptainer
from trimaran.launch.specification import LaunchSpec, Mount
from trimaran.reporting import Silent

TINY = definition.read(Path(__file__).parents[1] / "images" / "tiny" / "image.yaml")
BUILT = BuiltImage("tiny", "apptainer", "/images/tiny.sif", "sha256:0", "0", 1)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Apptainer:
    monkeypatch.setattr(hostfacts, "root_lacks_capabilities", lambda: False)
    return Apptainer("/opt/apptainer/bin/apptainer")


def test_the_command_is_exact(engine: Apptainer) -> None:
    exact = command(
        engine, BUILT, ["train", "--epochs=1"],
        [Mount("/d a,ta", "/data"), Mount("/run", "/out", writable=True)],
        {"OMP_NUM_THREADS": "2"}, "/out",
    )
    assert exact.argv == (
        "/opt/apptainer/bin/apptainer", "--quiet", "run", "--containall", "--no-home",
        "--cleanenv", "--no-eval", "--pwd", "/out",
        "--mount", 'type=bind,"source=/d a,ta",destination=/data,ro',
        "--mount", "type=bind,source=/run,destination=/out",
        "/images/tiny.sif", "train", "--epochs=1",
    )
    assert exact.env["APPTAINERENV_OMP_NUM_THREADS"] == "2"


def test_the_command_of_podman_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podman, "_missing", list)
    monkeypatch.setattr(podman, "_runtime", list)
    exact = command(
        podman.Podman(), replace(BUILT, reference="localhost/trimaran/tiny:0"), ["train"],
        [Mount("/d", "/data"), Mount("/r", "/out", True)], {"A": "b c"}, "/out",
    )
    assert exact.argv == (
        "podman", "--storage-driver", "vfs", "run", "--rm", "--network=none", "--read-only",
        "--workdir=/out", "--volume", "/d:/data:ro", "--volume", "/r:/out:rw", "--env", "A=b c",
        "localhost/trimaran/tiny:0", "train",
    )


def test_a_launcher_starts_the_app_inside_one_container(engine: Apptainer) -> None:
    exact = command(
        engine, BUILT, ["train"], workdir="/out", launcher=["mpirun", "-n", "2", "python"],
        module="resnet_imagenet",
    )
    assert exact.argv[2] == "exec"
    assert exact.argv[-8:] == (
        "/images/tiny.sif", "mpirun", "-n", "2", "python", "-m", "resnet_imagenet", "train",
    )


def test_an_overlay_is_read_only(engine: Apptainer) -> None:
    spec = LaunchSpec(BUILT.image, engine.node(BUILT), overlay="/my overlay")
    words = apptainer.render(spec).command().argv
    assert words[-3:] == ("--overlay", "/my overlay:ro", "/images/tiny.sif")


def test_the_process_gets_no_setting_of_the_user(
    engine: Apptainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("APPTAINER_BIND", "APPTAINERENV_LD_PRELOAD", "PYTHONPATH", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, "/leak")
    monkeypatch.setenv("https_proxy", "http://me:password@proxy")  # would be kept in run.json
    exact = command(engine, BUILT, [])
    assert "/leak" not in exact.env.values()
    assert set(exact.env) <= {"PATH", *commands.PASSED_ON}


def test_root_without_capabilities_runs_in_a_user_namespace_and_cannot_build(
    engine: Apptainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostfacts, "root_lacks_capabilities", lambda: True)
    assert "--userns" in command(engine, BUILT, []).argv
    with refused("permission-denied", "CAP_SYS_RESOURCE"):
        engine.build(TINY, base=None, offline=True, reporter=Silent())


def test_records_of_another_definition_or_damaged_ones_are_passed_over() -> None:
    paths.cache("images").mkdir(parents=True)
    record = store.Record(
        name="tiny", engine="apptainer", reference="/x.sif", digest="sha256:0", inputs="a" * 64,
        size=1, content=content_hash.content_of(TINY), built="2026-01-01T00:00:00Z",
        base_name="base", base_digest="sha256:1",
    )
    newer = record.__class__(**{**record.__dict__, "inputs": "b" * 64, "built": "2026-02"})
    other = record.__class__(**{**record.__dict__, "inputs": "c" * 64, "content": "d"})
    for one in (record, newer, other):
        store.save(one)
    paths.cache("images", "tiny-broken.apptainer.json").write_text("{")
    assert store.records(TINY, "apptainer") == [newer, record]
    assert store.records(TINY, "podman") == []


def test_the_source_label_has_no_credentials() -> None:
    assert commands._public("https://user:secret@host.org:1/a.git") == "https://host.org:1/a.git"
    assert commands._public("/home/me/repo") == "unknown"
    assert commands._public("git@host.org:a.git") == "unknown"


def test_the_date_is_source_date_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert commands.created() == "1970-01-01T00:00:00Z"


def resolve(
    offline: bool, given: str | None = None, architecture: Architecture = "amd64"
) -> bases.Base:
    def pull(reference: str, architecture: Architecture, destination: Path) -> None:
        pulled.append(f"{reference} {architecture}")
        destination.write_text("sif")

    pulled: list[str] = []
    assert TINY.base is not None
    return bases.resolve(
        TINY.base, architecture, given=given, offline=offline, pull=pull, suffix=".sif",
        reporter=Silent(),
    )


def test_the_pinned_base_is_pulled_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TINY.base is not None
    monkeypatch.setattr(bases, "unreachable", lambda image: None)
    first = resolve(offline=False)
    assert (first.bootstrap, first.digest) == ("localimage", TINY.base.digest)
    assert Path(first.reference).read_text() == "sif"
    assert resolve(offline=True) == first
    other = resolve(offline=False, architecture="arm64")
    assert other.reference != first.reference
    assert resolve(offline=True, architecture="arm64") == other


def test_an_assembled_base_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def assemble(
        suite: str, architecture: Architecture, destination: Path, reporter: Silent
    ) -> bases.Base:
        destination.parent.mkdir(parents=True, exist_ok=True)
        made = destination.with_name("made")
        made.write_text("archive")
        about = bases.Base("docker-archive", "x", "Debian by hand", "sha256:2")
        return bases._keep(made, destination, about)

    monkeypatch.setattr(bases, "unreachable", lambda image: "no registry")
    monkeypatch.setattr(bases, "assemble", assemble)
    made = resolve(offline=False)
    assert (made.bootstrap, made.name, made.digest) == (
        "docker-archive", "Debian by hand", "sha256:2"
    )
    assert resolve(offline=True) == made


def test_offline_without_a_base_says_what_to_do() -> None:
    with pytest.raises(BuildError) as caught:
        resolve(offline=True)
    assert "--base" in str(caught.value.hint)


def test_an_unreachable_registry_is_given_up_at_once() -> None:
    assert bases.unreachable("registry.invalid/a/b") is not None


def test_the_users_base_is_taken_as_it_is(tmp_path: Path) -> None:
    layer, archive = tmp_path / "layer.tar", tmp_path / "image.tar"
    with tarfile.open(layer, "w") as tar:
        tar.addfile(tarfile.TarInfo("file"), io.BytesIO())
    digest = bases.pack(layer, archive, "amd64", 0)
    first = archive.read_bytes()
    assert bases.pack(layer, archive, "amd64", 0) == digest
    assert archive.read_bytes() == first
    assert resolve(True, str(archive)).bootstrap == "docker-archive"
    assert resolve(True, "docker://host/a@sha256:1") == bases.Base(
        "docker", "host/a@sha256:1", "host/a@sha256:1", "sha256:1"
    )
    for wrong in (str(layer), str(tmp_path / "missing.sif")):
        with pytest.raises(UsageError, match="--base"):
            resolve(True, wrong)


def test_a_layer_has_no_holes(tmp_path: Path) -> None:
    tree, sparse, layer = tmp_path / "tree", tmp_path / "sparse.tar", tmp_path / "layer.tar"
    (tree / ("deep" * 30)).mkdir(parents=True)
    with (tree / "program").open("wb") as file:
        file.write(b"begin")
        file.truncate(1 << 20)
    (tree / ("deep" * 30) / "größe").write_text("text")
    (tree / "link").symlink_to("program")
    os.link(tree / "program", tree / "same")
    (tree / "program").chmod(0o755)
    subprocess.run(["tar", "--sparse", "--format=pax", "--sort=name", "-cf", sparse, "-C", tree,
                    "."], check=True)
    assert b"GNU.sparse" in sparse.read_bytes()
    bases.fill_holes(sparse, layer)
    assert b"GNU.sparse" not in layer.read_bytes()
    with tarfile.open(sparse) as before, tarfile.open(layer) as after:
        for one, other in zip(before, after, strict=True):
            same = ("name", "type", "mode", "uid", "gid", "mtime", "linkname", "size")
            assert [getattr(one, key) for key in same] == [getattr(other, key) for key in same]
            if one.isreg():
                content = before.extractfile(one), after.extractfile(other)
                assert content[0].read() == content[1].read()  # type: ignore[union-attr]
