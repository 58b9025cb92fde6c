"""Loss scaling for trainings in fp16.

Micikevicius et al., "Mixed Precision Training", arXiv:1710.03740, section 3.2: small gradients
would be 0 in fp16, so the loss is multiplied by a factor. If a gradient overflows, the step is
skipped and the factor is halved; after many good steps it is doubled. The overflow is seen in the
norm over all ranks, so that all ranks skip the same steps; `torch.amp.GradScaler` checks only
the gradients of its own rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FIRST = 65536.0
GOOD_STEPS = 2000
"""Number of good steps after which the factor is doubled. Like `FIRST`, the first factor, it is a
default of `torch.amp.GradScaler`."""


@dataclass
class LossScale:
    """The factor by which the loss is multiplied in fp16.

    Attributes:
        enabled: whether the factor changes; otherwise it is 1.
        factor: the factor.
        good: good steps since the last change.
    """

    enabled: bool
    factor: float = 1.0
    good: int = 0

    def __post_init__(self) -> None:
        if self.enabled:
            self.factor = FIRST

    def update(self, finite: bool) -> None:
        """Adapt the factor after a step; `finite` is false if a gradient overflowed."""
        if not self.enabled:
            return
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.factor /= 2
        elif self.good == GOOD_STEPS:
            self.factor, self.good = self.factor * 2, 0

    def state_dict(self) -> dict[str, float]:
        """Return the loss scale, and the number of steps without overflow since its last change."""
        return {"factor": self.factor, "good": self.good}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore a result of `state_dict`."""
        self.factor, self.good = float(state["factor"]), int(state["good"])
