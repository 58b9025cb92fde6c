"""`metrics.jsonl` in the format of MLPerf logging, written by one process at a time.

A line is the JSON object that MLPerf's logger prints after `:::MLLOG `
(https://github.com/mlcommons/logging), so that MLPerf's own parser reads the prefixed lines. If
MLPerf defines a key for a value, the line has this key.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Any, Final

from trainkit import atomic
from trainkit.exits import ArgumentError

# MLPerf's keys.
RUN_START: Final = "run_start"
RUN_STOP: Final = "run_stop"
EPOCH_START: Final = "epoch_start"
EPOCH_STOP: Final = "epoch_stop"
EVAL_START: Final = "eval_start"
EVAL_STOP: Final = "eval_stop"
EVAL_ACCURACY: Final = "eval_accuracy"
SEED: Final = "seed"
GLOBAL_BATCH_SIZE: Final = "global_batch_size"
TRAIN_SAMPLES: Final = "train_samples"
EVAL_SAMPLES: Final = "eval_samples"
STATUS: Final = "status"
SUCCESS: Final = "success"
ABORTED: Final = "aborted"
# Keys of Trimaran, in the same style.
THROUGHPUT: Final = "throughput"
TRAIN_LOSS: Final = "train_loss"
LEARNING_RATE: Final = "learning_rate"
EVAL_LOSS: Final = "eval_loss"
EVAL_ACCURACY_TOP5: Final = "eval_accuracy_top5"
DATA_WAIT: Final = "data_wait_fraction"
MODEL_FLOPS_UTILIZATION: Final = "model_flops_utilization"
COMMUNICATION: Final = "communication_fraction"
RESUMED: Final = "resumed_from_step"
BAD_RECORD: Final = "bad_record"
TRAINING_SECONDS: Final = "training_seconds"
EPOCH_SECONDS: Final = "epoch_seconds"
PEAK_MEMORY: Final = "peak_memory_bytes"
INTERVAL_ENERGY: Final = "interval_energy_joules"
POWER: Final = "power_watts"
ENERGY: Final = "energy_joules"
HOST_ENERGY: Final = "host_energy_joules"
ENERGY_PER_SAMPLE: Final = "energy_per_sample"
MEAN_POWER: Final = "mean_power_watts"
NOT_READABLE: Final = "not_readable"
OF_ENERGY: Final = (INTERVAL_ENERGY, POWER, ENERGY, ENERGY_PER_SAMPLE, MEAN_POWER)

POINT: Final = "POINT_IN_TIME"
START: Final = "INTERVAL_START"
STOP: Final = "INTERVAL_END"


Line = dict[str, Any]


class MetricsLog:
    """The file `metrics.jsonl`; lines are appended unbuffered, so that a reader can follow the run.

    The log locks the open file, so that only one process at a time trains in the folder of the run.
    On parallel file systems without locks, a second process is not detected.

    Args:
        path: the file; None on ranks other than 0, which write nothing.

    Raises:
        ArgumentError: another process writes the file, or the path is a link.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else _taken(path)

    def content(self) -> bytes:
        """Return the content of the file; empty on ranks that write nothing."""
        if self._file is None:
            return b""
        return os.pread(self._file.fileno(), os.fstat(self._file.fileno()).st_size, 0)

    def cut(self, offset: int) -> None:
        """Truncate the file after `offset` bytes.

        A resumed run repeats the steps after its last checkpoint, and no step may be logged twice.
        """
        if self._file is not None and self._file.seek(0, os.SEEK_END) > offset:
            self._file.truncate(offset)

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Write a value at one point in time, such as a loss; `metadata` contains its step."""
        self._write(POINT, key, value, metadata)

    def start(self, key: str, **metadata: Any) -> None:
        """Write the start of an interval (`run_start`, `epoch_start`, `eval_start`)."""
        self._write(START, key, None, metadata)

    def stop(self, key: str, **metadata: Any) -> None:
        """Append the end of an interval (`run_stop`, `epoch_stop`, `eval_stop`) to the file."""
        self._write(STOP, key, None, metadata)

    def position(self) -> int:
        """Flush the file to disk; return its size in bytes, which a checkpoint records."""
        if self._file is None:
            return 0
        os.fsync(self._file.fileno())
        return self._file.seek(0, os.SEEK_END)

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, event_type: str, key: str, value: Any, metadata: dict[str, Any]) -> None:
        if self._file is None:
            return
        caller = sys._getframe(2)
        where = {"file": Path(caller.f_code.co_filename).name, "lineno": caller.f_lineno}
        line = {
            "namespace": "",
            "time_ms": time.time_ns() // 1_000_000,
            "event_type": event_type,
            "key": key,
            "value": value,
            "metadata": where | metadata,
        }
        self._file.write((json.dumps(line, allow_nan=False) + "\n").encode())


def parse(content: bytes) -> list[Line]:
    """Return the complete lines of `content`, without an unfinished last line.

    Raises:
        ValueError: a line is not in MLPerf's format; the message has the number of the line.
    """
    *complete, _unfinished = content.split(b"\n")
    found = []
    for number, text in enumerate(complete, 1):
        try:
            line = json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} is damaged: {error}") from error
        about = line.get("metadata") if isinstance(line, dict) else None
        if not isinstance(about, dict) or not {"key", "value"} <= line.keys():
            raise ValueError(f"line {number} is not in the form of the app contract")
        found.append(line)
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _taken(path: Path) -> IO[bytes]:
    """Open `path` for appending, unbuffered, and lock it; return the file."""
    try:
        descriptor = atomic.open_own(path, os.O_RDWR | os.O_APPEND)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise ArgumentError(
            f"{path} is a link, which a run does not follow; remove it", code="file-not-plain"
        ) from error
    file = os.fdopen(descriptor, "ab", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ArgumentError(
            f"another process trains in {path.parent}: wait until it has ended, or choose another "
            "--out. (If you started several ranks, they are not connected: --strategy needs a "
            "launcher that apps/README.md names.)",
            code="in-use",
        ) from None
    except OSError:
        pass  # no locks on this file system
    return file
