"""Unusual answers of batch systems: banners, broken JSON, JSON of another structure.

The commands are stand-ins that print such answers of real sites and versions.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobplaces import CHECKPOINT, Place, make, warn, write_program
from refusals import refused
from trimaran.cluster import detect_site, jobs, watch
from trimaran.cluster.lsf import Lsf
from trimaran.cluster.pbs import Pbs
from trimaran.cluster.scheduler import Scheduler
from trimaran.cluster.script import SCHEDULERS
from trimaran.cluster.slurm import Slurm
from trimaran.errors import RunError, TrimaranError
from trimaran.site_file import Cluster


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, **said: str) -> Path:
    """Put stand-ins for the commands in `said` on PATH; each prints its text."""
    for name, text in said.items():
        (folder / f"{name}.said").write_text(text)
        write_program(folder / name, '#!/bin/sh\ncat "$0.said"\n')
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


QUEUE = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub"}

SAID = [
    ("slurm", "813\n", "813"), ("slurm", "813;cluster\n", "813"),
    ("slurm", "*** Welcome, 12 jobs wait ***\n813\n", "813"),
    ("slurm", "813;c-1.x\nQuota: 500 of 1000 h\n", "813"),
    ("slurm", "\n  813  \n\nlua: job 7 is cheap\n", "813"),
    ("slurm", "813\r\n", "813"), ("slurm", "813\n813\n", "813"),
    ("slurm", "sbatch: 2026\nSubmitted batch job 813\n", "813"),
    ("slurm", "2026\nSubmitted batch job 813 on cluster far\n", "813"),
    ("slurm", "2026\n813\n", None), ("slurm", "Welcome\n", None), ("slurm", "", None),
    ("slurm", "813 units\n", None), ("slurm", "-5\n", None),
    ("pbs", "123.server\n", "123.server"), ("pbs", "1[].srv.example.org\n", "1[].srv.example.org"),
    ("pbs", "Project x has 12.5 h\n123.server\nbye\n", "123.server"), ("pbs", "123\n", "123"),
    ("pbs", "2026\n123.server\n", "123.server"), ("pbs", "12.5\n", None), ("pbs", "qsub\n", None),
    ("pbs", "1.a\n2.a\n", None),
    ("lsf", "Job <77> is submitted to queue <batch>.\n", "77"),
    ("lsf", "Quota <5> of <9>\nJob <77> is submitted to default queue <q>.\nbye <3>\n", "77"),
    ("lsf", "<77>\n", None), ("lsf", "Job <x> is submitted to queue <77>.\n", None),
]
"""Batch system, its answer to a submission, and the job number in it.

None as the number means that the answer contains no unambiguous number.
"""


@pytest.mark.parametrize(("name", "said", "number"), SAID)
def test_the_number_of_a_job_is_found_by_its_form_or_the_text_is_shown(
    name: str, said: str, number: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, **{QUEUE[name]: said})
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    if number is not None:
        assert SCHEDULERS[name].submit(Path("job.sh"), tmp_path) == number
        return
    with refused("job-number-missing", QUEUE[name], said.strip(), kind=RunError):
        SCHEDULERS[name].submit(Path("job.sh"), tmp_path)


@pytest.mark.parametrize(("name", "said", "number"), [row for row in SAID if row[0] != "lsf"])
def test_a_job_that_queues_another_finds_its_number_in_the_same_way(
    name: str, said: str, number: str | None, tmp_path: Path
) -> None:
    place = make(tmp_path / "p", cluster=Cluster.model_validate({"scheduler": name, "mpi": "pmi2"}))
    write_program(place.root / "bin/scontrol", "#!/bin/sh\n[ $1 != requeue ]\n")
    (place.root / "bin/said").write_text(said)
    write_program(place.root / "bin" / QUEUE[name], '#!/bin/sh\ncat "${0%/*}/said"\n')
    (place.out / "job/ids").write_text("7\n")
    code, told = warn(place, f"sleep 1; {CHECKPOINT.format(step=12)}; exit 75")
    assert code == 0, told
    ids, log = (place.out / "job/ids").read_text(), (place.out / "log.txt").read_text()
    if number is not None:
        assert ids == f"7\n{number}\n"
        assert not (place.out / "job/queueing").exists()
    else:
        assert ids == "7\n"
        assert f"{QUEUE[name]} names no number: {said.rstrip()}" in log
        assert (place.out / "job/queueing").exists()  # `status` finds the job by its name
    assert jobs.numbers(place.out)[-1] == (number or "7")


def test_what_older_scripts_have_written_down_is_read_by_form(place: Place) -> None:
    (place.out / "job/ids").write_text("7\n*** Welcome ***\n813;cluster\n--user=me\n813\n")
    assert jobs.numbers(place.out) == ["7", "813"]


QSTAT = """{
    "timestamp":1764,
    "Jobs":{
        "7.server":{
            "Job_Name":"x",
            "job_state":"R",
            "comment":"Job run at Mon",
            "Account_Name":VALUE,
            "Variable_List":{"PBS_O_HOME":"/home/me"}
        }
    }
}
"""
TEXT = """Job Id: 7.server
    Job_Name = x
    job_state = R
    comment = Job run at Mon
    Variable_List = PBS_O_HOME=/home/me,
