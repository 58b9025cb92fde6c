"""Measure an upper bound of the training rate: the best rate of a large matrix product.

Convolutions are computed as matrix products, and no library computes them faster than large square
products. The rate of the product, divided by the operations of a sample, is therefore an upper
bound of the training rate in samples per second.
"""

from __future__ import annotations

import argparse
import time

import torch

from sidebyside.timing import print_rate

SIZES = {"cpu": (512, 1024, 2048, 4096), "cuda": (4096, 8192, 16384)}
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
              "fp16": torch.float16}


def rate(size: int, precision: str, device: str, seconds: float) -> float:
    """Return the operations per second of `size` x `size` products, measured for `seconds`."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    dtype = PRECISIONS[precision]
    a = torch.randn(size, size, device=device).to(dtype)
    b = torch.randn(size, size, device=device).to(dtype)
    out = torch.empty(size, size, device=device, dtype=dtype)

    def products(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            torch.mm(a, b, out=out)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    products(2)
    count = max(2, round(seconds / max(products(1), 1e-6)))
    return 2 * size**3 * count / products(count)


def main() -> None:
    """Measure products of several sizes, and print an upper bound of samples per second.

    The bound is the best rate, divided by the number of operations that a training needs for one
    sample; options give this number.
    """
    parser = argparse.ArgumentParser(description="Print the rate of large matrix products.")
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16")
    parser.add_argument("--device", choices=SIZES, default="cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="per size")
    parser.add_argument("--gflop-per-sample", type=float, default=1.0)
    parser.add_argument("--fp32-gflop-per-sample", type=float, default=0.0,
                        help="operations on fp32 numbers besides those (on a GPU in TF32)")
    options = parser.parse_args()

    def seconds(gflop: float, precision: str) -> float:
        if not gflop:
            return 0.0
        sizes = SIZES[options.device]
        best = max(rate(size, precision, options.device, options.seconds) for size in sizes)
        return gflop * 1e9 / best

    rest = "tf32" if options.device == "cuda" else "fp32"
    print_rate(1 / (seconds(options.gflop_per_sample, options.precision)
                    + seconds(options.fp32_gflop_per_sample, rest)))


if __name__ == "__main__":
    main()
