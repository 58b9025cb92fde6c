"""Tests of metrics.jsonl: format of MLPerf, flushed lines, no duplicates, a single writer."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from trainkit import metrics
from trainkit.exits import ArgumentError
from trainkit.metrics import MetricsLog
from trainkit.testing.refusals import assert_reported, refused


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_line_has_the_mlperf_fields_and_its_origin(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.start(metrics.RUN_START)
    log.event(metrics.TRAIN_LOSS, 0.5, epoch_num=1, step=10)
    log.stop(metrics.RUN_STOP, status=metrics.SUCCESS)
    first, second, third = lines(tmp_path / "metrics.jsonl")  # readable before the file is closed
    log.close()
    assert set(first) == {"namespace", "time_ms", "event_type", "key", "value", "metadata"}
    assert [x["event_type"] for x in (first, second, third)] == [
        "INTERVAL_START",
        "POINT_IN_TIME",
        "INTERVAL_END",
    ]
    assert second["value"] == 0.5
    assert second["metadata"]["file"] == Path(__file__).name
    assert second["metadata"]["step"] == 10
    assert third["metadata"]["status"] == "success"


def test_mlperf_parser_reads_the_prefixed_lines(tmp_path: Path) -> None:
    from mlperf_logging.compliance_checker.mlp_parser import parse_file

    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.start(metrics.RUN_START)
    log.event(metrics.EVAL_ACCURACY, 0.91, epoch_num=3, step=1407)
    log.stop(metrics.RUN_STOP, status=metrics.SUCCESS)
    log.close()
    prefixed = tmp_path / "mlperf.log"
    text = (tmp_path / "metrics.jsonl").read_text()
    prefixed.write_text("".join(f":::MLLOG {line}\n" for line in text.splitlines()))
    parsed, errors = parse_file(str(prefixed), ruleset="4.0.0")
    assert errors == []
    assert [line.key for line in parsed] == ["run_start", "eval_accuracy", "run_stop"]
    assert parsed[1].value["value"] == 0.91


def test_mlperf_has_the_keys_that_we_take_from_it() -> None:
    from mlperf_logging.mllog import constants

    names = (
        "RUN_START RUN_STOP EPOCH_START EPOCH_STOP EVAL_START EVAL_STOP EVAL_ACCURACY SEED "
        "GLOBAL_BATCH_SIZE TRAIN_SAMPLES EVAL_SAMPLES STATUS SUCCESS ABORTED"
    )
    for name in names.split():
        assert getattr(metrics, name) == getattr(constants, name)


def test_resuming_cuts_off_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.event(metrics.TRAIN_LOSS, 1.0, step=1)
    offset = log.position()
    log.event(metrics.TRAIN_LOSS, 2.0, step=2)
    log.close()
    log = MetricsLog(path)
    log.cut(offset)
    log.event(metrics.TRAIN_LOSS, 3.0, step=2)
    log.close()
    assert [line["value"] for line in lines(path)] == [1.0, 3.0]


def test_no_path_writes_nothing() -> None:
    log = MetricsLog(None)
    log.event(metrics.TRAIN_LOSS, 1.0)
    assert log.position() == 0
    log.close()


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    refused = pytest.raises(ValueError, match="JSON")
    with closing(MetricsLog(tmp_path / "metrics.jsonl")) as log, refused:
        log.event(metrics.TRAIN_LOSS, float("nan"))
    assert lines(tmp_path / "metrics.jsonl") == []


def test_a_run_has_one_writer_also_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    program = (
        "import sys; from pathlib import Path; from trainkit import exits, metrics\n"
        "sys.exit(exits.run('app', lambda: metrics.MetricsLog(Path(sys.argv[1])).close()))"
    )
    with MetricsLog(path) as log:
        log.event(metrics.TRAIN_LOSS, 1.0, step=1)
        with refused(ArgumentError, "in-use", tmp_path):
            MetricsLog(path)
        argv = [sys.executable, "-c", program, str(path)]
        second = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert second.returncode == 2
        assert_reported(second.stderr, "in-use", tmp_path, "--out")
        assert len(lines(path)) == 1
    MetricsLog(path).close()  # and when the first one has ended, it may go on


def test_a_link_in_place_of_the_metrics_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    (tmp_path / "metrics.jsonl").symlink_to(target)
    with refused(ArgumentError, "file-not-plain", tmp_path / "metrics.jsonl"):
        MetricsLog(tmp_path / "metrics.jsonl")
    assert target.read_text() == "mine"


@pytest.mark.parametrize(("text", "said"), [
    (b"[" * 100_000 + b"\n", "line 1 is damaged"),
    (b'{"key": "x", "value": NaN, "metadata": {}}\n', "line 1 is damaged: NaN is no JSON"),
    (b'{"key": "x", "value": 1, "metadata": {}}\n\0\n', "line 2 is damaged"),
    (b'{"key": "x", "metadata": {}}\n', "line 1 is not in the form of the app contract"),
    (b"7\n", "line 1 is not in the form of the app contract"),
])
def test_damaged_lines_are_named(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        metrics.parse(text)
