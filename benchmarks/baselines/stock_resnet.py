"""The stock synthetic benchmark: ResNet-50, one random batch, SGD, no tuning.

The loop and the optimizer are taken from Horovod's pytorch_synthetic_benchmark.py (Apache-2.0), the
source of most published CPU and GPU figures. By default, it runs eagerly in fp32 and NCHW, with SGD
(lr 0.01), cross entropy and the system's malloc. The layers are torchvision's (v1.5), built by the
app's `model.build` so that torchvision is not needed.
"""

from __future__ import annotations

import argparse
import time
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from resnet_imagenet import model
from sidebyside.spread import over_windows
from sidebyside.timing import print_rate


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description="Print the img/s of the stock training loop.")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--window", type=int, default=10, help="steps per window; the first warms")
    parser.add_argument("--windows", type=int, default=10, help="windows that count")
    parser.add_argument("--autocast", choices=("bfloat16", "float16"))
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="default: PyTorch's own choice")
    return parser.parse_args()


def autocast(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """Return the context of torch.autocast; it is disabled without the option --autocast."""
    dtype = getattr(torch, options.autocast) if options.autocast else None
    return torch.autocast(options.device, dtype, enabled=dtype is not None)


def main() -> None:
    """Train on one batch repeatedly; print the rate in images per second."""
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format
    network: nn.Module = model.build("resnet50", classes=1000)
    network = network.to(options.device, memory_format=layout)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(options.device, enabled=options.autocast == "float16")
    images = torch.randn(options.batch, 3, 224, 224).to(options.device, memory_format=layout)
    labels = torch.randint(1000, (options.batch,), device=options.device)

    def step() -> None:
        optimizer.zero_grad()
        with autocast(options):
            loss = functional.cross_entropy(network(images), labels)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()

    def window() -> float:
        start = time.perf_counter()
        for _ in range(options.window):
            step()
        if options.device == "cuda":
            torch.cuda.synchronize()
        images: int = options.window * options.batch
        return images / (time.perf_counter() - start)

    network.train()
    window()
    print_rate(over_windows([window() for _ in range(options.windows)]))


if __name__ == "__main__":
    main()
