"""Curves of one or several runs over epochs, as a picture: the command `plot`."""

from __future__ import annotations

from trainkit import metrics, plots
from trainkit.commands import PlotSettings
from trainkit.plots import Look, Panel

NOISY = ("critic_loss", "generator_loss", "wasserstein", metrics.THROUGHPUT)
PSNR = ("eval_psnr", "eval_psnr_copy_last", "eval_psnr_linear")
SSIM = ("eval_ssim", "eval_ssim_copy_last", "eval_ssim_linear")
LOOK = Look(
    panels=(
        Panel("loss of the discriminator", ("critic_loss",)),
        Panel("loss of the generator", ("generator_loss",)),
        Panel("Wasserstein estimate", ("wasserstein",)),
        Panel("throughput, clips/s", (metrics.THROUGHPUT,), bottom=0),
        Panel("PSNR, dB (pale: last frame repeated, linear)", PSNR),
        Panel("SSIM (pale: last frame repeated, linear)", SSIM),
        Panel("resolution, pixels", ("resolution",), bottom=0),
        Panel("share of the new resolution, %", ("fade_in",), 100, bottom=0),
    ),
    noisy=frozenset(NOISY),
    dotted=frozenset({*PSNR, *SSIM}),
    thin=frozenset({*PSNR[1:], *SSIM[1:]}),
    best=("eval_psnr", "best PSNR {:.2f} dB"),
)


def main(settings: PlotSettings) -> None:
    """Draw the runs, and say where the picture is."""
    plots.main(settings, LOOK)
