"""An image keeps compiled code where no other user can write, and where the site wants it.

The script that each image runs is run by sh, with other paths in place of /caches, /out and /tmp.
"""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from trimaran.images import definition, render

SCRIPT = Path(render.__file__).with_name("compiler_caches.sh")
OWN = f"trimaran-caches-{os.getuid()}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("home", "tmp", "bin"):
        (tmp_path / name).mkdir()
    return tmp_path


def chosen(root: Path) -> tuple[Path, str]:
    """Return the folder that the script chooses, and what it writes to standard error."""
    text = SCRIPT.read_text()
    for place in ("caches", "out", "tmp"):
        assert f"/{place}" in text
    text = text.replace("/caches", f"{root}/caches").replace("/out", f"{root}/out")
    text = text.replace("compiled=/tmp\n", f"compiled={root}/tmp\n")
    done = subprocess.run(
        ["sh", "-euc", f"{text}\nprintf %s \"$compiled\""], capture_output=True, text=True,
        check=True, env={"HOME": f"{root}/home", "PATH": f"{root}/bin:/usr/bin:/bin"},
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


def test_a_run_directory_on_a_network_file_system_is_said_in_one_line(root: Path) -> None:
    (root / "out").mkdir()
    program = root / "bin/stat"
    program.write_text('#!/bin/sh\n[ "$1" = -f ] && echo nfs || exec /usr/bin/stat "$@"\n')
    program.chmod(0o755)
    place, said = chosen(root)
    assert place == root / "out/.caches"
    assert len(said.splitlines()) == 1


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
            program.write_text("#!/bin/sh\necho '4711 700 directory'\n")
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
                         ("CUDA_CACHE_PATH", "cuda")):
        assert f'    export {name}="$compiled/{folder}"\n' in text
    # PyTorch sets it to a folder per GPU, so that ranks do not overwrite each other's files.
    assert "TRITON_CACHE_DIR=" not in text
    rocm = render.text(definition.load("resnet-imagenet-torch-rocm"), "image.def")
    for name in ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"):
        assert f'    export {name}="$compiled/miopen"\n' in rocm
