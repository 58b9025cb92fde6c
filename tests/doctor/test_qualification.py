"""Made-up measurements of nodes: which nodes get which findings, and when evidence is outdated."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hosts import caused, finding
from refusals import refused
from trimaran import strict
from trimaran.cluster.watch import Watched
from trimaran.doctor import evidence, measuring, qualification
from trimaran.doctor.examination import Examination, NodeFindings
from trimaran.doctor.findings import Finding
from trimaran.doctor.qualification import Qualification
from trimaran.errors import RunError
from trimaran.recipes import library, targets
from trimaran.recipes.targets import Limit
from trimaran.reporting import Silent
from trimaran.run.request import Request
from trimaran.site_file import Cluster, Site

NOW = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)


def node(number: int, devices: int = 1, **changes: Any) -> dict[str, Any]:
    first = number * devices
    return {
        "name": f"n{number}", "ranks": list(range(first, first + devices)), "device": "made up",
        "threads": 4, "gemm_tflop_s": [780.0 + number] * devices,
        "memory_gb_s": [3000.0 + number] * devices, "storage_read_gb_s": 2.0,
        "storage_reads_other": True, "import_first_s": 5.0, "import_again_s": 2.0,
        "all_reduce_gb_s": 460.0 if devices > 1 else None, "faults": [], **changes,
    }


def document(nodes: list[dict[str, Any]], slow: dict[frozenset[int], float] | None = None,
             **changes: Any) -> dict[str, Any]:
    pairs = [
        {"nodes": [f"n{one}", f"n{other}"],
         "all_reduce_gb_s": (slow or {}).get(frozenset((one, other)), 180.0 + one)}
        for one in range(len(nodes)) for other in range(one + 1, len(nodes))
    ]
    return {
        "schema": 1, "date": "2026-11-27T00:00:00+00:00", "backend": "nccl", "device": "cuda",
        "seconds": 50.0, "nodes": nodes, "all_reduce_gb_s": 170.0, "pairs": pairs,
        "method": {
            "gemm_order": 8192, "gemm_dtype": "bfloat16", "triad_bytes": 1 << 30,
            "storage_bytes": 1 << 28, "all_reduce_bytes": 1 << 30, "node_bytes": 1 << 30,
            "pair_bytes": 1 << 30, "rounds": 3, "all_rounds": 3,
        }, **changes,
    }


def judged(nodes: list[dict[str, Any]], slow: dict[frozenset[int], float] | None = None,
           target: str | None = None) -> dict[str, list[Finding]]:
    measured = Qualification.model_validate(document(nodes, slow))
    return qualification.judge(measured, targets.load(target) if target else None)


def levels(found: dict[str, list[Finding]], identifier: str) -> str:
    """Return one letter per node, the first of the finding's level: o (ok), w (warn), f (fail)."""
    return "".join(finding(identifier, own).level[0] for own in found.values())


def test_even_nodes_have_no_findings() -> None:
    found = judged([node(number) for number in range(5)])
    assert {one.level for own in found.values() for one in own} == {"ok"}
    assert len(found["n0"]) == 6
    assert "784 TFLOP/s" in finding("qualification-gemm", found["n4"]).cause


@pytest.mark.parametrize(("identifier", "key", "bad"), [
    ("qualification-gemm", "gemm_tflop_s", [600.0]),
    ("qualification-memory", "memory_gb_s", [2400.0]),
    ("qualification-storage", "storage_read_gb_s", 0.5),
    ("qualification-import", "import_first_s", 30.0),
])
def test_a_bad_node_is_named_with_what_is_wrong(identifier: str, key: str, bad: object) -> None:
    nodes = [node(number) for number in range(5)]
    found = judged([*nodes[:3], node(3, **{key: bad}), nodes[4]])
    assert levels(found, identifier) == "ooowo"
    others = [one for name, own in found.items() for one in own
              if (name, one.id) != ("n3", identifier)]
    assert {one.level for one in others} == {"ok"}


