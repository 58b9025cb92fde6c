"""Profile a step: time spent waiting for data, waiting for other ranks, and in each operation."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import tensorflow as tf

from trainkit.progress import Window

SKIPPED = 3  # steps in which TensorFlow still builds graphs and kernels
ROWS = 12
WORKERS = "tf_Compute"  # prefix of the names of threads that run operations


class Profile:
    """A profiler of a few steps, which reports their times; with 0 steps, it does nothing.

    For GPUs, use the profiler of the vendor: this profiler measures the time until an operation is
    launched on the GPU, not until it ends.

    Args:
        steps: number of steps to profile after the first `SKIPPED`.
    """

    def __init__(self, steps: int) -> None:
        self._steps, self._count, self._sums = steps, 0, Window()
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def is_on(self) -> bool:
        """Whether the next step is profiled."""
        return SKIPPED <= self._count < SKIPPED + self._steps

    def before(self) -> None:
        """Start the profiler before the first profiled step; call this method before each step."""
        if self._steps and self._count == SKIPPED:
            self._folder = tempfile.TemporaryDirectory(prefix="profile-")
            options = tf.profiler.experimental.ProfilerOptions(
                host_tracer_level=2, python_tracer_level=0
            )
            tf.profiler.experimental.start(self._folder.name, options)

    def after(self, seconds: float, waiting: float, communicating: float) -> str | None:
        """Count a step; return the report after the last profiled step: see `Watch.after`."""
        if self.is_on:
            self._sums.add_time(seconds, waiting, communicating)
        self._count += 1
        if self._folder is None or self.is_on:
            return None
        tf.profiler.experimental.stop()
        with self._folder:
            kinds = operations(Path(self._folder.name))
        self._folder = None
        return self._report(kinds)

    def _report(self, kinds: Counter[str]) -> str:
        total, sums = self._sums.seconds, self._sums
        lines = [f"{1000 * total / self._steps:.1f} ms a step, of which waiting for data "
                 f"{sums.waiting / total:.1%}, communication {sums.communicating / total:.1%}"]
        rest = total - sum(kinds.values())
        for kind, seconds in [*kinds.most_common(ROWS), ("all others, and between them", None)]:
            part = seconds if seconds is not None else rest + sum(
                value for _, value in kinds.most_common()[ROWS:]
            )
            lines.append(f"  {part / total:>6.1%}  {kind}")
        return "\n".join(lines)


def operations(folder: Path) -> Counter[str]:
    """Return operation name, such as MatMul -> seconds spent in it, from the trace in `folder`."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    found: Counter[str] = Counter()
    for file in folder.rglob("*.xplane.pb"):
        for plane in xplane_pb2.XSpace.FromString(file.read_bytes()).planes:
            names = {key: one.name for key, one in plane.event_metadata.items()}
            for line in plane.lines:
                if not line.name.startswith(WORKERS):
                    continue
                for event in line.events:
                    name, colon, kind = names[event.metadata_id].rpartition(":")  # NAME:KIND
                    if colon and not name.endswith(":"):  # CLASS::METHOD belongs to the runtime
                        found[kind] += event.duration_ps / 1e12
    return found
