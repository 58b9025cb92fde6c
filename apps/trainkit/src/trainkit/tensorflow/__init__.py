"""trainkit for TensorFlow: ranks, what a checkpoint keeps, and equal results from equal seeds."""

STRATEGIES = ("single", "horovod")
"""How the ranks of a training in TensorFlow can be connected."""
