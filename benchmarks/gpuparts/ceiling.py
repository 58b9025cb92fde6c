"""Report facts of the device, and the fastest product of square matrices in each precision."""

from __future__ import annotations

import importlib.util
import platform
import time

import torch

from gpuparts import Report
from gpuparts.timing import seconds_of

PRECISIONS = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32,
}
ORDERS = {"cpu": (64,), "cuda": (4096, 8192, 16384)}


def measure(device: str, until: float, report: Report) -> None:
    """Report the facts of the device, and the rate of matrix products in each precision."""
    facts(device, report)
    for name in PRECISIONS:
        if name == "tf32" and device == "cpu":
            continue
        if time.monotonic() < until:
            rate, order = best(name, device)
            report(f"matrix products, {name}", rate / 1e12, "TFLOP/s", order=order)


def facts(device: str, report: Report) -> None:
    """Report the name and memory of the device, and the versions of the software."""
    if device == "cpu":
        report("device", f"CPU {platform.machine()}, {torch.get_num_threads()} threads")
    else:
        found = torch.cuda.get_device_properties(0)
        report("device", found.name)
        report("memory of the device", found.total_memory / 2**30, "GiB")
        report("multiprocessors", found.multi_processor_count)
    report("PyTorch", torch.__version__, cuda=torch.version.cuda, hip=torch.version.hip)
    report("Triton", "installed" if importlib.util.find_spec("triton") else "absent")


def best(precision: str, device: str) -> tuple[float, int]:
    """Return the best rate of matrix products in FLOP/s, and the order n of these matrices.

    A product of two matrices of order n has 2 n^3 operations.
    """
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    kind, found = PRECISIONS[precision], []
    for order in ORDERS[device]:
        left, right = (torch.randn(order, order, device=device).to(kind) for _ in range(2))
        out = torch.empty_like(left)
        seconds = seconds_of(lambda a=left, b=right, c=out: torch.mm(a, b, out=c), device, most=1.0)
        found.append((2 * order**3 / seconds, order))
    return max(found)
