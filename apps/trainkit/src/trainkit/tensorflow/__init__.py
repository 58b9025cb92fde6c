"""trainkit for TensorFlow: ranks, what a checkpoint keeps, and equal results from equal seeds."""

import sys

STRATEGIES = ("single", "horovod")
"""How the ranks of a training in TensorFlow can be connected."""

# Keras imports matplotlib where it is there, for pictures that nobody asks for: seconds at each
# start, and a folder in the home. `trainkit.plots.drawing` ends the hiding.
sys.modules.setdefault("matplotlib", None)  # type: ignore[arg-type]
