"""Check the result of an all-reduce with one rank, by NCCL (RCCL on AMD GPUs; Gloo on a CPU)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import distributed

from gpuparts import NotHereError, Report
from gpuparts.timing import seconds_of

ELEMENTS = {"cuda": 1 << 26, "cpu": 1 << 16}
"""Device -> number of fp32 values in the all-reduce."""


def measure(device: str, _until: float, report: Report) -> None:
    """Report the time of an all-reduce.

    Raises:
        NotHereError: this PyTorch has no NCCL.
        ArithmeticError: the sum is wrong.
    """
    if device == "cuda" and not distributed.is_nccl_available():
        raise NotHereError("this PyTorch was built without NCCL")
    backend = "nccl" if device == "cuda" else "gloo"
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        distributed.init_process_group(
            backend, store=distributed.FileStore(str(Path(folder) / "store"), 1), rank=0,
            world_size=1,
        )
        values = torch.full((ELEMENTS[device],), 3.0, device=device)
        seconds = seconds_of(lambda: distributed.all_reduce(values), device, most=2.0)
        if not bool((values == 3).all()):
            raise ArithmeticError("the sum over one rank is not the value of that rank")
        report(f"all-reduce of {values.nbytes >> 10} KiB, {backend}, 1 rank", seconds * 1e3, "ms")
        distributed.destroy_process_group()
