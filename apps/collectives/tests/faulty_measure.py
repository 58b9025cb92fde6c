"""Start `measure` with MPI on a rank that misbehaves in one call: `FAULT` is `OPERATION:KIND`.

The last rank changes an element of a result (`wrong`), stops (`stopped`), or is killed (`killed`).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from torch import Tensor

from collectives.__main__ import main
from collectives.libraries import mpi
from collectives.operations import Operation

OPERATION, KIND = os.environ["FAULT"].split(":")


class Faulty(mpi.Mpi):
    """MPI whose last rank misbehaves if it sends at least 128 bytes."""

    def call(self, operation: Operation, send: Tensor | None, receive: Tensor | None) -> Any:
        right = super().call(operation, send, receive)
        last = self.strategy.rank == self.strategy.size - 1
        if not last or operation.name != OPERATION or send is None or send.nbytes < 128:
            return right

        def wrong() -> None:
            if KIND != "wrong":
                os.kill(os.getpid(), signal.SIGSTOP if KIND == "stopped" else signal.SIGKILL)
            right()
            if receive is not None:
                receive[5] += 1

        return wrong


mpi.Mpi = Faulty  # type: ignore[misc]
sys.exit(main())
