"""The command line: `python -m keras_resnet train|evaluate|predict|benchmark|plot`."""

from __future__ import annotations

import sys

from keras_resnet.settings import (
    BenchmarkSettings,
    EvaluateSettings,
    PredictSettings,
    TrainSettings,
)
from trainkit import commands, metrics
from trainkit.plots import Look, Panel

EXAMPLES = {
    "train": """examples:
  # one process
  python -m keras_resnet train --data /data/cifar-10 --out run

  # two GPUs of this node, in one process
  python -m keras_resnet train --data /data/cifar-10 --out run2 --strategy mirrored --replicas 2

  # two ranks: TensorFlow's collective operations, or Horovod
  mpirun --bind-to none -n 2 python -m keras_resnet train …options… --strategy multiworker
  mpirun --bind-to none -n 2 python -m keras_resnet train …options… --strategy horovod

  # four ranks: a coordinator, a parameter server, and two workers with asynchronous SGD
  mpirun --bind-to none -n 4 python -m keras_resnet train …options… \\
      --strategy parameter-server --servers 1

  # resume after a stop (exit code 75), a crash or kill -9
  python -m keras_resnet train …same options… --resume auto""",
    "evaluate": """examples:
  python -m keras_resnet evaluate --data /data/cifar-10 --out run
  python -m keras_resnet evaluate --data /data/cifar-10 \\
      --checkpoint run/checkpoints/step-00000980.npz --json""",
    "predict": """examples:
  python -m keras_resnet predict --out run --data photograph.jpg other.png""",
    "benchmark": """examples:
  # the usual networks, in one table
  python -m keras_resnet benchmark

  # three networks in bf16, and the table as a picture
  python -m keras_resnet benchmark --models ResNet50 VGG16 NASNetLarge --precision bf16 \\
      --batch-size 8 --to zoo.svg""",
    "plot": """examples:
  python -m keras_resnet plot --out run
  python -m keras_resnet plot --out run other-run --to comparison.svg""",
}
COMMANDS: commands.Commands = {
    "train": (TrainSettings, "train a network, or resume a training"),
    "evaluate": (EvaluateSettings, "compute loss and accuracy of a checkpoint"),
    "predict": (PredictSettings, "print the most likely classes of images"),
    "benchmark": (BenchmarkSettings, "measure the rates of a list of networks in one table"),
    "plot": commands.PLOT,
}
CURVES = Look(
    panels=(
        Panel("loss (dots: evaluation)", (metrics.TRAIN_LOSS, metrics.EVAL_LOSS)),
        Panel("accuracy, % (dots: evaluation)", ("train_accuracy", metrics.EVAL_ACCURACY), 100),
        Panel("throughput, img/s", (metrics.THROUGHPUT,), bottom=0),
    ),
    noisy=frozenset({metrics.TRAIN_LOSS, "train_accuracy", metrics.THROUGHPUT}),
    dotted=frozenset({metrics.EVAL_LOSS, metrics.EVAL_ACCURACY}),
    best=(metrics.EVAL_ACCURACY, "best top-1 {:.4f}"),
)
main = commands.entry_point(
    "keras_resnet", "Teaching series: ResNets in Keras with every strategy of TensorFlow.",
    COMMANDS, EXAMPLES, CURVES,
)

if __name__ == "__main__":
    sys.exit(main())
