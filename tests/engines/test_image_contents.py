"""Test inventories of images: the output of the probe, differences, and the stored file."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from refusals import refused
from trimaran.engines import BuiltImage, Description, image_contents, probe
from trimaran.engines.host import Host
from trimaran.engines.image_contents import File, Inventory

BUILT = BuiltImage("tiny", "apptainer", "/images/tiny.sif", "sha256:ab", "c0ffee" * 10, 9)

FACTS = {
    "release": {"ID": "debian", "VERSION_ID": "12"}, "python_version": "3.11.2",
    "environment": {"TINY": "yes", "PATH": "/bin", "APPTAINER_NAME": "x", "HOME": "/h", "LANG": "C",
                    "LD_LIBRARY_PATH": "/.singularity.d/libs"},
    "debian": [{"name": "libc6", "version": "2.36-9", "architecture": "amd64", "source": "glibc",
                "licences": ["LGPL-2.1"]}],
    "python": [{"name": "six", "version": "1.17.0", "licences": ["MIT"], "installer": "pip"}],
    "files": {
        "/opt": {"type": "directory", "mode": 0o755, "size": 0},
        "/opt/a": {"type": "file", "mode": 0o644, "size": 3, "sha256": "1" * 64},
        "/opt/b": {"type": "link", "mode": 0o777, "size": 0, "target": "a"},
    },
    "hidden": ["/etc/hosts"],
}


class Engine:
    """A stand-in for a container engine."""

    name = "apptainer"
    container = True

    def __init__(self, printed: str = json.dumps(FACTS)) -> None:
        self.printed = printed

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        return self.printed

    def described(self, built: BuiltImage) -> Description:
        return Description({"a": "1"}, '#!/bin/sh\n\n    exec /opt/trimaran/bin/python "$@"\n')


def collected(printed: str = json.dumps(FACTS)) -> Inventory:
    return image_contents.collect(Engine(printed), BUILT)  # type: ignore[arg-type]


def changed(**fields: object) -> Inventory:
    return collected().model_copy(update=fields)


def test_the_variables_of_the_engine_are_not_the_image_s() -> None:
    found = collected()
    assert found.environment == {"PATH": "/bin", "TINY": "yes"}
    assert found.entry_point == "/opt/trimaran/bin/python"
    assert found.unpacked == 3


@pytest.mark.parametrize("printed", ["", "no JSON", "{}", '{"environment": {}, "files": 3}'])
def test_a_probe_that_prints_something_else_is_one_error(printed: str) -> None:
    with refused("image-invalid", "/images/tiny.sif"):
        collected(printed)


def test_the_host_engine_has_no_inventory() -> None:
    with refused("engine-unsuitable", "host"):
        image_contents.collect(Host(), BUILT)


def test_it_is_collected_once_for_the_same_bytes() -> None:
    engine = Engine()
    found = image_contents.of(engine, BUILT)  # type: ignore[arg-type]
    engine.printed = "gone"
    assert image_contents.of(engine, BUILT) == found  # type: ignore[arg-type]
    other = BuiltImage(**{**BUILT.__dict__, "digest": "sha256:cd"})
    assert image_contents.load(other) is None


def test_a_damaged_record_is_no_record() -> None:
    image_contents.record(Engine(), BUILT)  # type: ignore[arg-type]
    place = image_contents.place(BUILT)
    whole = place.read_bytes()
    for damaged in (b"", b"not gzip", whole[: len(whole) // 2]):
        place.write_bytes(damaged)
        assert image_contents.load(BUILT) is None


def test_equal_inventories_have_no_differences() -> None:
    assert collected().differences(collected()) == []


def test_every_kind_of_difference_is_named() -> None:
    before = collected()
    after = changed(
        debian=(), environment={"PATH": "/bin"}, labels={"a": "2"}, entry_point="sh",
        python=(before.python[0].model_copy(update={"version": "1.18"}),),
        files={**before.files, "/opt/a": File(type="file", mode=0o600, size=3, sha256="2" * 64)},
    )
    found = before.differences(after)
    assert [str(difference) for difference in found] == [
        "debian libc6:amd64: 2.36-9 -> absent",
        "python six: 1.17.0 -> 1.18",
        "environment TINY: yes -> absent",
        "label a: 1 -> 2",
        "entry point command: /opt/trimaran/bin/python -> sh",
        f"file /opt/a: file 644 {'1' * 64} -> file 600 {'2' * 64}",
    ]
    assert image_contents.unexplained(found) == found


def test_a_known_reason_explains_only_what_it_names() -> None:
    created = "org.opencontainers.image.created"
    found = changed(labels={created: "1"}).differences(changed(labels={created: "2", "x": "3"}))
    assert [(d.name, d.reason) for d in found] == [(created, "the date of the build"), ("x", None)]


def test_what_the_engine_hides_is_not_compared() -> None:
    file = File(type="file", mode=0o644, size=1, sha256="3" * 64)
    before = collected()
    for path in ("/etc/hosts", "/etc/hosts/below"):
        assert before.differences(changed(files={**before.files, path: file})) == []


def test_the_largest_items_are_packages_and_folders() -> None:
    site = "/opt/trimaran/lib/python3.11/site-packages"
    sizes = {f"{site}/torch/a": 5, f"{site}/torch/lib/b": 6, f"{site}/nvidia/dali/c": 7,
             "/usr/lib/x86_64-linux-gnu/d/e": 3, "/bin/f": 1}
    files = {path: File(type="file", mode=0, size=size) for path, size in sizes.items()}
    assert [(item.path, item.size) for item in changed(files=files).largest(4)] == [
        (f"{site}/torch", 11), (f"{site}/nvidia/dali", 7), ("/usr/lib/x86_64-linux-gnu", 3),
        ("/bin/f", 1),
    ]


def test_the_probe_sees_files_links_and_modes_and_skips(own_place: Path) -> None:
    (own_place / "folder/below").mkdir(parents=True)
    (own_place / "folder/file").write_bytes(b"content")
    (own_place / "folder/file").chmod(0o640)
    (own_place / "link").symlink_to("folder")
    (own_place / "skipped/deep").mkdir(parents=True)
    found = probe.files(str(own_place), frozenset({str(own_place / "skipped")}))
    names = ("folder", "folder/below", "folder/file", "link")
    assert set(found) == {str(own_place / name) for name in names}
    assert found[str(own_place / "folder/file")] == {
        "type": "file", "mode": 0o640, "size": 7,
        "sha256": "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73",
    }
    assert found[str(own_place / "link")]["target"] == "folder"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_has_no_digest(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    assert probe.files(str(tmp_path), frozenset())[str(tmp_path / "secret")]["sha256"] is None


def test_debian_packages_and_their_licences(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(
        "Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2-3\n"
        "Source: big (1:2)\nDescription: x\n more: no field\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n"
        "Package: b\nStatus: install ok installed\nArchitecture: all\nVersion: 4\n"
    )
    for name, text in {
        "a": "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
             "Files: *\nLicense: MIT or GPL-2+\n\nLicense: MIT\n text\n",
        "b": "License: some prose that is not a field\nsee /usr/share/common-licenses/LGPL-2.1.\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "copyright").write_text(text)
    assert probe.debian(status, tmp_path) == [
        {"name": "a", "version": "1:2-3", "architecture": "amd64", "source": "big",
         "licences": ["MIT", "MIT or GPL-2+"], "mentioned": []},
        {"name": "b", "version": "4", "architecture": "all", "source": "b",
         "licences": [], "mentioned": ["LGPL-2.1"]},
    ]


@pytest.mark.parametrize(("expression", "classifiers", "text", "licences"), [
    ("MIT AND BSD-3-Clause", ["License :: OSI Approved :: MIT License"], "x",
     ["MIT AND BSD-3-Clause"]),
    (None, ["License :: OSI Approved :: MIT License", "License :: OSI Approved"], "x",
     ["MIT License"]),
    (None, ["Topic :: Software"], " Apache 2.0 ", ["Apache 2.0"]),
    (None, [], "Copyright\nThe whole text", []),
    (None, [], None, []),
])
def test_licences_of_a_python_package(
    expression: str | None, classifiers: list[str], text: str | None, licences: list[str]
) -> None:
    assert probe.python_licences(expression, classifiers, text) == licences


def test_the_probe_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(probe.__file__).read_text())
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
             for alias in node.names}
    named |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {"json", "importlib"} <= named
    assert {name.split(".")[0] for name in named} <= sys.stdlib_module_names
