"""Profile a step: time spent waiting for data, computing, and waiting for other ranks."""

from __future__ import annotations

from torch import profiler

from trainkit.progress import Window
from trainkit.torch.strategy import TorchStrategy

SKIPPED = 10  # steps in which PyTorch still allocates memory and compiles kernels
ROWS = 12


class Profile:
    """A profiler of a few steps, which reports their times; with 0 steps, it does nothing.

    Args:
        steps: number of steps to profile after the first `SKIPPED`.
        strategy: the strategy that connects the ranks; its device is synchronized in profiled
            steps, so that the next step does not appear to wait for work of this step on a GPU.
    """

    def __init__(self, steps: int, strategy: TorchStrategy) -> None:
        self._steps, self._strategy = steps, strategy
        self._sums = Window()
        self._count = 0
        self._profiler: profiler.profile | None = None

    @property
    def is_on(self) -> bool:
        """Whether the next step is profiled."""
        return SKIPPED <= self._count < SKIPPED + self._steps

    def before(self) -> None:
        """Start the profiler before the first profiled step; call this method before each step."""
        if self._steps and self._count == SKIPPED:
            self._profiler = profiler.profile()  # profiles the CPU, and the GPU if there is one
            self._profiler.start()
        if self.is_on:
            self._strategy.synchronize()

    def after(self, seconds: float, waiting: float, communicating: float) -> str | None:
        """Count a step; return the report after the last profiled step, else None.

        The arguments are the times of the step in seconds; see `Watch.after`.
        """
        if self.is_on:
            self._sums.add_time(seconds, waiting, communicating)
        self._count += 1
        if self._profiler is None or self.is_on:
            return None
        self._profiler.stop()
        where = self._strategy.device.type  # "cuda" also for AMD GPUs
        key = f"self_{where}_time_total"
        table = self._profiler.key_averages().table(
            sort_by=key, row_limit=ROWS, max_name_column_width=50
        )
        self._profiler = None
        return f"{table}{self.summary()}"

    def summary(self) -> str:
        """Return one line: the time of a step, the share of each activity, and the bottleneck."""
        total, sums = self._sums.seconds, self._sums
        parts = {
            "waiting for data": sums.waiting,
            "compute": total - sums.waiting - sums.communicating,
            "communication": sums.communicating,
        }
        shares = ", ".join(f"{name} {seconds / total:.1%}" for name, seconds in parts.items())
        worst = max(parts, key=lambda name: parts[name])
        return f"{1000 * total / self._steps:.1f} ms a step: {shares}; the bottleneck is {worst}"
