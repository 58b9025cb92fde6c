"""Image and data on a node's own disk: whole copies only, whatever a killed link has left there.

The script of a job is run with stand-ins for Slurm and Apptainer; the copies are real.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jobplaces import CHECKPOINT, SRUN, Place, make, warn, write_program
from trimaran.cluster import watch
from trimaran.sites import Cluster

SHARD = b"s" * 5000


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A job of Slurm that copies image and data; the stand-in engine lists what a rank sees."""
    site = Cluster(mpi="pmi2", local_storage=tmp_path / "own disk", stage_data=True)
    found = make(tmp_path / "p", cluster=site)
    (found.root / "data/shard-0").write_bytes(SHARD)
    return found


def staged(place: Place) -> Path:
    """Return where the copies of job 7 are."""
    assert place.job.cluster.local_storage is not None
    return place.job.cluster.local_storage / "trimaran-7-node"


def run(place: Place) -> tuple[int, str, list[str]]:
    """Run the job; return its exit status, what it said, and the files that its ranks have."""
    seen, there = place.root / "seen", staged(place)
    code, said = place.run(
        f"cd '{there}'; find . ! -name '.*' ! -type d | sort >'{seen}'\n"
        f"cp data1/shard-0 '{place.root}'"
    )
    return code, said, seen.read_text().split() if seen.exists() else []


WHOLE = ["./data1/dataset.json", "./data1/shard-0", "./image.sif"]


def test_ranks_have_copies_which_are_gone_afterwards(place: Place) -> None:
    code, said, seen = run(place)
    assert code == 0, said
    assert seen == WHOLE
    words = place.recorded("argv")
    assert str(staged(place) / "image.sif") in words
    assert any(f'source={staged(place) / "data1"}"' in word for word in words)
    assert not staged(place).exists()


def test_copies_are_gone_before_the_job_is_queued_again(place: Place) -> None:
    """Slurm starts no step of a job any more that it has queued again."""
    write_program(place.root / "bin/srun", SRUN.replace(
        "#!/bin/sh\n", '#!/bin/sh\n[ ! -e "${0%/*}/requeued" ] || exit 1\n', 1
    ))
    code, said = warn(place, f"sleep 1; {CHECKPOINT.format(step=12)}; exit 75")
    assert code == 0, said
    assert place.requeued
    assert not staged(place).exists()


@pytest.mark.parametrize("left", ["half", "whole", "other"])
def test_what_a_killed_link_left_is_made_whole(place: Place, left: str) -> None:
    """A job that is queued once more keeps its number, and may come to the same node."""
    copy = staged(place) / "data1"
    copy.mkdir(parents=True)
    (staged(place) / "image.sif").write_text("s")
    if left == "half":
        copy.rename(staged(place) / ".data1")
        (staged(place) / ".data1/shard-0").write_bytes(SHARD[:9])
    elif left == "other":
        (copy / "dataset.json").write_text('{"an": "older one"}')
        (copy / "gone").touch()
    else:
        shutil.copytree(place.root / "data", copy, dirs_exist_ok=True)
    code, said, seen = run(place)
    assert code == 0, said
    assert seen == WHOLE
    assert (place.root / "shard-0").read_bytes() == SHARD


def test_linked_data_are_copied_and_not_their_links(place: Place) -> None:
    elsewhere = place.root / "elsewhere"
    (place.root / "data").rename(elsewhere)
    (place.root / "data").symlink_to(elsewhere)
    (elsewhere / "shard-0").rename(place.root / "shard-1")
    (elsewhere / "shard-0").symlink_to("../shard-1")
    code, said, seen = run(place)
    assert code == 0, said
    assert seen == WHOLE


def test_a_full_disk_starts_no_rank_and_leaves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in for cp is the real one, on a disk that takes no file of more than 2 KiB."""
    write_program(
        place.root / "bin/cp", "#!/bin/sh\ntrap '' XFSZ\nulimit -f 2\nexec /bin/cp \"$@\"\n"
    )
    code, said, seen = run(place)
    assert code == 74
    assert f"no copy of {place.root / 'data'} in {staged(place)}: " in said
    assert "File too large" in said
    assert not seen
    assert not staged(place).exists()
    (place.out / "job/ids").write_text("7\n")
    monkeypatch.setenv("PATH", f"{place.root / 'bin'}:/usr/bin:/bin")
    [found] = watch.look([place.out])
    assert "File too large" in found.reason


def test_a_copy_that_is_another_one_starts_no_rank(place: Place) -> None:
    """The stand-in for cp has a disk that returns other bytes than it was given."""
    write_program(
        place.root / "bin/cp",
        '#!/bin/sh\n/bin/cp "$@" || exit\nfor to; do :; done\n'
        'if [ -d "$to" ]; then echo x >"$to/dataset.json"; fi\n',
    )
    code, said, seen = run(place)
    assert code == 65
    assert f"other data than those submitted: {staged(place) / 'data1'}" in said
    assert not seen