def test_each_id_of_a_rate_is_caused() -> None:
    bad = node(3, 2, gemm_tflop_s=[782.0, 300.0], memory_gb_s=[1000.0, 3003.0],
               storage_read_gb_s=0.1, import_first_s=60.0, all_reduce_gb_s=100.0)
    found = judged([node(0, 2), node(1, 2), node(2, 2), bad, node(4, 2)])
    own = found["n3"]
    gemm = caused("qualification-gemm", own, "fail")
    assert "device 1: 300 TFLOP/s, 62% lower than the median" in gemm.cause
    assert "device 0" not in gemm.cause
    assert "device 0: 1000 GB/s" in caused("qualification-memory", own, "fail").cause
    assert caused("qualification-node", own, "fail")
    assert caused("qualification-storage", own, "warn")
    assert caused("qualification-import", own, "warn")


def test_a_bad_node_is_named_by_its_pairs_and_its_partners_are_not() -> None:
    slow = {frozenset((2, other)): 90.0 - other for other in (0, 1, 3, 4)}
    found = judged([node(number) for number in range(5)], slow)
    assert levels(found, "qualification-pair") == "oofoo"
    assert "median of 10 pairs" in caused("qualification-pair", found["n2"], "fail").cause


def test_a_bad_way_between_two_nodes_names_both_ends() -> None:
    found = judged([node(number) for number in range(5)], {frozenset((1, 3)): 120.0})
    assert levels(found, "qualification-pair") == "owowo"
    assert "n1 with n3 120 GB/s" in caused("qualification-pair", found["n3"]).cause


def test_storage_that_fails_is_a_failure() -> None:
    found = judged([node(0), node(1, storage_read_gb_s=None, faults=["storage: no space"])])
    assert "no space" in caused("qualification-storage", found["n1"], "fail").cause
    assert finding("qualification-storage", found["n0"]).level == "ok"


def test_an_import_that_does_not_end_is_a_warning() -> None:
    found = judged([node(0), node(1, import_again_s=None)])
    assert "could not import" in caused("qualification-import", found["n1"], "warn").cause


@pytest.mark.parametrize(("value", "word", "level"), [
    (784.0, "Expected", "ok"), (705.7, "Expected", "ok"), (705.5, "Warn", "warn"),
    (588.1, "Warn", "warn"), (587.9, "Fail", "fail"),
])
def test_the_target_expects_a_matrix_product(value: float, word: str, level: str) -> None:
    found = judged([node(0, 8, gemm_tflop_s=[value] * 8)], target="h100x8")
    one = finding("qualification-gemm", found["n0"])
    assert one.level == level
    assert f"target: {word} (expected 784, warn below 705.6, fail below 588 TFLOP/s)" in one.cause


def test_the_target_expects_a_matrix_product_of_each_device() -> None:
    found = judged([node(0, 2, gemm_tflop_s=[500.0, 784.0])], target="h100x8")
    assert "Fail" in caused("qualification-gemm", found["n0"], "fail").cause


@pytest.mark.parametrize(("value", "level"), [
    (466.0, "ok"), (400.0, "ok"), (399.9, "warn"), (300.0, "warn"), (299.9, "fail"),
])
def test_the_limits_of_the_published_all_reduce(value: float, level: str) -> None:
    found = judged([node(0, 8, all_reduce_gb_s=value)], target="h100x8")
    assert finding("qualification-node", found["n0"]).level == level


def test_a_published_value_is_not_compared_with_another_size_or_number_format() -> None:
    content = document([node(0, 8, all_reduce_gb_s=10.0, gemm_tflop_s=[1.0] * 8)])
    content["method"] |= {"node_bytes": 1 << 27, "gemm_dtype": "float32"}
    found = qualification.judge(Qualification.model_validate(content), targets.load("h100x8"))
    assert {one.level for one in found["n0"]} == {"ok"}


def test_the_all_reduce_over_all_nodes_is_compared_with_the_target() -> None:
    limit = Limit(value=200, source="made up")
    target = targets.load("h100x8").model_copy(update={"qualification": {"all-reduce": limit}})
    measured = Qualification.model_validate(document([node(0), node(1)]))
    found = qualification.judge(measured, target)
    assert "target: Warn" in caused("qualification-all-reduce", found["n0"], "warn").cause


