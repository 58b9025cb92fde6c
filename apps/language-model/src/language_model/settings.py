"""The options of all commands, documented at their fields.

`--help` and `options.json` are generated from these fields.
"""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from language_model.shapes import SHAPES
from trainkit import atomic, common_options
from trainkit.common_options import check_checkpoint, check_training
from trainkit.exits import ArgumentError
from trainkit.options import (
    fraction,
    non_negative_float,
    non_negative_int,
    option,
    positive_float,
    positive_int,
    up_to,
)
from trainkit.torch import AUTO

STRATEGIES = ("single", "mesh")
DATA_PARALLEL = ("ddp", "zero1", "zero2", "fsdp")
SCHEDULES = ("gpipe", "1f1b", "interleaved")
RECOMPUTE = ("none", "selective", "full")
DECAYS = ("cosine", "linear", "constant")
PRECISIONS = ("fp32", "bf16", "fp16")
TRAINING_PRECISIONS = (*PRECISIONS, "fp8")
RANKS = up_to(1 << 16)


@dataclass(frozen=True)
class RankSettings:
    """Options of data and tensor parallelism over the ranks of a mesh."""

    strategy: str = option(
        "single", "one process, or a mesh of ranks that the next options describe",
        choices=STRATEGIES,
    )
    data_parallel: str = option(
        "ddp",
        "what the data ranks divide beside the sequences: nothing (ddp), the optimizer state "
        "(zero1), also the gradients (zero2), also the weights (fsdp)",
        choices=DATA_PARALLEL,
    )
    tensor_parallel: int = option(
        1, "ranks that share each weight matrix, and the sequence between the matrices", RANKS
    )
    device: str = common_options.rank_device()


@dataclass(frozen=True)
class LayoutSettings(RankSettings):
    """Options of data, tensor, pipeline and context parallelism, and of micro-batches."""

    pipeline_parallel: int = option(1, "ranks that share the blocks of the network", RANKS)
    pipeline_schedule: str = option(
        "1f1b", "order of the passes of the micro-batches in a pipeline", choices=SCHEDULES
    )
    context_parallel: int = option(1, "ranks that share each sequence", RANKS)
    micro_batches: int = option(
        1, "parts of the batch of a rank, which are processed one after the other", positive_int
    )


@dataclass(frozen=True)
class TrainSettings(LayoutSettings):
    """Options of `train`."""

    data: Path | None = common_options.data("text")
    out: Path | None = common_options.run_folder()
    # The network.
    model: str = option(
        "gpt2-124m", "shape of the network, unless --initial determines it", choices=tuple(SHAPES)
    )
    initial: Path | None = option(
        None, "initial weights: a checkpoint of this app (.npz), or a folder with config.json and "
        "model.safetensors of GPT-2 or Llama; default: random", Path, metavar="FILE|FOLDER",
    )
    lora_rank: int = option(
        0, "rank of the products that are trained instead of the weights (LoRA); 0: train all "
        "weights", non_negative_int,
    )
    lora_alpha: float | None = option(
        None, "factor of these products, times --lora-rank (default: the rank, so a factor of 1)",
        positive_float,
    )
    sequence: int | None = option(
        None, "tokens of a sequence (default: the positions of the network)", positive_int
    )
    document_mask: bool = option(False, "tokens see only tokens of their own document")
    dropout: float = option(0.0, "probability with which a value is dropped", fraction)
    # The length of the training, and the batch.
    epochs: int = option(1, "passes over the training text", positive_int)
    steps: int | None = option(None, "train this many steps instead of --epochs", positive_int)
    max_steps: int | None = common_options.max_steps(
        "; the schedule still spans the whole training"
    )
    batch_size: int = option(512, "sequences of a step on all ranks", up_to(1 << 24))
    # The optimizer.
    learning_rate: float = option(6e-4, "peak learning rate of AdamW", positive_float)
    warmup_steps: int = option(0, "steps of linear warm-up", non_negative_int)
    schedule: str = option("cosine", "decay after the warm-up", choices=DECAYS)
    final_rate: float = option(0.1, "last learning rate, as a part of the peak", non_negative_float)
    beta1: float = option(0.9, "decay of the mean of the gradient", fraction)
    beta2: float = option(0.95, "decay of the mean of its square", fraction)
    epsilon: float = option(1e-8, "added to the root of the mean square", positive_float)
    weight_decay: float = option(
        0.1, "decay of the weights, except biases and norms", non_negative_float
    )
    clip: float = option(1.0, "largest norm of the gradient; 0: any", non_negative_float)
    # Precision, memory and speed.
    precision: str = option(
        AUTO,
        "type of matrix products, weights stay fp32; fp16 scales the loss; fp8: in the blocks, on "
        "GPUs that support it; auto: bf16 if all devices have instructions for it, else fp32",
        choices=(AUTO, *TRAINING_PRECISIONS),
    )
    recompute: str = option(
        "none",
        "activations that the backward pass computes again to save memory: none, all but those "
        "of attention and every second matrix product (selective), or all of a block (full)",
        choices=RECOMPUTE,
    )
    compile: bool = option(
        False, "compile each block, which needs a C++ compiler, and on a GPU also Triton"
    )
    peak_tflops: float | None = option(
        None,
        "peak of a device in TFLOP/s, for the metric model_flops_utilization (default: no metric)",
        positive_float,
    )
    deterministic: bool = option(
        False, "equal settings give bit-identical weights on GPUs, too (on CPUs they always do)"
    )
    seed: int = common_options.seed("seed of weights, order and dropout")
    # The ranks, checkpoints and reports.
    watchdog: int = common_options.watchdog()
    resume: str = common_options.resume()
    checkpoint_every: int | None = common_options.checkpoint_every()
    keep: int = common_options.keep()
    eval_every: int = common_options.eval_every()
    log_every: int = common_options.log_every(10)
    yardsticks: bool = option(
        False,
        "compare each evaluation with `xz -9e` and an n-gram model, computed once on the same text",
    )
    synthetic: bool = common_options.synthetic("a text of a Markov chain in memory")
    profile: int = common_options.profile("ten")

    def check(self) -> None:
        """Refuse combinations of options that are not possible together.

        Raises:
            ArgumentError: an option is missing, or two options contradict each other.
        """
        check_training(self)
        check_layout(self)
        check_initial(self)
        check_yardsticks(self)


