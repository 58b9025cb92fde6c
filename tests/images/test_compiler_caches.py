"""An image keeps compiled code where no other user can write, and where the site wants it.

The script that each image runs is run by sh, with other paths in place of /caches, /out and /tmp.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from trimaran import cluster
from trimaran.images import definition, render

SCRIPT = Path(render.__file__).with_name("compiler_caches.sh")
FUNCTIONS = Path(cluster.__file__).with_name("functions.sh")
OWN = f"trimaran-caches-{os.getuid()}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("home", "tmp", "bin"):
        (tmp_path / name).mkdir()
    return tmp_path


def on(root: Path, kind: str) -> None:
    """Let `stat -f` print `kind` as the type of each file system."""
    program = root / "bin/stat"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -f ]; then echo "{kind}"; else exec /usr/bin/stat "$@"; fi\n')
    program.chmod(0o755)


def chosen(root: Path, **variables: str) -> tuple[Path, str]:
    """Return the folder that the script chooses, and what it writes to standard error."""
    text = SCRIPT.read_text()
    for place in ("caches", "out", "tmp"):
        assert f"/{place}" in text
    text = text.replace("/caches", f"{root}/caches").replace("/out", f"{root}/out")
    text = text.replace("compiled=/tmp\n", f"compiled={root}/tmp\n")
    done = subprocess.run(
        ["sh", "-euc", f"{text}\nprintf %s \"$compiled\""], capture_output=True, text=True,
        check=True, env={"HOME": f"{root}/home", "PATH": f"{root}/bin:/usr/bin:/bin", **variables},
    )
    return Path(done.stdout), done.stderr


def test_the_folder_of_a_job_comes_first(root: Path) -> None:
    for name in ("caches", "out"):
        (root / name).mkdir()
    assert chosen(root) == (root / "caches", "")
    assert list((root / "out").iterdir()) == []


def test_without_it_compiled_code_is_in_the_run_directory(root: Path) -> None:
    (root / "out").mkdir()
    place, said = chosen(root)
    assert (place, said) == (root / "out/.caches", "")
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert chosen(root) == (place, "")  # a run that resumes


@pytest.mark.parametrize("branch", ["out", "tmp", "TMPDIR", "home"])
def test_a_network_file_system_is_named_wherever_the_folder_is(root: Path, branch: str) -> None:
    on(root, "nfs")
    variables: dict[str, str] = {}
    expected = root / "tmp" / OWN
    match branch:
        case "out":
            (root / "out").mkdir()
            expected = root / "out/.caches"
        case "TMPDIR":
            (root / "shared").mkdir()
            variables, expected = {"TMPDIR": f"{root}/shared"}, root / "shared" / OWN
        case "home":
            expected.touch()
            expected = root / "home/.cache"
    place, said = chosen(root, **variables)
    assert place == expected
    assert place.is_dir()
    last = said.splitlines()[-1]
    assert f"{place}, on" in last
    assert last.endswith(": nfs")


@pytest.mark.parametrize("kind", [
    "fuseblk", "v9fs", "smb", "smb2", "cifs", "UNKNOWN (0x19830326)", "lustre", "gpfs", "",
])
def test_a_type_that_is_not_known_to_be_local_is_named(root: Path, kind: str) -> None:
    on(root, kind)
    place, said = chosen(root)
    assert place == root / "tmp" / OWN
    assert said.endswith(f": {kind or 'unknown'}\n")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("kind", ["ext2/ext3", "xfs", "btrfs", "tmpfs", "overlayfs", "zfs"])
def test_a_local_file_system_is_not_mentioned(root: Path, kind: str) -> None:
    on(root, kind)
    assert chosen(root) == (root / "tmp" / OWN, "")


def test_jobs_and_images_know_the_same_local_file_systems() -> None:
    known = [
        re.search(r"^ *(.*\| ext2/ext3 \|.*)\) ;;$", text, re.MULTILINE)
        for text in (SCRIPT.read_text(), FUNCTIONS.read_text())
    ]
    assert known[0] is not None
    assert known[1] is not None
    assert known[0][1] == known[1][1]


def test_without_a_run_it_is_a_private_folder_on_this_node(root: Path) -> None:
    place, said = chosen(root)
    assert (place, said) == (root / "tmp" / OWN, "")
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert chosen(root) == (place, "")


@pytest.mark.parametrize("there", ["link", "open", "file", "another user's"])
def test_a_folder_that_another_user_could_write_is_not_used(root: Path, there: str) -> None:
    place = root / "tmp" / OWN
    match there:
        case "link":
            (root / "theirs").mkdir(mode=0o700)
            place.symlink_to(root / "theirs")
        case "open":
            place.mkdir()
            place.chmod(0o777)
        case "file":
            place.touch()
        case _:
            place.mkdir(mode=0o700)
            program = root / "bin/stat"  # only root could give the folder away
            program.write_text(
                '#!/bin/sh\ncase $1 in -f) echo xfs ;; *) echo "4711 700 directory" ;; esac\n')
            program.chmod(0o755)
    found, said = chosen(root)
    assert found == root / "home/.cache"
    assert len(said.splitlines()) == 1
    assert str(place) in said
    assert str(found) in said


def test_a_folder_in_a_group_folder_is_private_too(root: Path) -> None:
    """A new folder inherits the set-group-ID bit of its parent, but counts as private.

    Folders that a project shares often have this bit.
    """
    (root / "out").mkdir()
    (root / "out").chmod(0o2770)
    assert chosen(root) == (root / "out/.caches", "")


def test_each_library_has_a_folder_of_its_own(root: Path) -> None:
    text = render.text(definition.load("torch-cuda13"), "image.def")
    assert SCRIPT.read_text().splitlines()[-1] in text
    for name, folder in (("TORCHINDUCTOR_CACHE_DIR", "torchinductor"), ("TRITON_HOME", "triton"),
                         ("PYTORCH_KERNEL_CACHE_PATH", "torch-kernels"),
                         ("CUDA_CACHE_PATH", "cuda")):
        assert f'    export {name}="$compiled/{folder}"\n' in text
    rocm = render.text(definition.load("resnet-imagenet-torch-rocm"), "image.def")
    for name in ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"):
        assert f'    export {name}="$compiled/miopen"\n' in rocm


def test_a_cache_of_triton_that_the_host_names_is_not_used() -> None:
    """Apptainer removes a variable that is empty here; PyTorch would use an empty one.

    PyTorch itself sets TRITON_CACHE_DIR to a folder per GPU, so that ranks do not overwrite each
    other's files. Therefore the variable has no value, and is not exported.
    """
    text = render.text(definition.load("torch-cuda13"), "image.def")
    assert '\n    TRITON_CACHE_DIR=""\n' in text
    assert "export TRITON_CACHE_DIR" not in text
    assert "TRITON_CACHE_DIR" not in render.text(definition.load("torch-cpu"), "image.def")