def test_limits_that_do_not_increase_are_refused() -> None:
    for wrong in ({"warn": 110}, {"fail": 95}, {"warn": 80, "fail": 80}):
        with pytest.raises(ValueError, match="do not increase"):
            Limit.model_validate({"value": 100, "source": "made up", **wrong})


@pytest.mark.parametrize("change", [
    lambda one: one.update(schema=2),
    lambda one: one.update(nodes=[]),
    lambda one: one.update(more=1),
    lambda one: one["nodes"][0].update(gemm_tflop_s=[float("nan")]),
    lambda one: one["nodes"][0].update(gemm_tflop_s=[-1]),
    lambda one: one["nodes"][0].update(name="a\x1b[2J"),
    lambda one: one["nodes"][0].pop("faults"),
    lambda one: one["pairs"].append({"nodes": ["n0"], "all_reduce_gb_s": 1}),
])
def test_damaged_files_are_refused(tmp_path: Path, change: Callable[[Any], object]) -> None:
    content = document([node(0), node(1)])
    change(content)
    path = tmp_path / "qualification.json"
    path.write_text(json.dumps(content))
    with refused("file-invalid", path):
        strict.load_json(Qualification, path)


def test_the_recipe_of_a_measurement_has_one_rank_for_each_device() -> None:
    gpus = measuring.derived(library.load("collectives/h100x8-throughput").recipe, 4, queued=True)
    assert (gpus.resources.nodes, gpus.resources.tasks_per_node) == (4, 8)
    assert (gpus.resources.gpus_per_task, gpus.launcher) == (1, "srun")
    assert gpus.image.name == "collectives-torch-cuda13"
    assert gpus.args["device"] == "gpu"
    cpus = measuring.derived(library.load("collectives/cpu-2core-smoke").recipe, 1,
                             queued=False)
    assert (cpus.resources.tasks_per_node, cpus.resources.cpus_per_task) == (1, 2)
    assert (cpus.launcher, cpus.env) == ("none", {"OMP_NUM_THREADS": "2"})


def test_this_machine_is_measured_with_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def hang(request: Request, reporter: Silent, seconds: float) -> Path:
        limits.append(seconds)
        raise RunError("late", code="program-timeout")

    monkeypatch.setattr(measuring.pipeline, "execute", hang)
    with refused("program-timeout"):
        measuring.here(library.load("collectives/cpu-2core-smoke"), Site(), Silent())
    assert limits == [measuring.JOB_SECONDS]


def test_a_job_is_warned_after_its_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Cluster] = []

    def submit(request: Request, name: str, cluster: Cluster, reporter: Silent) -> None:
        given.append(cluster)
        raise RunError("refused", code="job-refused")

    monkeypatch.setattr(measuring.submission, "submit", submit)
    monkeypatch.setattr(measuring.apptainer, "Apptainer", lambda: None)
    with refused("job-refused"):
        measuring.on_nodes(library.load("collectives/cpu-2core-smoke"), Site(), "own",
                           Cluster(signal_seconds=3600), 2, Silent(), 600)
    assert given[0].signal_seconds < 600 - measuring.JOB_SECONDS


def write_evidence(days: float, found: dict[str, list[Finding]]) -> None:
    date = NOW - timedelta(days=days)
    one = evidence.Evidence(
        cluster="own", recipe="a/b", date=date, valid_until=date + evidence.VALID, image="c",
        image_digest=None, directory="/d", findings=found,
        measured=Qualification.model_validate(document([node(0), node(1)])),
    )
    path = evidence._folder("own") / f"{date:%Y%m%d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(one.model_dump_json(by_alias=True))


def test_evidence_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_CACHE", str(tmp_path))
    assert evidence.age("own", NOW) == []
    write_evidence(7.01, judged([node(0), node(1)]))
    assert "7 days ago" in caused("qualification-expired", evidence.age("own", NOW)).cause
    write_evidence(6.99, judged([node(0), node(1, memory_gb_s=[1.0])]))
    one = finding("qualification-expired", evidence.age("own", NOW))
    assert one.level == "warn"
    assert "out of line: n0, n1" in one.cause
    write_evidence(6.98, judged([node(0), node(1)]))
    one = finding("qualification-expired", evidence.age("own", NOW))
    assert one.level == "ok"
    (evidence._folder("own") / "99990101.json").write_text("{")
    assert evidence.age("own", NOW) == [one]
    assert evidence.age("other", NOW) == []


