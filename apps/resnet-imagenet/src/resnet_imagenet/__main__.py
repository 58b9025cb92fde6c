"""The command line: `python -m resnet_imagenet train|evaluate|predict|export|benchmark|plot`."""

from __future__ import annotations

import sys

from resnet_imagenet.settings import (
    BenchmarkSettings,
    EvaluateSettings,
    ExportSettings,
    PredictSettings,
    TrainSettings,
)
from trainkit import commands, metrics
from trainkit.plots import Look, Panel

EXAMPLES = {
    "train": """examples:
  # ResNet-50 v1.5 on ImageNet as in NVIDIA DeepLearningExamples, with one process
  python -m resnet_imagenet train --data /data/imagenet --out run --model resnet50

  # ResNet-20 on Fashion-MNIST, a few minutes on two cores (recipe cpu-quickstart)
  python -m resnet_imagenet train --data /data/fashion-mnist --out run --model resnet20 \\
      --epochs 3 --batch-size-per-rank 64 --base-lr 0.2 --warmup-epochs 0.5 --momentum 0.9 \\
      --weight-decay 5e-4 --label-smoothing 0

  # resume after a stop (exit code 75), a crash or kill -9
  python -m resnet_imagenet train …same options… --resume auto

  # two ranks on this node: torch.distributed, or Horovod over MPI
  OMP_NUM_THREADS=4 torchrun --standalone --nproc-per-node 2 -m resnet_imagenet train \\
      …options… --strategy ddp
  mpirun --bind-to none -n 2 python -m resnet_imagenet train …options… --strategy horovod

  # measure pure compute throughput without data, and profile ten steps
  python -m resnet_imagenet train --synthetic --out bench --max-steps 40 \\
      --batch-size-per-rank 32 --profile 10""",
    "evaluate": """examples:
  python -m resnet_imagenet evaluate --data /data/fashion-mnist --out run
  python -m resnet_imagenet evaluate --data /data/fashion-mnist \\
      --checkpoint run/checkpoints/step-00002814.npz --json""",
    "predict": """examples:
  python -m resnet_imagenet predict --data photo.jpg --out run
  python -m resnet_imagenet predict --data folder --out run --top 3 --json""",
    "export": """examples:
  python -m resnet_imagenet export --out run --to resnet.onnx
  python -m resnet_imagenet export --out run --to resnet.onnx --data /data/fashion-mnist
  python -m resnet_imagenet export --checkpoint run/checkpoints/step-00002814.npz \\
      --to resnet.pt --format torchscript

The command compares the exported network with the one in PyTorch. If they disagree, it writes
no file and exits with code 3.""",
    "benchmark": """examples:
  # the usual networks, in one table
  python -m resnet_imagenet benchmark

  # three networks in fp32, and the table as a picture
  python -m resnet_imagenet benchmark --models resnet50 alexnet googlenet --precision fp32 \\
      --batch-size 8 --to zoo.svg""",
    "plot": """examples:
  python -m resnet_imagenet plot --out run
  python -m resnet_imagenet plot --out run other-run --to comparison.svg""",
}
COMMANDS: commands.Commands = {
    "train": (TrainSettings, "train a network, or resume a training"),
    "evaluate": (EvaluateSettings, "compute the top-1 and top-5 accuracy of a checkpoint"),
    "predict": (PredictSettings, "print the most likely classes of image files"),
    "export": (ExportSettings, "write a trained network as ONNX or TorchScript, and check it"),
    "benchmark": (BenchmarkSettings, "measure the rates of a list of networks in one table"),
    "plot": commands.PLOT,
}
CURVES = Look(
    panels=(
        Panel("loss: training (line), evaluation (dots)", (metrics.TRAIN_LOSS, metrics.EVAL_LOSS)),
        Panel("evaluation: top-1, %", (metrics.EVAL_ACCURACY,), 100),
        Panel("evaluation: top-5, %", (metrics.EVAL_ACCURACY_TOP5,), 100),
        Panel("learning rate", (metrics.LEARNING_RATE,), bottom=0),
        Panel("throughput, img/s", (metrics.THROUGHPUT,), bottom=0),
        Panel("time spent waiting for data, %", (metrics.DATA_WAIT,), 100, bottom=0),
    ),
    noisy=frozenset({metrics.TRAIN_LOSS, metrics.THROUGHPUT, metrics.DATA_WAIT}),
    dotted=frozenset({metrics.EVAL_LOSS, metrics.EVAL_ACCURACY, metrics.EVAL_ACCURACY_TOP5}),
    best=(metrics.EVAL_ACCURACY, "best top-1 {:.2%}"),
)
main = commands.entry_point(
    "resnet_imagenet", "Reference training of ResNets on ImageNet and small images.",
    COMMANDS, EXAMPLES, CURVES,
)

if __name__ == "__main__":
    sys.exit(main())
