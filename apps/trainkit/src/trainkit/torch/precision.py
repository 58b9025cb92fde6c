"""In which numbers a training computes, by what its devices compute fast.

Products in bf16 need instructions for them (x86: AVX-512 BF16 or AMX BF16, ARM: BF16; NVIDIA:
from Ampere on). Without, each is emulated: ResNet-20 trained ten times slower on a CPU with
AVX2 only than it does in fp32.
"""

from __future__ import annotations

import torch

from trainkit import provenance
from trainkit.torch import AUTO
from trainkit.torch.strategy import TorchStrategy

BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
"""As /proc/cpuinfo has them, for x86 and ARM."""


def settle(precision: str, strategy: TorchStrategy) -> str:
    """Return `precision`; for "auto" bf16 where the devices of all ranks have it, else fp32."""
    if precision != AUTO:
        return precision
    return "bf16" if all(strategy.gather(has_bf16(strategy.device))) else "fp32"


def has_bf16(device: torch.device) -> bool:
    """Return whether `device` has instructions for products in bf16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return not BF16_FLAGS.isdisjoint(provenance.cpu_flags())
