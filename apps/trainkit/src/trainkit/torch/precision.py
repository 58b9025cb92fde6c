"""The number format of a training, selected by the instruction sets of its devices.

Fast products in bf16 need special instructions (x86: AVX-512 BF16 or AMX BF16; NVIDIA: from Ampere
on). Without them, each product is emulated: ResNet-20 trained ten times slower in bf16 than in fp32
on a CPU with AVX2 only.

Arm processors with the instruction set bf16 are counted as processors without it: oneDNN 3.7.1 (in
PyTorch 2.9.1) computes the gradients of a convolution in bf16 there by its plain reference
implementation (`ref:any`), and in fp32 by matrix products (`gemm:ref`).
"""

from __future__ import annotations

import os

import torch

from trainkit import provenance
from trainkit.exits import ArgumentError
from trainkit.torch import AUTO
from trainkit.torch.strategy import TorchStrategy

BF16_FLAGS = {"avx512_bf16", "amx_bf16"}
"""Flags in /proc/cpuinfo of processors on which PyTorch trains fast in bf16."""


def settle(precision: str, strategy: TorchStrategy) -> str:
    """Return `precision`; for "auto", bf16 if the devices of all ranks train fast in it, else fp32.

    Rank 0 prints the selected precision.

    Raises:
        ArgumentError: "fp8" is requested, and the device of a rank has no instructions for it.
    """
    if precision == "fp8" and not all(strategy.gather(has_fp8(strategy.device))):
        raise ArgumentError(
            "--precision fp8 needs GPUs with compute capability 8.9 or more (Ada, Hopper and "
            "later) on all ranks: use bf16",
            code="precision-unsupported",
        )
    if precision != AUTO:
        return precision
    has = all(strategy.gather(has_bf16(strategy.device)))
    found, what = ("bf16", "has") if has else ("fp32", "has no")
    if strategy.is_main:
        print(f"precision {found}: the {strategy.device.type} {what} fast training in bf16")
    return found


def prepare(precision: str, device: torch.device, *, seed: int, deterministic: bool) -> None:
    """Configure PyTorch: seed, determinism, precision of fp32 products.

    On CPUs, equal settings give bit-identical weights on the same machine with the same number of
    threads.
    """
    torch.manual_seed(seed)
    exact = device.type == "cpu" or deterministic
    torch.use_deterministic_algorithms(exact)
    # Otherwise PyTorch fills every new tensor with NaN to find bugs, which costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = not exact
    if device.type == "cuda" and deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.allow_tf32 = precision != "fp32"


def has_fp8(device: torch.device) -> bool:
    """Return whether `device` has instructions for products in fp8.

    The result is true only for NVIDIA GPUs with compute capability 8.9 or higher.
    """
    return (
        device.type == "cuda" and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 9)
    )


def has_bf16(device: torch.device) -> bool:
    """Return whether PyTorch trains fast in bf16 on `device`, forward and backward."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return not BF16_FLAGS.isdisjoint(provenance.cpu_flags())
