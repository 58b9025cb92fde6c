"""The plain training loop of FutureGAN: one random batch, both networks in turn, no tuning.

A step follows arXiv:1810.01325 and the published program: the discriminator scores real clips,
generated clips and, for the gradient penalty, interpolated clips; Adam updates the discriminator;
the discriminator scores the generated clips again, and Adam updates the generator. The loop runs
eagerly, in fp32 and NCDHW, with the system's malloc. The networks are the app's own, so that
both programs compute the same graph.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from futuregan import method
from futuregan.growth import batch_sizes
from futuregan.minibatch_stddev import MinibatchStddev
from futuregan.model import Discriminator, Generator, Shape
from sidebyside.spread import over_windows
from sidebyside.timing import print_rate
from trainkit.torch.start import start


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description="Print the clips/s of the plain training loop.")
    parser.add_argument("--size", type=int, default=32, help="side of the frames")
    parser.add_argument("--width", type=int, default=32, help="features up to 32 pixels")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--window", type=int, default=2, help="steps per window; the first warms")
    parser.add_argument("--windows", type=int, default=2, help="windows that count")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--channels-last", action="store_true",
                        help="features beside each other in memory, as the app has them on CPUs")
    parser.add_argument("--count", action="store_true",
                        help="count the GFLOP of a step instead, per clip, and print them")
    parser.add_argument("--no-penalty", action="store_true",
                        help="leave out the slopes, to count what they cost")
    return parser.parse_args()


def stepping(options: argparse.Namespace) -> Callable[[], None]:
    """Return a function that makes one training step of both networks."""
    shape = Shape(size=options.size, width=options.width)
    layout = torch.channels_last_3d if options.channels_last else torch.contiguous_format
    generator = Generator(shape, layout).to(options.device)
    sizes = batch_sizes(str(options.batch))
    minibatch_stddev = MinibatchStddev(4, sizes, start("single", device="cpu"))
    discriminator = Discriminator(shape, minibatch_stddev, layout).to(options.device)
    optimizers = [torch.optim.Adam(network.parameters(), lr=0.001, betas=method.BETAS)
                  for network in (generator, discriminator)]
    length = shape.past + shape.future
    real = torch.rand(options.batch, 3, length, options.size, options.size,
                      device=options.device) * 2 - 1
    past = real[:, :, : shape.past]

    def step() -> None:
        made = torch.cat([past, generator(past)], 2)
        of_real, of_made = discriminator(real), discriminator(made.detach())
        between = torch.rand(options.batch, device=options.device)
        # FlopCounterMode cannot follow autograd.grad to a leaf; this makes the points non-leaves.
        between.requires_grad_(options.count)
        losses = method.critic_losses("wgan-gp", of_real, of_made)
        if not options.no_penalty:
            losses = losses + 10 * method.gradient_penalty(
                discriminator, real, made.detach(), between
            )
        losses = losses + 0.001 * of_real.flatten().square()
        optimizers[1].zero_grad()
        losses.mean().backward()  # type: ignore[no-untyped-call]
        optimizers[1].step()
        optimizers[0].zero_grad()
        loss = method.generator_losses("wgan-gp", discriminator(made)).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizers[0].step()

    return step


def main() -> None:
    """Train on one batch repeatedly, and print the rate in clips per second.

    With the option --count, print the GFLOP of a training step per clip instead.
    """
    options = arguments()
    step = stepping(options)
    if options.count:
        with FlopCounterMode(display=False) as counter:
            step()
        print(json.dumps({"gflop": counter.get_total_flops() / options.batch / 1e9}))
        return

    def window() -> float:
        begun = time.perf_counter()
        for _ in range(options.window):
            step()
        if options.device == "cuda":
            torch.cuda.synchronize()
        clips: int = options.window * options.batch
        return clips / (time.perf_counter() - begun)

    window()
    print_rate(over_windows([window() for _ in range(options.windows)]))


if __name__ == "__main__":
    main()
