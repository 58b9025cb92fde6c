"""The command line: `python -m chexnet train|pretrain|fit|evaluate|predict|export|plot`."""

from __future__ import annotations

import sys

from chexnet.settings import (
    EvaluateSettings,
    ExportSettings,
    FitSettings,
    PredictSettings,
    PretrainSettings,
    TrainSettings,
)
from trainkit import commands, metrics
from trainkit.plots import Look, Panel

EXAMPLES = {
    "train": """examples:
  # fine-tune from ImageNet weights
  python -m chexnet train --data /data/chestxray14 --out run \\
      --initial densenet121_weights_tf_dim_ordering_tf_kernels_notop.h5

  # resume after a stop (exit code 75), a crash or kill -9
  python -m chexnet train …same options… --resume auto

  # two ranks on this node, over MPI
  mpirun --bind-to none -n 2 python -m chexnet train …options… --strategy horovod

  # measure pure compute throughput without data
  python -m chexnet train --synthetic --out bench --model resnet50 --max-steps 20""",
    "pretrain": """examples:
  mpirun -n 512 python -m chexnet pretrain --data /data/imagenet-2012 --out run --model resnet50 \\
      --strategy horovod --batch-size-per-rank 16 --keep 90
  # then fine-tune from an early epoch, here the 60th, with the learning rate of that epoch
  python -m chexnet train … --initial run/checkpoints/step-00009420.npz --initial-rate""",
    "fit": """examples:
  # the training loop of Keras 2 for comparison, without checkpoints and evaluation
  TF_USE_LEGACY_KERAS=1 python -m chexnet fit --synthetic --out bench --max-steps 20
  mpirun -n 2 python -m chexnet fit --synthetic --out bench2 --strategy horovod""",
    "evaluate": """examples:
  python -m chexnet evaluate --data /data/chestxray14 --out run
  # average over ten crops of each image; draw ROC curves and calibration
  python -m chexnet evaluate --data /data/chestxray14 --out run --ten-crop --plot roc.png
  python -m chexnet evaluate --data /data/chestxray14 \\
      --checkpoint run/checkpoints/step-00000500.npz --json""",
    "predict": """examples:
  python -m chexnet predict --out run --data patient.dcm other.png
  # draw the regions that indicate two findings
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
    "train": (TrainSettings, "train the network, or resume a training"),
    "pretrain": (PretrainSettings, "train on images of one class each, for a later fine-tuning"),
    "fit": (FitSettings, "train with the model.fit of Keras, for comparison"),
    "evaluate": (EvaluateSettings, "compute the scores of a checkpoint for each finding"),
    "predict": (PredictSettings, "print the findings of X-rays, and draw their regions"),
    "export": (ExportSettings, "write the network as ONNX or SavedModel"),
    "plot": commands.PLOT,
}
CURVES = Look(
    panels=(
        Panel("loss (dots: evaluation)", (metrics.TRAIN_LOSS, metrics.EVAL_LOSS)),
        Panel("mean AUROC", ("eval_auroc",)),
        Panel("mean of the average precisions", ("eval_average_precision",)),
        Panel("accuracy, %", (metrics.EVAL_ACCURACY,), 100),
        Panel("learning rate", (metrics.LEARNING_RATE,), bottom=0),
        Panel("throughput, img/s", (metrics.THROUGHPUT,), bottom=0),
    ),
    noisy=frozenset({metrics.TRAIN_LOSS, metrics.THROUGHPUT}),
    dotted=frozenset({metrics.EVAL_LOSS, metrics.EVAL_ACCURACY, "eval_auroc",
                      "eval_average_precision"}),
    best=("eval_auroc", "best AUROC {:.4f}"),
)
main = commands.entry_point(
    "chexnet", "Reference training of CheXNet, which detects findings in chest X-rays.",
    COMMANDS, EXAMPLES, CURVES,
)

if __name__ == "__main__":
    sys.exit(main())
