"""`metrics.jsonl` in MLPerf logging form, and what the user sees meanwhile.

A line is the JSON object that MLPerf's logger prints after `:::MLLOG `
(https://github.com/mlcommons/logging), so prefixing the lines makes a log that
MLPerf's own parser reads. Keys are MLPerf's where it has one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final, TextIO

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
# Ours, in the same style.
THROUGHPUT: Final = "throughput"
TRAIN_LOSS: Final = "train_loss"
LEARNING_RATE: Final = "learning_rate"
EVAL_LOSS: Final = "eval_loss"
EVAL_ACCURACY_TOP5: Final = "eval_accuracy_top5"
DATA_WAIT: Final = "data_wait_fraction"
COMMUNICATION: Final = "communication_fraction"
RESUMED: Final = "resumed_from_step"

POINT: Final = "POINT_IN_TIME"
START: Final = "INTERVAL_START"
STOP: Final = "INTERVAL_END"


class MetricsLog:
    """Appends lines to `metrics.jsonl`, unbuffered, so that a reader can follow the run.

    Args:
        path: the file; only a process with `path` writes (rank 0), None swallows all.
        offset: where a resumed run goes on; what a killed run had written after its
            last checkpoint is cut off, so that no step is in the curve twice.
    """

    def __init__(self, path: Path | None, offset: int = 0) -> None:
        self._file = None if path is None else path.open("ab", buffering=0)
        if self._file is not None and self._file.tell() > offset:
            self._file.truncate(offset)

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Write one value at one moment."""
        self._write(POINT, key, value, metadata)

    def start(self, key: str, **metadata: Any) -> None:
        """Write the start of an interval (`run_start`, `epoch_start`, `eval_start`)."""
        self._write(START, key, None, metadata)

    def stop(self, key: str, **metadata: Any) -> None:
        """Write the end of an interval."""
        self._write(STOP, key, None, metadata)

    def position(self) -> int:
        """Return the durable size of the file in bytes, to be kept in a checkpoint."""
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


class Console:
    """Progress for the user: a bar on rank 0's terminal, plain lines elsewhere, silence on others.

    Args:
        total: steps of the whole run.
        done: steps already made by an earlier part of the run.
        quiet: say nothing (ranks other than 0).
        stream: where to write.
    """

    def __init__(
        self, total: int, done: int = 0, *, quiet: bool = False, stream: TextIO | None = None
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._quiet = quiet
        self._bar: Any = None
        if not quiet and self._stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=total, initial=done, unit="step", file=self._stream, dynamic_ncols=True
            )

    def step(self) -> None:
        """Advance the bar by one step."""
        if self._bar is not None:
            self._bar.update()

    def progress(self, text: str) -> None:
        """Show the state of the training: beside the bar, or as a line."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
        else:
            self.line(text)

    def line(self, text: str) -> None:
        """Say one line, above the bar if there is one."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._bar is not None:
            self._bar.close()
