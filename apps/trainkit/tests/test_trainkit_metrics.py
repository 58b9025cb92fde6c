"""metrics.jsonl: MLPerf's form, flushed lines, no doubles; the console on and off a terminal."""

import io
import json
from pathlib import Path

import pytest

from trainkit import metrics
from trainkit.metrics import Console, MetricsLog


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
    log = MetricsLog(path, offset)
    log.event(metrics.TRAIN_LOSS, 3.0, step=2)
    log.close()
    assert [line["value"] for line in lines(path)] == [1.0, 3.0]


def test_no_path_writes_nothing() -> None:
    log = MetricsLog(None)
    log.event(metrics.TRAIN_LOSS, 1.0)
    assert log.position() == 0
    log.close()


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        log.event(metrics.TRAIN_LOSS, float("nan"))
    log.close()
    assert lines(tmp_path / "metrics.jsonl") == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def speak(console: Console) -> None:
    console.step()
    console.progress("loss 1.0")
    console.line("epoch 1 top-1 90 %")
    console.close()


def test_off_a_terminal_there_are_plain_lines_only() -> None:
    stream = io.StringIO()
    speak(Console(10, stream=stream))
    assert stream.getvalue() == "loss 1.0\nepoch 1 top-1 90 %\n"


def test_a_terminal_gets_a_bar_that_counts_what_was_done_before() -> None:
    stream = Terminal()
    speak(Console(10, done=4, stream=stream))
    assert "5/10" in stream.getvalue()
    assert "epoch 1 top-1 90 %" in stream.getvalue()


def test_other_ranks_are_silent() -> None:
    stream = Terminal()
    speak(Console(10, quiet=True, stream=stream))
    assert stream.getvalue() == ""