@dataclass(frozen=True)
class EvaluateSettings(LayoutSettings):
    """Options of `evaluate`."""

    data: Path | None = common_options.data("text")
    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    split: str | None = option(None, "split to evaluate on (default: val, else test)")
    batch_size: int = option(8, "sequences of a step on all ranks", up_to(1 << 24))
    precision: str | None = option(
        None, "type of matrix products (default: that of the training, bf16 for fp8)",
        choices=PRECISIONS
    )
    yardsticks: bool = option(
        False, "also compute the scores of `xz -9e` and of an n-gram model on the split"
    )
    synthetic: bool = common_options.synthetic("a text of a Markov chain in memory")
    json: bool = common_options.json()

    def check(self) -> None:
        """Refuse missing options, and options that contradict each other.

        Raises:
            ArgumentError: an option is missing, or two options contradict each other.
        """
        if (self.data is None) != self.synthetic:
            raise ArgumentError(
                "evaluate needs either --data DIR or --synthetic", code="argument-missing"
            )
        check_checkpoint(self, "evaluate")
        check_layout(self)
        check_yardsticks(self)


@dataclass(frozen=True)
class EstimateSettings(LayoutSettings):
    """Options of `estimate`."""

    model: str = option("gpt2-124m", "shape of the network", choices=tuple(SHAPES))
    sequence: int | None = option(
        None, "tokens of a sequence (default: the positions of the network)", positive_int
    )
    vocabulary: int | None = option(
        None, "size of the vocabulary of the data (default: that of the published network)",
        up_to(1 << 32),  # tokens are stored as uint32 at most
    )
    document_mask: bool = option(False, "tokens see only tokens of their own document")
    lora_rank: int = option(
        0, "rank of the products that are trained instead of the weights (LoRA); 0: train all "
        "weights", non_negative_int,
    )
    batch_size: int = option(512, "sequences of a step on all ranks", up_to(1 << 24))
    precision: str = option("bf16", "type of matrix products", choices=TRAINING_PRECISIONS)
    recompute: str = option(
        "none", "activations that the backward pass computes again", choices=RECOMPUTE
    )
    ranks: int = option(1, "number of ranks", RANKS)
    device_memory: float | None = option(
        None, "memory of a device in GiB; the command fails if the peak is larger",
        positive_float,
    )
    peak_tflops: float | None = option(
        None, "peak of a device in TFLOP/s, for the time of a step", positive_float
    )
    utilization: float = option(
        0.35, "assumed operations of the model as a part of the peak, at most 1", positive_float
    )
    steps: int | None = option(None, "steps of the training, for its time", positive_int)
    measure: bool = option(
        False, "also make two steps on the ranks that a launcher started, and count their memory "
        "and the bytes that they send",
    )
    json: bool = common_options.json()

    def check(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ArgumentError: two options contradict each other.
        """
        check_layout(self)
        if self.utilization > 1:
            raise ArgumentError(
                f"--utilization {self.utilization}: at most 1", code="argument-invalid"
            )
        if self.ranks > 1 and self.strategy != "mesh":
            raise ArgumentError(
                f"--ranks {self.ranks} needs --strategy mesh", code="arguments-conflict"
            )
        if self.ranks > 1 and self.measure:
            raise ArgumentError(
                "--measure uses the ranks that a launcher such as torchrun started: leave out "
                "--ranks", code="arguments-conflict",
            )


@dataclass(frozen=True)
class ExportSettings:
    """Options of `export`."""

    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    to: Path | None = option(None, "new folder to write", Path)
    data: Path | None = option(
        None, "folder of the packed text of the training, for its tokenizer (default: the copy in "
        "the folder of the run)", Path,
    )

    def check(self) -> None:
        """Refuse missing options, and a folder that has files already.

        Raises:
            ArgumentError: an option is missing, or the folder is not empty or not writable.
        """
        check_checkpoint(self, "export")
        if self.to is None:
            raise ArgumentError("export needs --to FOLDER", code="argument-missing")
        if self.to.exists() and not (self.to.is_dir() and not any(self.to.iterdir())):
            raise ArgumentError(
                f"{self.to} exists and is not an empty folder; nothing is overwritten: choose "
                "another name",
                code="file-exists",
            )
        if self.to.resolve().is_mount():
            raise ArgumentError(
                f"{self.to} is a mount point, which the finished folder cannot replace: choose a "
                "new folder in it",
                code="argument-invalid",
            )
        atomic.check_folder(self.to)


def check_initial(settings: TrainSettings) -> None:
    """Refuse options of initial weights and of their adaptation that contradict each other.

    Raises:
        ArgumentError: two options contradict each other.
    """
    if settings.initial is not None and settings.model != TrainSettings.model:
        raise ArgumentError(
            f"--model {settings.model} and --initial exclude each other: the initial weights "
            "determine the shape of the network",
            code="arguments-conflict",
        )
    if settings.lora_rank and settings.initial is None:
        raise ArgumentError(
            "--lora-rank needs --initial: it adapts a network that is trained already",
            code="arguments-conflict",
        )
    if settings.lora_alpha is not None and not settings.lora_rank:
        raise ArgumentError("--lora-alpha needs --lora-rank", code="arguments-conflict")


@dataclass(frozen=True)
class PredictSettings(RankSettings):
    """Options of `predict`."""

    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    data: Path | None = option(
        None, "folder of the packed text whose tokenizer is used (default: that of the run)", Path
    )
    prompt: list[str] | None = option(
        None, 'beginnings of texts; "" for a text without one', metavar="TEXT", nargs="+"
    )
    prompts: Path | None = option(
        None, "file with one prompt per line, or .jsonl with objects that have a field 'text'", Path
    )
    tokens: int = option(100, "largest number of tokens to add to a prompt", up_to(1 << 24))
    temperature: float = option(
        1.0, "divisor of the logits; 0: always the most probable token", non_negative_float
    )
    top_k: int = option(
        0, "choose among this many most probable tokens only; 0: among all", non_negative_int
    )
    seed: int = common_options.seed("seed of the random choices")
    batch_size: int = option(8, "prompts that all ranks together continue at a time",
                             up_to(1 << 24))
    precision: str | None = option(
        None, "type of matrix products (default: that of the training, bf16 for fp8)",
        choices=PRECISIONS
    )
    json: bool = common_options.json()

    def check(self) -> None:
        """Refuse missing options, and options that contradict each other.

        Raises:
            ArgumentError: an option is missing, or two options contradict each other.
        """
        check_checkpoint(self, "predict")
        check_layout(self)
        if (self.prompt is None) == (self.prompts is None):
            raise ArgumentError(
                "predict needs either --prompt TEXT or --prompts FILE", code="argument-missing"
            )


def check_yardsticks(settings: TrainSettings | EvaluateSettings) -> None:
    """Refuse --yardsticks if the scores of the baselines cannot be computed for the text.

    Raises:
        ArgumentError: the text is synthetic, or it is the training split, on which the n-gram
            model is trained.
    """
    if settings.yardsticks and settings.synthetic:
        raise ArgumentError(
            "--yardsticks needs --data: a synthetic text has tokens, but no bytes",
            code="arguments-conflict",
        )
    if settings.yardsticks and getattr(settings, "split", None) == "train":
        raise ArgumentError(
            "--yardsticks with --split train: the n-gram model counts this split, so that it is "
            "not held out; choose another split",
            code="arguments-conflict",
        )


def check_layout(settings: RankSettings) -> None:
    """Refuse options that need --strategy mesh, if another strategy is chosen.

    Raises:
        ArgumentError: an option needs --strategy mesh.
    """
    if settings.strategy == "mesh":
        return
    for name in ("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel"):
        value = getattr(settings, name, getattr(LayoutSettings, name))
        if value != getattr(LayoutSettings, name):
            raise ArgumentError(
                f"--{name.replace('_', '-')} {value} needs --strategy mesh",
                code="arguments-conflict",
            )