\tjob_state=F,PATH=/bin
"""
BROKEN = {
    "a zero in front": QSTAT.replace("VALUE", "005"),
    "no digit in front": QSTAT.replace("VALUE", ".123"), "a tab": QSTAT.replace("VALUE", '"a\tb"'),
    "a key twice": QSTAT.replace("VALUE", '"x",\n"Job_Name":"y"'),
    "a quote": QSTAT.replace("VALUE", '"say "x""'), "a backslash": QSTAT.replace("VALUE", r'"\x"'),
    "no value": QSTAT.replace("VALUE", ""), "nan": QSTAT.replace("VALUE", "nan"),
    "cut off": QSTAT.partition('"Variable_List"')[0], "tabs to indent": QSTAT.replace(
        "    ", "\t").replace("VALUE", "005"),
    "on one line": "".join(QSTAT.replace("VALUE", "005").split("\n")),
    "a banner": "*** Welcome ***\n" + QSTAT.replace("VALUE", "5"),
    "of no job known": "", "usage": "usage: qstat [-f] [-F json|dsv]\n",
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("text", [True, False], ids=["text is there", "json only"])
def test_qstats_json_may_be_broken(
    kind: str, text: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text(TEXT if text else BROKEN[kind])
    stand_in(tmp_path, monkeypatch, qstat=BROKEN[kind])
    write_program(tmp_path / "qstat", '#!/bin/sh\ncase $* in *json*) cat "$0.said" ;;'
                                      ' *) cat "${0%/*}/text" ;; esac\n')
    if not text and kind in ("of no job known", "usage"):
        with refused("scheduler-failed", "qstat", kind=RunError):
            Pbs().states(["7.server"])
        return
    [(number, state)] = Pbs().states(["7.server"]).items()
    assert (number, state.name, state.reason, state.active) == (
        "7.server", "RUNNING", "Job run at Mon", True
    )


SHAPES = ["null", "[]", "{}", '"x"', "7", '["7.server"]', '{"7.server": null}',
          '{"7.server": "R"}', '{"7.server": {}}', '{"7.server": {"job_state": null}}',
          '{"7.server": {"job_state": ["R"]}}']


@pytest.mark.parametrize("jobs_said", SHAPES)
@pytest.mark.parametrize(
    ("scheduler", "command", "key"), [(Pbs(), "qstat", "Jobs"), (Lsf(), "bjobs", "RECORDS")],
    ids=["pbs", "lsf"],
)
def test_json_of_another_shape_is_no_answer(
    scheduler: Scheduler, command: str, key: str, jobs_said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = stand_in(tmp_path, monkeypatch, **{command: ""})
    for said in (f'{{"{key}": {jobs_said}}}', jobs_said):
        (place / f"{command}.said").write_text(said)
        if key in said and jobs_said == ("{}" if key == "Jobs" else "[]"):
            assert scheduler.states(["7.server"]) == {}
        elif said != "{}" or key == "RECORDS":
            with refused("scheduler-failed", command, said, kind=RunError):
                scheduler.states(["7.server"])


def test_bjobs_is_read_without_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, bjobs="")
    (tmp_path / "text").write_text("hello\n1|RUN|-|-\n2|PEND|-|New job|x\n3|EXIT|TERM_OWNER|-\n")
    write_program(tmp_path / "bjobs", "#!/bin/sh\ncase $* in *-json*) echo '{\"JOBS\": 005' ;;"
                                      ' *) cat "${0%/*}/text" ;; esac\n')
    found = Lsf().states(["1", "2", "3"])
    assert {number: (one.name, one.reason, one.active) for number, one in found.items()} == {
        "1": ("RUNNING", "None", True), "2": ("PENDING", "New job|x", True),
        "3": ("FAILED", "TERM_OWNER", False),
    }


@pytest.mark.parametrize(
    ("scheduler", "command", "said"),
    [(Pbs(), "qstat", "qstat: Unknown Job Id 7.server"),
     (Pbs(), "qstat", "qstat: 7 Job has finished"), (Lsf(), "bjobs", "Job <7> is not found")],
)
def test_a_job_that_is_known_no_more_is_none(
    scheduler: Scheduler, command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, **{command: ""})
    write_program(tmp_path / command, f"#!/bin/sh\necho '{said}' >&2\nexit 153\n")
    assert scheduler.states(["7.server"]) == {}


def test_squeue_with_a_banner_still_tells_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, squeue="| Welcome |\n7|RUNNING|a|b\n")
    assert Slurm().states(["7"])["7"].reason == "a|b"


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("answer", ["echo '{]'", "exit 3", "echo '{\"Jobs\": null}'"])
def test_a_job_is_cancelled_though_nobody_can_read_how_it_stands(
    name: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(tmp_path / "p", cluster=Cluster.model_validate({"scheduler": name}))
    _, asks, ends = {"pbs": ("", "qstat", "qdel"), "lsf": ("", "bjobs", "bkill")}.get(
        name, ("", "squeue", "scancel")
    )
    if name == "slurm":
        answer = "exit 3"  # squeue has no JSON that could be broken
    (place.out / "job/ids").write_text("6\n7\n")
    (place.out / "job/link-0001.json").write_text("{")  # damage
    write_program(place.root / "bin" / asks, f"#!/bin/sh\n{answer}\n")
    write_program(place.root / "bin" / ends, '#!/bin/sh\necho "$@" >"$0.argv"\n')
    monkeypatch.setenv("PATH", f"{place.root / 'bin'}:/usr/bin:/bin")
    assert jobs.cancel([place.out]) == ["7"]
    assert (place.root / f"bin/{ends}.argv").read_text() == "7\n"
    assert jobs.numbers(place.out, jobs.CANCELLED) == ["7"]


def test_one_run_that_cannot_be_cancelled_keeps_no_other_from_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.root / "bin/queue").write_text("7|RUNNING|None\n")
    (place.out / "job/ids").write_text("7\n")
    write_program(place.root / "bin/scancel", '#!/bin/sh\necho "$@" >"$0.argv"\n')
    monkeypatch.setenv("PATH", f"{place.root / 'bin'}:/usr/bin:/bin")
    with pytest.raises(TrimaranError, match=str(tmp_path / "none")):
        jobs.cancel([tmp_path / "none", place.out])
    assert (place.root / "bin/scancel.argv").read_text() == "7\n"


@pytest.mark.parametrize("said", [
    {"Server": {"pbs1": {"default_queue": "workq"}}}, {"Server": ["pbs1"]}, {"Server": None}, [],
])
def test_the_default_queue_is_told_or_left_out(
    said: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, qsub="", qdel="", qstat=json.dumps(said))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(detect_site, "SCHEDULERS", {"pbs": Pbs()})
    wanted = "workq" if "workq" in json.dumps(said) else None
    assert detect_site.detect().get("partition") == wanted


def test_names_of_a_site_file_are_found_below_a_banner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    banner = "*** Welcome, 3 nodes are down ***\n"
    stand_in(tmp_path, monkeypatch, sbatch="", scancel="", squeue="", srun="none",
             sinfo=f"{banner}debug\nmain*\n", sacctmgr=f"{banner}project-1\n")
    facts = detect_site.detect()
    assert (facts["partition"], facts["account"]) == ("main", "project-1")


def test_the_state_of_a_run_says_what_was_not_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(tmp_path / "p", cluster=Cluster(scheduler="pbs"))
    (place.out / "job/ids").write_text("7.server\n")
    write_program(place.root / "bin/qstat", "#!/bin/sh\necho '{\"Jobs\": [\"7.server\"]}'\n")
    monkeypatch.setenv("PATH", f"{place.root / 'bin'}:/usr/bin:/bin")
    [row] = watch.look([place.out])
    assert row.state == "unknown"
    assert row.reason.startswith("qstat ")
    assert '{"Jobs": ["7.server"]}' in row.reason
