"""The command line: `python -m language_model train|evaluate|estimate|export|predict|plot`."""

from __future__ import annotations

import sys

from language_model.settings import (
    EstimateSettings,
    EvaluateSettings,
    ExportSettings,
    PredictSettings,
    TrainSettings,
)
from trainkit import commands, metrics
from trainkit.plots import Look, Panel

EXAMPLES = {
    "train": """examples:
  # a small Llama on two cores, with a text in memory
  python -m language_model train --synthetic --out run --model llama-5m --sequence 256 \\
      --batch-size 16 --learning-rate 1e-3 --warmup-steps 20 --steps 200

  # resume after a stop (exit code 75), a crash or kill -9
  python -m language_model train …same options… --resume auto

  # GPT-2 124M on eight GPUs
  torchrun --standalone --nproc-per-node 8 -m language_model train --data /data/fineweb \\
      --out run --strategy mesh --batch-size 512 --micro-batches 2 --warmup-steps 700

  # Llama 3 8B on 64 GPUs: weights divided over 16, each matrix over 4
  srun … python -m language_model train --data /data/fineweb --out run --model llama3-8b \\
      --strategy mesh --data-parallel fsdp --tensor-parallel 4 --recompute selective \\
      --micro-batches 32

  # four ranks: two stages of a pipeline, each matrix over two ranks
  torchrun --standalone --nproc-per-node 4 -m language_model train … --strategy mesh \\
      --pipeline-parallel 2 --tensor-parallel 2 --micro-batches 4

  # fine-tune Llama 3.2 1B, downloaded as a folder with config.json and model.safetensors, by
  # products of rank 16 beside its weights; without --lora-rank, all weights are trained
  torchrun --standalone --nproc-per-node 8 -m language_model train --data /data/text \\
      --out tuned --initial Llama-3.2-1B --lora-rank 16 --sequence 4096 --batch-size 32 \\
      --learning-rate 2e-4 --strategy mesh --data-parallel fsdp""",
    "evaluate": """examples:
  python -m language_model evaluate --data /data/fineweb --out run
  python -m language_model evaluate --data /data/fineweb \\
      --checkpoint run/checkpoints/step-00001000.npz --json

  # beside `xz -9e` and an n-gram model on the same text
  python -m language_model evaluate --data /data/gcide --out run --yardsticks""",
    "estimate": """examples:
  # Llama 2 7B on one device, in fp32
  python -m language_model estimate --model llama2-7b --batch-size 1 --precision fp32

  # Llama 3 8B on 8 GPUs of 80 GiB; the command fails if it does not fit
  python -m language_model estimate --model llama3-8b --ranks 8 --strategy mesh \\
      --data-parallel fsdp --batch-size 8 --recompute selective --device-memory 80 \\
      --peak-tflops 989 --steps 1000

  # estimate and two real steps of a small network on two ranks
  torchrun --standalone --nproc-per-node 2 -m language_model estimate --model gpt2-5m \\
      --sequence 256 --batch-size 8 --strategy mesh --data-parallel fsdp --measure""",
    "export": """examples:
  # write a folder that AutoModelForCausalLM and AutoTokenizer of transformers read
  python -m language_model export --out run --data /data/fineweb --to exported
  python -m language_model export --checkpoint run/checkpoints/step-00001000.npz --to exported""",
    "predict": """examples:
  python -m language_model predict --out run --prompt "The ship" --temperature 0.8 --top-k 40
  python -m language_model predict --out run --prompts beginnings.txt --temperature 0 --json

  # each matrix divided over two ranks
  torchrun --standalone --nproc-per-node 2 -m language_model predict --out run \\
      --prompt "The ship" --strategy mesh --tensor-parallel 2""",
    "plot": """examples:
  python -m language_model plot --out run
  python -m language_model plot --out run other-run --to comparison.svg""",
}
COMMANDS: commands.Commands = {
    "train": (TrainSettings, "train a network, or resume a training"),
    "evaluate": (EvaluateSettings, "compute loss, perplexity and bits per byte of a checkpoint"),
    "estimate": (EstimateSettings, "compute memory and time of a training before it is started"),
    "export": (ExportSettings, "write the weights of a checkpoint for Hugging Face transformers"),
    "predict": (PredictSettings, "continue texts by sampling from a checkpoint"),
    "plot": commands.PLOT,
}
CURVES = Look(
    panels=(
        Panel("loss: training (line), evaluation (dots)", (metrics.TRAIN_LOSS, metrics.EVAL_LOSS)),
        Panel("evaluation: bits per byte",
              ("eval_bits_per_byte", "eval_bits_per_byte_xz", "eval_bits_per_byte_ngram")),
        Panel("norm of the gradient", ("gradient_norm",), bottom=0),
        Panel("learning rate", (metrics.LEARNING_RATE,), bottom=0),
        Panel("throughput, tokens/s", (metrics.THROUGHPUT,), bottom=0),
        Panel("operations of the model, % of the peak", (metrics.MODEL_FLOPS_UTILIZATION,), 100,
              bottom=0),
    ),
    noisy=frozenset({metrics.TRAIN_LOSS, metrics.THROUGHPUT, "gradient_norm"}),
    dotted=frozenset({metrics.EVAL_LOSS, "eval_bits_per_byte"}),
    thin=frozenset({"eval_bits_per_byte_xz", "eval_bits_per_byte_ngram"}),
    best=("eval_bits_per_byte", "best {:.4f} bits per byte"),
    lowest=True,
)
main = commands.entry_point(
    "language_model", "Reference training of decoder transformers on any number of ranks.",
    COMMANDS, EXAMPLES, CURVES,
)

if __name__ == "__main__":
    sys.exit(main())
