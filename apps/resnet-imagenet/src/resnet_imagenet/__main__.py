"""The command line: `python -m resnet_imagenet train|evaluate|predict|export|plot`."""

from __future__ import annotations

import sys

from resnet_imagenet.settings import (
    EvaluateSettings,
    ExportSettings,
    PredictSettings,
    TrainSettings,
)
from trainkit import commands
from trainkit.commands import PlotSettings

EXAMPLES = {
    "train": """examples:
  # ResNet-50 v1.5 on ImageNet as NVIDIA DeepLearningExamples trains it, one process
  python -m resnet_imagenet train --data /data/imagenet --out run --model resnet50

  # ResNet-20 on Fashion-MNIST, a few minutes on two cores (recipe cpu-quickstart)
  python -m resnet_imagenet train --data /data/fashion-mnist --out run --model resnet20 \\
      --epochs 3 --batch-size-per-rank 64 --base-lr 0.2 --warmup-epochs 0.5 --momentum 0.9 \\
      --weight-decay 5e-4 --label-smoothing 0

  # go on after a stop (exit code 75), a crash or kill -9
  python -m resnet_imagenet train …same options… --resume auto

  # two ranks on this node: torch.distributed, or Horovod over MPI
  OMP_NUM_THREADS=4 torchrun --standalone --nproc-per-node 2 -m resnet_imagenet train \\
      …options… --strategy ddp
  mpirun --bind-to none -n 2 python -m resnet_imagenet train …options… --strategy horovod

  # pure compute throughput, no data, and where the time of a step goes
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

The written file is compared with the network in PyTorch; exit code 3, and no file, where
they disagree.""",
    "plot": """examples:
  python -m resnet_imagenet plot --out run
  python -m resnet_imagenet plot --out run other-run --to comparison.svg""",
}
COMMANDS: commands.Commands = {
    "train": (TrainSettings, "train a network, or go on with a training"),
    "evaluate": (EvaluateSettings, "top-1 and top-5 accuracy of a checkpoint"),
    "predict": (PredictSettings, "the most likely classes of image files"),
    "export": (ExportSettings, "write a trained network as ONNX or TorchScript, and check it"),
    "plot": (PlotSettings, "draw the curves of runs, finished or not"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    text = "Reference training of ResNets on ImageNet and small images."
    return commands.run("resnet_imagenet", text, COMMANDS, EXAMPLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
