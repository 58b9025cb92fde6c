"""A job keeps compiled code on the disk of each node, and removes it, unless the site keeps it.

The script of a job is run with stand-ins for Slurm and Apptainer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobplaces import Place, make, write_program
from trimaran.site_file import Cluster

NODE = os.uname().nodename  # the stand-in for srun sets no name of a node, as PBS and LSF do not


def mounted(place: Place) -> str | None:
    """Return the folder that the last rank has at /caches, or None."""
    variables = dict(one.partition("=")[::2] for one in place.recorded("env"))
    for mount in variables.get("APPTAINER_MOUNT", "").splitlines():
        if mount.endswith('"destination=/caches"'):
            return mount.split('"')[1].removeprefix("source=")
    return None


def test_compiled_code_is_in_the_temporary_folder_of_the_node_until_the_job_ends(
    tmp_path: Path,
) -> None:
    place = make(tmp_path / "p")
    own = place.root / f"tmp/trimaran-caches-7-{NODE}"
    code, said = place.run(f"stat -c %a '{own}' >'{place.root}/mode'")
    assert code == 0, said
    assert mounted(place) == str(own)
    assert (place.root / "mode").read_text() == "700\n"
    assert not own.exists()
    assert not (place.out / ".caches").exists()


def test_with_local_storage_it_is_there(tmp_path: Path) -> None:
    disk = tmp_path / "own disk"
    place = make(tmp_path / "p", cluster=Cluster(mpi="pmi2", local_storage=disk))
    code, said = place.run()
    assert code == 0, said
    assert mounted(place) == str(disk / f"trimaran-caches-7-{NODE}")
    assert list(disk.iterdir()) == []


def test_a_site_may_keep_it_from_job_to_job(tmp_path: Path) -> None:
    kept = tmp_path / "kept code"
    cluster = Cluster(mpi="pmi2", compiler_caches=kept, local_storage=tmp_path / "own disk")
    place = make(tmp_path / "p", cluster=cluster)
    node = kept / NODE
    code, said = place.run(f"touch '{node}/compiled'")
    assert code == 0, said
    assert mounted(place) == str(node)
    assert [path.name for path in node.iterdir()] == ["compiled"]
    assert list((tmp_path / "own disk").iterdir()) == []  # only the image was there


@pytest.mark.parametrize("there", ["link", "file"])
def test_what_another_user_may_have_put_there_is_not_used(tmp_path: Path, there: str) -> None:
    place = make(tmp_path / "p")
    own = place.root / f"tmp/trimaran-caches-7-{NODE}"
    if there == "link":
        (place.root / "theirs").mkdir()
        own.symlink_to(place.root / "theirs")
    else:
        own.touch()
    code, said = place.run()
    assert code == 0, said
    assert mounted(place) is None
    assert f"no folder {own} for compiled code" in (place.out / "log.txt").read_text()
    assert os.path.lexists(own)


def test_a_folder_where_no_program_can_run_is_not_used(tmp_path: Path) -> None:
    place = make(tmp_path / "p")
    stand_in = '#!/bin/sh\ncase $1 in 700) exit 0 ;; esac\nexec /bin/chmod "$@"\n'
    write_program(place.root / "bin/chmod", stand_in)  # as on a disk mounted with noexec
    code, said = place.run()
    assert code == 0, said
    assert mounted(place) is None
    assert "noexec" in (place.out / "log.txt").read_text()
    assert list((place.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(("kind", "warned"), [
    ("nfs", True), ("fuseblk", True), ("UNKNOWN (0x47504653)", True), ("xfs", False),
])
@pytest.mark.parametrize("setting", ["local_storage", "compiler_caches"])
def test_a_folder_that_may_be_on_a_network_is_named(
    tmp_path: Path, kind: str, warned: bool, setting: str,
) -> None:
    cluster = Cluster(mpi="pmi2")
    if setting == "compiler_caches":
        cluster = Cluster(mpi="pmi2", compiler_caches=tmp_path / "kept")
    place = make(tmp_path / "p", cluster=cluster)
    write_program(place.root / "bin/stat", "#!/bin/sh\n"
                  f'if [ "$1" = -f ]; then echo "{kind}"; else exec /usr/bin/stat "$@"; fi\n')
    code, said = place.run()
    assert code == 0, said
    folder = mounted(place)
    assert folder is not None
    log = (place.out / "log.txt").read_text()
    assert (f"compiled code is kept in {folder}, on" in log) == warned
    assert (f": {kind}\n" in log) == warned
    assert (f"in {setting} of the site file" in log) == warned


def test_a_job_removes_what_an_ended_job_has_left(tmp_path: Path) -> None:
    place = make(tmp_path / "p")
    for number in ("6", "16"):
        left = place.root / f"tmp/trimaran-caches-{number}-{NODE}"
        left.mkdir()
        (left / ".job").write_text(f"{number}\n")
    (place.root / "bin/queue").write_text("16 RUNNING\n")
    code, said = place.run()
    assert code == 0, said
    assert [path.name for path in (place.root / "tmp").iterdir()] == [f"trimaran-caches-16-{NODE}"]
