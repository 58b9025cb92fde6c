"""The content of a checkpoint: everything that determines the rest of a training."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.optim import Optimizer

from language_model import configuration, method
from language_model.comparison import Yardsticks
from language_model.huggingface import Readable
from language_model.inputs import Inputs
from language_model.lora import merged
from language_model.scaling import LossScale
from language_model.settings import TrainSettings
from language_model.shapes import Shape
from language_model.steps import Network
from trainkit import metrics
from trainkit.checkpoint import State
from trainkit.exits import DataError
from trainkit.parts import Parts
from trainkit.torch import sharded
from trainkit.torch.mesh import MeshRandomState
from trainkit.torch.parts import parts
from trainkit.torch.strategy import TorchStrategy

FREE = {
    "data", "initial", "out", "resume", "checkpoint_every", "keep", "log_every", "max_steps",
    "profile", "watchdog", "peak_tflops", "device", "recompute",
    "strategy", "data_parallel", "tensor_parallel", "pipeline_parallel", "pipeline_schedule",
    "context_parallel", "micro_batches",
}
"""Settings that may change at a resume; all others affect the weights or the metrics.

The path of the initial weights may change; their digest must stay the same.

Another division of the network among the ranks gives the same training up to rounding, and up to
the random draws of dropout.
"""

ABOUT = {"document_mask", "end", "model", "precision", "sequence", "tokenizer"}
"""Keys that the dict `about` of a checkpoint must have besides `shape`; the commands read them."""


def identity(settings: TrainSettings, data: Inputs, initial: str | None) -> dict[str, Any]:
    """Return the properties in which a checkpoint and the run that resumes it must agree.

    Args:
        settings: options of the training.
        data: batches of the training.
        initial: digest of the initial weights; None if they are random.
    """
    values = dataclasses.asdict(settings)
    facts = {"data": data.name, "vocabulary": data.vocabulary, "initial": initial}
    return {key: values[key] for key in values if key not in FREE} | facts


@dataclasses.dataclass(frozen=True)
class Trained:
    """The state of a training that checkpoints keep; implements `trainkit.training.Training`.

    Attributes:
        settings: options of the training.
        data: batches of the training.
        strategy: the strategy that connects the ranks.
        network: the network that is trained.
        optimizer: the optimizer; its learning rate is computed from the step.
        scale: factor of the loss in fp16; constant in other precisions.
        yardsticks: scores of untrained models, computed once in a run; None if they were not
            requested.
    """

    settings: TrainSettings
    data: Inputs
    strategy: TorchStrategy
    network: Network
    optimizer: Optimizer
    scale: LossScale
    yardsticks: Yardsticks | None = None

    def parts(self) -> Parts:
        """Return the objects whose state changes from step to step, by name in a checkpoint."""
        network, strategy = self.network, self.strategy
        return {
            "network": weights(network),
            "optimizer": sharded.ShardedOptimizer(
                lambda: method.states(self.optimizer), method.updated(self.optimizer, network),
                network.places, strategy,
            ),
            **parts(scale=self.scale, random=MeshRandomState(strategy)),
        }

    def facts(self) -> dict[str, int]:
        """Return the values that the metrics log records once, at the start."""
        return {
            metrics.SEED: self.settings.seed,
            metrics.GLOBAL_BATCH_SIZE: self.settings.batch_size,
            metrics.TRAIN_SAMPLES: self.data.train.samples,
            metrics.EVAL_SAMPLES: self.data.evaluation.samples,
        }

    def digest(self) -> str:
        """Return a digest of the weights."""
        return sharded.digest(self.network.parameters, self.network.places)

    def before_save(self) -> None:
        """Do nothing: the network has no running statistics that ranks would have to average."""

    def own_state(self) -> dict[str, Any]:
        """Return this app's entries of a checkpoint.

        They describe the network, its data and the layout, and contain the yardsticks (scores of
        untrained models; None if they were not computed).
        """
        network = self.network
        return {
            "about": {
                "model": self.settings.model, "shape": dataclasses.asdict(network.shape),
                "sequence": self.data.train.length, "precision": self.settings.precision,
                "document_mask": self.settings.document_mask, "data": self.data.name,
                "tokenizer": self.data.tokenizer, "end": self.data.end,
                "lora": None if network.lora is None else dataclasses.asdict(network.lora),
            },
            "layout": dataclasses.asdict(network.layout) | {"ranks": self.strategy.size},
            "yardsticks": self.yardsticks and dataclasses.asdict(self.yardsticks),
        }

    def own_result(self) -> dict[str, Any]:
        """Return the app's own entries of `result.json`."""
        return {"model": self.settings.model}


def weights(network: Network) -> sharded.ShardedWeights:
    """Return an object that saves and loads a network's weights as an entry of a checkpoint."""
    return sharded.ShardedWeights(network.parameters, network.places, network.strategy)


def shape_of(state: State) -> Shape:
    """Return the shape of the network of a checkpoint.

    The sizes are checked before anything of these sizes is built.

    Raises:
        DataError: the checkpoint does not describe a network of this app.
    """
    try:
        about, stored = state["about"], len(state["parts"]["network"])
        # A shape that passes the checks of a `config.json` can be built.
        shape = configuration.shape_of(configuration.config_of(Shape(**about["shape"])))
        if shape.layers > stored:
            raise ValueError(f"there are {stored} weights for {shape.layers} layers")
        if missing := ABOUT - about.keys():
            raise ValueError(f"there is no {min(missing)}")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the checkpoint does not describe a language model: {error}",
            code="checkpoint-mismatch",
        ) from error
    return shape


def trained_weights(state: State) -> dict[str, Readable]:
    """Return the weights of a checkpoint by name, with any low-rank adaptation added.

    Raises:
        DataError: the checkpoint lacks weights, or a factor of the adaptation.
    """
    try:
        return merged(state["parts"]["network"], state["about"].get("lora"))
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(
            f"the checkpoint does not have all weights: {error}", code="checkpoint-mismatch"
        ) from error


def load_weights(state: State, network: Network) -> None:
    """Read the weights of a checkpoint, with any low-rank adaptation added, into a network.

    Raises:
        DataError: the checkpoint belongs to another network; the message names the weights that
            differ.
    """
    try:
        weights(network).load_state_dict(trained_weights(state))
    except ValueError as error:
        raise DataError(
            f"the checkpoint is of another network than the options describe: {error}",
            code="checkpoint-mismatch",
        ) from error
