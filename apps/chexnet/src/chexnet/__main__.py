"""The command line: `python -m chexnet train|pretrain|fit|evaluate|predict|export|plot`."""

from __future__ import annotations

import sys

from chexnet.looking import EvaluateSettings, ExportSettings, PredictSettings
from chexnet.settings import FitSettings, PretrainSettings, TrainSettings
from trainkit import commands
from trainkit.commands import PlotSettings

EXAMPLES = {
    "train": """examples:
  # the last layers first, then all, from weights of ImageNet
  python -m chexnet train --data /data/chestxray14 --out run \\
      --initial densenet121_weights_tf_dim_ordering_tf_kernels_notop.h5

  # go on after a stop (exit code 75), a crash or kill -9
  python -m chexnet train …same options… --resume auto

  # two ranks on this node, over MPI
  mpirun --bind-to none -n 2 python -m chexnet train …options… --strategy horovod

  # pure compute throughput, no data
  python -m chexnet train --synthetic --out bench --model resnet50 --max-steps 20""",
    "pretrain": """examples:
  mpirun -n 512 python -m chexnet pretrain --data /data/imagenet-2012 --out run --model resnet50 \\
      --strategy horovod --batch-size-per-rank 16 --keep 90
  # then, of an epoch before the last ones, here the 60th, with the rate that it was written at:
  python -m chexnet train … --initial run/checkpoints/step-00009420.npz --initial-rate""",
    "fit": """examples:
  # Keras's own loop, to compare with: no checkpoints, no evaluation; Keras 2
  TF_USE_LEGACY_KERAS=1 python -m chexnet fit --synthetic --out bench --max-steps 20
  mpirun -n 2 python -m chexnet fit --synthetic --out bench2 --strategy horovod""",
    "evaluate": """examples:
  python -m chexnet evaluate --data /data/chestxray14 --out run
  # ten parts of each image; ROC curves and calibration as a picture
  python -m chexnet evaluate --data /data/chestxray14 --out run --ten-crop --plot roc.png
  python -m chexnet evaluate --data /data/chestxray14 \\
      --checkpoint run/checkpoints/step-00000500.npz --json""",
    "predict": """examples:
  python -m chexnet predict --out run --data patient.dcm other.png
  # which regions speak for two findings
  python -m chexnet predict --out run --data patient.dcm --findings Mass Effusion --to maps.png

Not a medical device: no decision about a patient may rest on this.""",
    "export": """examples:
  python -m chexnet export --out run --to network.onnx --data /data/chestxray14
  python -m chexnet export --out run --to network --format savedmodel""",
    "plot": """examples:
  python -m chexnet plot --out run
  python -m chexnet plot --out run other-run --to comparison.svg""",
}
COMMANDS: commands.Commands = {
    "train": (TrainSettings, "train the network, or go on with a training"),
    "pretrain": (PretrainSettings, "train on images of one class each, to begin with later"),
    "fit": (FitSettings, "train by the model.fit of Keras, to compare with"),
    "evaluate": (EvaluateSettings, "scores of a checkpoint, finding by finding"),
    "predict": (PredictSettings, "findings of X-rays, and which regions speak for them"),
    "export": (ExportSettings, "write the network as ONNX or SavedModel"),
    "plot": (PlotSettings, "draw the curves of runs, finished or not"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    text = "Reference training of CheXNet: findings in chest X-rays."
    return commands.run("chexnet", text, COMMANDS, EXAMPLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
