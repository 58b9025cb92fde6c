"""The names of the measurements of a training, and the packages that determine its result."""

from __future__ import annotations

from language_model import method
from language_model.inputs import Inputs
from language_model.settings import TrainSettings
from language_model.steps import Network
from trainkit import metrics
from trainkit.journal import Words

PACKAGES = ("torch", "numpy", "trainkit", "language-model")
GRADIENT_NORM = "gradient_norm"
"""The mean gradient norm of the steps since the last line of the log, before clipping. A step that
is skipped in fp16 counts as 0."""
EVAL_PERPLEXITY = "eval_perplexity"
EVAL_BITS_PER_BYTE = "eval_bits_per_byte"


def words(settings: TrainSettings, network: Network, data: Inputs) -> Words:
    """Return the names and units under which a training reports its metrics.

    The throughput counts tokens.

    Args:
        settings: options of the training. If they give the peak of a device, the model FLOPS
            utilization is reported, too.
        network: the network.
        data: the batches; the length of their sequences determines the operations per token.
    """
    each = method.operations_per_token(network.shape, data.train.length, network.lora)
    peak = (settings.peak_tflops or 0) * 1e12 * network.strategy.size
    return Words(
        losses={metrics.TRAIN_LOSS: "loss", GRADIENT_NORM: "norm"},
        rates={metrics.LEARNING_RATE: "lr"},
        unit="tokens/s",
        advice="a lower --learning-rate or a longer warm-up may help",
        by_speed={metrics.MODEL_FLOPS_UTILIZATION: each / peak} if peak else {},
    )
