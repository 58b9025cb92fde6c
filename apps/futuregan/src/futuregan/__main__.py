"""The command line: `python -m futuregan train|evaluate|predict|plot`."""

from __future__ import annotations

import sys

from futuregan.settings import EvaluateSettings, PredictSettings, TrainSettings
from trainkit import commands, metrics
from trainkit.plots import Look, Panel

EXAMPLES = {
    "train": """examples:
  # predict six frames of 128x128 pixels from six, as published, with one process
  python -m futuregan train --data /data/kitti-tracking --out run

  # resume after a stop (exit code 75), a crash or kill -9
  python -m futuregan train …same options… --resume auto

  # two ranks on this node: torch.distributed, or Horovod over MPI
  OMP_NUM_THREADS=4 torchrun --standalone --nproc-per-node 2 -m futuregan train \\
      …options… --strategy ddp
  mpirun --bind-to none -n 2 python -m futuregan train …options… --strategy horovod

  # measure pure compute throughput at 64 pixels, without data
  python -m futuregan train --synthetic --out bench --size 64 --first-size 64 --max-steps 20""",
    "evaluate": """examples:
  python -m futuregan evaluate --data /data/traffic-camera --out run
  # 30 frames: the later ones are predicted from predicted frames; draw the scores, too
  python -m futuregan evaluate --data /data/traffic-camera --out run --long 30 --plot long.png
  python -m futuregan evaluate --data /data/traffic-camera \\
      --checkpoint run/checkpoints/step-00000500.npz --json""",
    "predict": """examples:
  # three clips of the held-out split: one sheet with all frames, and two animations
  python -m futuregan predict --data /data/traffic-camera --out run --clip 0 8 16 \\
      --to future.png future.gif future.mp4
  # predict 30 frames of a video from frame 120 on
  python -m futuregan predict --data street.mp4 --out run --clip 120 --long 30 --to future.mp4""",
    "plot": """examples:
  python -m futuregan plot --out run
  python -m futuregan plot --out run other-run --to comparison.svg""",
}
COMMANDS: commands.Commands = {
    "train": (TrainSettings, "train both networks, or resume a training"),
    "evaluate": (EvaluateSettings, "compute the scores of a checkpoint for each frame"),
    "predict": (PredictSettings, "draw the predicted continuation of a video"),
    "plot": commands.PLOT,
}
PSNR = ("eval_psnr", "eval_psnr_copy_last", "eval_psnr_linear")
SSIM = ("eval_ssim", "eval_ssim_copy_last", "eval_ssim_linear")
CURVES = Look(
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
    noisy=frozenset({"critic_loss", "generator_loss", "wasserstein", metrics.THROUGHPUT}),
    dotted=frozenset({*PSNR, *SSIM}),
    thin=frozenset({*PSNR[1:], *SSIM[1:]}),
    best=("eval_psnr", "best PSNR {:.2f} dB"),
)
main = commands.entry_point(
    "futuregan", "Reference training of FutureGAN, which predicts the next frames of a video.",
    COMMANDS, EXAMPLES, CURVES,
)

if __name__ == "__main__":
    sys.exit(main())
