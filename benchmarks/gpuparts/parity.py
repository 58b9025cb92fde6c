"""Compare the first losses of each app on the device and on the CPU, in fp32."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from gpuparts import Report, futuregan_rate, language_rate

STEPS = 3
TOLERANCE = 1e-3
"""Largest accepted relative difference of a loss after two updates.

Sums in fp32 in another order differ by about 1e-6 per step, and updates enlarge the difference.
"""


def measure(device: str, _until: float, report: Report) -> None:
    """Report the largest relative difference between device and CPU for each app.

    Raises:
        ArithmeticError: a loss differs by more than `TOLERANCE`.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    wrong = []
    for name, losses in {"ResNet-20": resnet, "language model": language, "FutureGAN": gan}.items():
        here, right = losses(device), losses("cpu")
        apart = max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(here, right, strict=True))
        report(f"parity, {name}", apart, "relative", losses=here, on_cpu=right)
        if not apart <= TOLERANCE:  # also if it is not a number
            wrong.append(f"{name} by {apart:.2g}")
    if wrong:
        raise ArithmeticError(f"losses differ from those on the CPU: {', '.join(wrong)}")


def resnet(device: str) -> list[float]:
    """Return the first losses of ResNet-20, with the app's network and loss function, and SGD."""
    from resnet_imagenet import method, model

    torch.manual_seed(17)
    network: nn.Module = model.build("resnet20", classes=10)
    images, labels = torch.randn(8, 3, 32, 32).to(device), torch.randint(10, (8,)).to(device)
    network.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, fused=True)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = method.summed_cross_entropy(network(images), labels, 0.1) / 8
        loss.backward()
        optimizer.step()
        return loss

    return several(step)


def language(device: str) -> list[float]:
    """Return the first losses of a small language model, with training steps of the app."""
    step, _ = language_rate.app_step(device, "llama-test", 32, 4, precision="fp32")
    return several(lambda: step() / (4 * 32))


def gan(device: str) -> list[float]:
    """Return the mean square of FutureGAN's prediction after each training step of the app."""
    training, batches = futuregan_rate.app_training(device, 2, "fp32", size=8, width=4)

    def step() -> torch.Tensor:
        training.train_step(batches)
        past = next(batches).clips[:, :, : training.settings.past].float().to(device) / 127.5 - 1
        return training.generator(past).square().mean()

    return several(step)


def several(step: Callable[[], torch.Tensor]) -> list[float]:
    """Return the results of `STEPS` calls of `step`; each call makes one training step."""
    return [float(step().detach()) for _ in range(STEPS)]
