"""trainkit for PyTorch. Its modules import PyTorch; the package itself does not.

`--help` of an app reads the names in this package without loading PyTorch.
"""

STRATEGIES = ("single", "ddp", "horovod")
BACKENDS = ("gloo", "nccl")
COMPRESSIONS = ("none", "fp16")
DEVICES = ("auto", "cpu", "gpu")
AUTO = "auto"  # a precision: see `trainkit.torch.precision`
