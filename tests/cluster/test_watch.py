"""How a submitted run stands, by what its job left and what Slurm's stand-in still knows."""

from __future__ import annotations

import pytest

from jobplaces import CHECKPOINT, Place, warn
from trimaran.cluster import jobs, watch
from trimaran.cluster.watch import Watched


@pytest.fixture(autouse=True)
def on_path(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{place.root / 'bin'}:/usr/bin:/bin")
    (place.out / "job/ids").write_text("7\n")


def known(place: Place, text: str) -> None:
    """Have Slurm know these jobs: number, state, reason."""
    (place.root / "bin/queue").write_text(text)


def stands(place: Place) -> Watched:
    [found] = watch.look([place.out])
    return found


def test_why_a_job_was_refused_outlives_what_slurm_knows_of_it(place: Place) -> None:
    (place.root / "data/dataset.json").write_text("[]")
    place.run()
    for text in ("7|FAILED|NonZeroExitCode\n", ""):
        known(place, text)
        found = stands(place)
        assert found.state == "failed"
        assert "other data than those submitted" in found.reason


def test_what_the_script_refuses_before_it_looks_at_nodes_outlives_too(place: Place) -> None:
    (place.root / "bin/srun").write_text("#!/bin/sh\necho none\n")
    place.run()
    assert stands(place).reason == "srun has no --mpi=pmi2 here"


def test_a_refused_link_of_a_chain_does_not_go_on(place: Place) -> None:
    warn(place, f"sleep 1; {CHECKPOINT.format(step=12)}; exit 75")
    data = place.root / "data/dataset.json"
    data.rename(place.root / "moved")
    place.run()
    assert (stands(place).state, stands(place).links) == ("failed", 1)
    (place.root / "moved").rename(data)
    place.run("exit 4")
    assert (stands(place).state, stands(place).links, stands(place).reason) == ("failed", 2, "")


def test_what_srun_says_is_the_reason_where_no_node_has_one(place: Place) -> None:
    (place.root / "bin/srun").write_text(
        "#!/bin/sh\ncase $* in *--mpi=list*) echo pmi2; exit ;; esac\n"
        "echo 'srun: error: Unable to create step: Nodes are busy' >&2\nexit 1\n"
    )
    place.run()
    assert stands(place).reason == "srun: error: Unable to create step: Nodes are busy"


def test_a_job_that_left_nothing_is_lost_when_slurm_has_forgotten_it(place: Place) -> None:
    assert (stands(place).state, stands(place).reason) == (
        "lost", "the batch system knows its job no more"
    )
    known(place, "7|CANCELLED|None\n")
    assert (stands(place).state, stands(place).reason) == ("cancelled", "cancelled")


@pytest.mark.parametrize("left", ["", "exit 75"])
def test_what_was_cancelled_here_stays_cancelled(place: Place, left: str) -> None:
    if left:
        warn(place, f"sleep 1; {CHECKPOINT.format(step=12)}; {left}")
    known(place, "7|PENDING|Priority\n")
    assert jobs.cancel([place.out]) == ["7"]
    known(place, "")
    assert (stands(place).state, stands(place).reason) == ("cancelled", "cancelled")
    (place.out / "job/ids").write_text("7\n8\n")
    known(place, "8|PENDING|Priority\n")
    assert (stands(place).state, stands(place).reason) == ("pending", "Priority")