def test_findings_are_joined_with_those_of_their_nodes() -> None:
    own = Finding(id="qualification-gemm", level="ok", cause="fast")
    login = NodeFindings(node="login", role="login", findings=())
    n1 = NodeFindings(node="n1", role="compute", findings=())
    whole = Examination(recipe=None, cluster=None, nodes=(login, n1))
    found = measuring.joined(whole, {"n1": [own], "n2": [own]})
    assert [(one.node, len(one.findings)) for one in found.nodes] == [
        ("login", 0), ("n1", 1), ("n2", 1)
    ]
    found = measuring.joined(whole, {"n1.example.org": [own]})
    assert [len(one.findings) for one in found.nodes] == [0, 1]
    alone = Examination(recipe=None, cluster=None, nodes=(login,))
    assert measuring.joined(alone, {"this": [own]}).nodes[0].findings == (own,)


def test_a_hanging_rank_is_named_with_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Host:
        def __init__(self, hostname: str) -> None:
            self.hostname = hostname

    class Link:
        hosts = tuple(map(Host, ("n1", "n2", "n3")))

    monkeypatch.setattr(measuring.job_chain, "read", lambda directory: [Link()])
    recipe = measuring.derived(library.load("collectives/h100x8-throughput").recipe, 3, queued=True)
    (tmp_path / "recipe.yaml").write_text(recipe.model_dump_json(by_alias=True, exclude_none=True))
    (tmp_path / "log.txt").write_text(
        "error[rank-lost]: nothing has moved for 30 s, and the qualification ends: rank 9 is"
        " silent: stopped, or its node is gone; ranks 0-8, 10-23 are qualifying memory\n"
    )
    found = measuring._unfinished(tmp_path, False, 240.0)
    assert list(found) == ["n2"]
    assert "rank 9 is silent" in caused("qualification-hang", found["n2"], "fail").cause
    late = measuring._unfinished(tmp_path, True, 240.0)
    assert list(late) == ["n1", "n2", "n3"]
    assert "within 240 s" in caused("qualification-hang", late["n1"], "fail").cause
    (tmp_path / "log.txt").write_text("collectives qualify: error[out-invalid]: the disk is full\n")
    other = measuring._unfinished(tmp_path, False, 240.0)
    assert "the disk is full" in caused("qualification-failed", other["n1"], "fail").cause


def test_numbers_of_ranks() -> None:
    assert measuring._numbers("0, 2-4, 7") == {0, 2, 3, 4, 7}


class Queue:
    """A fake batch system: its job has the given states in turn; cancellations are recorded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *states: str) -> None:
        self.states, self.cancelled = list(states), list[Path]()
        self.now = 0.0
        monkeypatch.setattr(measuring.watch, "look", self.look)
        monkeypatch.setattr(measuring.jobs, "cancel", self.cancelled.extend)
        monkeypatch.setattr(measuring.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(measuring.time, "sleep", self.sleep)

    def look(self, directories: list[Path]) -> list[Watched]:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        links = int(state == "running")
        return [Watched(directories[0], "", "7", state, 2, links, None, "")]

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_job_that_ends_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Queue(monkeypatch, "pending", "running", "completed")
    assert measuring._wait(tmp_path, "7", 600, 240)


def test_the_result_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Queue(monkeypatch, "running")
    (tmp_path / "result.json").write_text("{}")
    assert measuring._wait(tmp_path, "7", 600, 240)


def test_a_job_that_hangs_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(monkeypatch, "pending", "pending", "running")
    assert not measuring._wait(tmp_path, "7", 600, 240)
    assert 246 < queue.now < 248  # counted from the start of the job


def test_a_job_that_is_not_started_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(monkeypatch, "pending")
    with refused("job-not-started", "7"):
        measuring._wait(tmp_path, "7", 600, 240)
    assert 600 < queue.now < 602
