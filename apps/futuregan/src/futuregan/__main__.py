"""The command line: `python -m futuregan train|evaluate|predict|plot`."""

from __future__ import annotations

import sys

from futuregan.looking import EvaluateSettings, PredictSettings
from futuregan.settings import TrainSettings
from trainkit import commands
from trainkit.commands import PlotSettings

EXAMPLES = {
    "train": """examples:
  # six frames of 128x128 pixels from six, as published, one process
  python -m futuregan train --data /data/kitti-tracking --out run

  # go on after a stop (exit code 75), a crash or kill -9
  python -m futuregan train …same options… --resume auto

  # two ranks on this node: torch.distributed, or Horovod over MPI
  OMP_NUM_THREADS=4 torchrun --standalone --nproc-per-node 2 -m futuregan train \\
      …options… --strategy ddp
  mpirun --bind-to none -n 2 python -m futuregan train …options… --strategy horovod

  # pure compute throughput at 64 pixels, no data
  python -m futuregan train --synthetic --out bench --size 64 --first-size 64 --max-steps 20""",
    "evaluate": """examples:
  python -m futuregan evaluate --data /data/traffic-camera --out run
  # 30 frames, those beyond the trained ones from predicted frames; also as a picture
  python -m futuregan evaluate --data /data/traffic-camera --out run --long 30 --plot long.png
  python -m futuregan evaluate --data /data/traffic-camera \\
      --checkpoint run/checkpoints/step-00000500.npz --json""",
    "predict": """examples:
  # three clips of the held-out split: a sheet with all frames, and what moves
  python -m futuregan predict --data /data/traffic-camera --out run --clip 0 8 16 \\
      --to future.png future.gif future.mp4
  # what follows the frames of a video from frame 120 on
  python -m futuregan predict --data street.mp4 --out run --clip 120 --long 30 --to future.mp4""",
    "plot": """examples:
  python -m futuregan plot --out run
  python -m futuregan plot --out run other-run --to comparison.svg""",
}
COMMANDS: commands.Commands = {
    "train": (TrainSettings, "train both networks, or go on with a training"),
    "evaluate": (EvaluateSettings, "scores of a checkpoint, frame by frame"),
    "predict": (PredictSettings, "draw what follows the first frames of a video"),
    "plot": (PlotSettings, "draw the curves of runs, finished or not"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    text = "Reference training of FutureGAN: the next frames of a video."
    return commands.run("futuregan", text, COMMANDS, EXAMPLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
