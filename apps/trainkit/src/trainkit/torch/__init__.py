"""What PyTorch's apps share. PyTorch is imported by the modules of this package, not by itself:

`--help` of an app reads the names below, and is not to wait for it.
"""

STRATEGIES = ("single", "ddp", "horovod")
BACKENDS = ("gloo", "nccl")
COMPRESSIONS = ("none", "fp16")
DEVICES = ("auto", "cpu", "gpu")
AUTO = "auto"  # a precision: see `trainkit.torch.precision`
