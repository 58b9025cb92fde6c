"""Learning-rate schedules as pure functions of the step; each app combines them in its own file.

Steps count from 0: `step` is the number of updates made so far. The same step always gives the
same rate, so that a resumed run needs no schedule state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def linear_scaling(base_lr: float, batch: int, base_batch: int) -> float:
    """Return `base_lr` multiplied by the ratio of the global batch `batch` to `base_batch`.

    Goyal et al., "Accurate, Large Minibatch SGD", arXiv:1706.02677, section 2.1.
    """
    if batch < 1 or base_batch < 1:
        raise ValueError(f"batch sizes must be positive, got {batch} and {base_batch}")
    return base_lr * batch / base_batch


def warmup(step: int, steps: int, peak: float, start: float = 0.0) -> float:
    """Return the rate of gradual warm-up: linear from `start`, and `peak` from `steps` on.

    Goyal et al., arXiv:1706.02677, section 2.2 ("gradual warmup").
    """
    if step >= steps:
        return peak
    return start + (peak - start) * step / steps


def constant_warmup(step: int, steps: int, peak: float, low: float) -> float:
    """Return the rate of constant warm-up: `low` for the first `steps`, then `peak` at once.

    Goyal et al., arXiv:1706.02677, section 2.2 ("constant warmup"), where `low` is the rate before
    linear scaling. The jump requires an optimizer whose velocity does not contain the rate, or
    the momentum correction of the paper (section 3, remark 2).
    """
    return peak if step >= steps else low


def cosine(step: int, steps: int, peak: float, end: float = 0.0) -> float:
    """Return the rate of half a cosine from `peak` at step 0 to `end` at `steps` and later.

    Loshchilov and Hutter, "SGDR", arXiv:1608.03983, equation 5, without restarts.
    """
    part = min(1.0, step / steps) if steps > 0 else 1.0
    return end + (peak - end) * 0.5 * (1.0 + math.cos(math.pi * part))


def polynomial(step: int, steps: int, peak: float, end: float = 0.0, power: float = 2.0) -> float:
    """Return the rate of polynomial decay from `peak` at step 0 to `end` at `steps` and later.

    You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks" (LARS),
    arXiv:1708.03888, section 5 (power 2); power 1 is the linear decay of
    Codreanu et al., arXiv:1711.04291.
    """
    part = min(1.0, step / steps) if steps > 0 else 1.0
    return end + (peak - end) * math.pow(1.0 - part, power)


def step_decay(step: int, milestones: Sequence[int], peak: float, factor: float = 0.1) -> float:
    """Return `peak`, multiplied by `factor` for each of `milestones` (in steps) that was reached.

    Goyal et al., arXiv:1706.02677, section 5.1: factor 1/10 after 30, 60 and 80 of 90 epochs.
    """
    return peak * factor ** sum(step >= milestone for milestone in milestones)


def cyclic_polynomial(
    step: int,
    cycle: int,
    warm: int,
    peak: float,
    *,
    start: float = 0.0,
    end: float = 0.0,
    power: float = 1.0,
) -> float:
    """Return the rate of cycles of `cycle` steps, each with a warm-up and a decay.

    In the first `warm` steps of a cycle the rate rises linearly from `start` to `peak`; in the
    other steps it falls to `end` as in `polynomial`. Codreanu, Podareanu, Saletore,
    "Scale out for large minibatch SGD", arXiv:1711.04291 (cycles with a new warm-up).
    """
    if not 0 <= warm < cycle:
        raise ValueError(f"a cycle of {cycle} steps cannot have {warm} steps of warm-up")
    position = step % cycle
    if position < warm:
        return warmup(position, warm, peak, start)
    return polynomial(position - warm, cycle - warm, peak, end, power)
