"""trainkit for TensorFlow: ranks, checkpoint parts, profiling, and deterministic results."""

import sys

STRATEGIES = ("single", "horovod")
"""The strategies that connect the ranks of a TensorFlow training."""

# Keras would import matplotlib if it is installed, which costs seconds at each start and creates a
# folder in the home. `trainkit.plots.drawing` makes matplotlib visible again.
sys.modules.setdefault("matplotlib", None)  # type: ignore[arg-type]
