"""The forward and backward passes of a step: with micro-batches or a pipeline, in any layout."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional

from language_model import parallelize
from language_model.batch import IGNORED, Batch
from language_model.layout import Layout
from language_model.lora import Lora
from language_model.model import Decoder, initial_values
from language_model.shapes import Shape
from trainkit.torch import sharded
from trainkit.torch.mesh import Mesh
from trainkit.torch.strategy import TorchStrategy, buckets, flatten, unflatten


def summed_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the cross-entropy of all targets in nats, a scalar tensor in fp32."""
    return functional.cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )


class Network:
    """The decoder of a training, divided over the ranks as a layout specifies.

    Args:
        shape: shape of the whole decoder.
        layout: how the work is divided.
        strategy: a `Mesh`, or the strategy of one process.
        seed: seed of the initial weights.
        dropout: probability with which a value is dropped in a training.
        lora: settings of the low-rank adaptation; None if all weights are trained.

    Attributes:
        stages: the stages of this rank; without a pipeline, the whole decoder.
        parameters: name -> weight on this rank. In a pipeline with tied weights, the output layer
            in the last stage has the name of the token embedding, of which it is a copy.
        places: name -> position of this rank's piece in the weight: `trainkit.torch.sharded.Place`.
    """

    def __init__(
        self, shape: Shape, layout: Layout, strategy: TorchStrategy, seed: int = 0,
        dropout: float = 0.0, lora: Lora | None = None,
    ) -> None:
        self.shape, self.layout, self.strategy, self.lora = shape, layout, strategy, lora
        self.stages: list[Decoder] = parallelize.stages(shape, layout, strategy, dropout, lora)
        self.parameters = {
            "embedding.weight" if shape.tied and name == "head.weight" else name: parameter
            for stage in self.stages for name, parameter in stage.named_parameters()
        }
        self.places = sharded.places(self.parameters, strategy)
        self._initialize(seed)
        self._modules: list[nn.Module] = list(self.stages)
        self._ordered = True
        if layout.overlaps and isinstance(strategy, Mesh):
            self._modules = [strategy.distribute(stage) for stage in self.stages]
            self._ordered = False
        self._replicas = parallelize.replicas(strategy) if isinstance(strategy, Mesh) else None
        self._ends = _ends(strategy) if shape.tied and layout.pipeline > 1 else None
        self._scale = 1.0
        self._schedule: Any = None
        if layout.pipeline > 1 and isinstance(strategy, Mesh):
            self._schedule = parallelize.pipeline(self._modules, layout, strategy, self._loss)

    @torch.no_grad()
    def _initialize(self, seed: int) -> None:
        """Compute the initial weights, and set the pieces of them that this rank holds."""
        for name, parameter in self.parameters.items():
            at = self.places[name]
            values = initial_values(name, self.shape, at.whole, seed)
            pairs = zip(at.offsets, at.shape, strict=True)
            own = values[tuple(slice(first, first + size) for first, size in pairs)]
            sharded.local(parameter).copy_(own)

    @property
    def part(self) -> tuple[int, int]:
        """The part of each batch that this rank processes: its index, and the number of parts."""
        if not isinstance(self.strategy, Mesh):
            return 0, 1
        mesh = self.strategy.mesh
        return mesh.get_local_rank("data"), mesh["data"].size()

    @property
    def replicas(self) -> int:
        """The number of ranks whose gradients are averaged."""
        return 1 if self._replicas is None else self._replicas.size()

    @property
    def replica_group(self) -> Any:
        """The process group of the replicas; None in a training of one process."""
        return None if self._replicas is None else self._replicas.get_group()

    @property
    def has_loss(self) -> bool:
        """Whether this rank computes the loss: it has the last block."""
        return self.stages[-1].head is not None

    def gradients(self, batch: Batch, scale: float) -> Tensor:
        """Compute the gradients of the summed loss times `scale`, averaged over the replicas.

        Args:
            batch: the sequences of the global batch that this rank processes: see `part`.
            scale: factor of the loss, such as replicas / number of tokens.

        Returns:
            This rank's share of the sum of the losses of all ranks, as a scalar tensor.
        """
        for stage in self.stages:
            stage.train()
        self._scale = scale
        own = self._own_tokens(batch)
        with self._numbers():
            if not self._ordered:
                self._order_buckets(own)
            if self._schedule is None:
                losses = self._micro_batches(own)
            else:
                losses = self._run_schedule(own, self._schedule.step)
        self._average()
        return self._share(losses) / scale

    @torch.no_grad()
    def loss(self, batch: Batch) -> Tensor:
        """Return this rank's share of the sum of the losses of a batch, as a scalar tensor."""
        for stage in self.stages:
            stage.eval()
        self._scale = 1.0
        own = self._own_tokens(batch)
        with self._numbers():
            if self._schedule is None:
                parts = own.parts(self.layout.micro_batches)
                losses = [self._loss(self.stages[0](p.tokens, **p.more()), p.targets)
                          for p in parts]
            else:
                losses = self._run_schedule(own, self._schedule.eval)
        return self._share(losses)

    def _own_tokens(self, batch: Batch) -> Batch:
        """Return the tokens of each sequence that this rank processes, on its device."""
        mesh = self.strategy.mesh if isinstance(self.strategy, Mesh) else None
        index = 0 if mesh is None else mesh.get_local_rank("context")
        return batch.part(index, self.layout.context).to(self.strategy.device)

    def _numbers(self) -> AbstractContextManager[Any]:
        """Return a context manager for all passes, which sets their number format.

        It enables autocast and, if the logits are divided over tensor ranks, `loss_parallel`.
        """
        stack = ExitStack()
        half, device = self.layout.half, self.strategy.device.type
        stack.enter_context(torch.autocast(device, half, enabled=half is not None))
        stack.enter_context(loss_parallel() if self.layout.tensor > 1 else nullcontext())
        return stack

    def _loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return summed_cross_entropy(logits, targets) * self._scale

    def _order_buckets(self, batch: Batch) -> None:
        """Make the passes of the first step twice, and drop the first gradients.

        After its first backward pass, DistributedDataParallel changes the order of its buckets. The
        rounding of a sum over more than two ranks depends on this order. Without these passes, the
        first step of a resumed training would be rounded differently from the same step of the
        uninterrupted training.
        """
        device = self.strategy.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            self._micro_batches(batch)
        for parameter in self.parameters.values():
            parameter.grad = None
        self._ordered = True

    def _micro_batches(self, batch: Batch) -> list[Tensor]:
        losses, parts = [], batch.parts(self.layout.micro_batches)
        module = self._modules[0]
        for number, part in enumerate(parts, 1):
            last = number == len(parts)
            overlaps = module is not self.stages[0]
            with self.strategy.backward(module, last=last) if overlaps else nullcontext():
                loss = self._loss(module(part.tokens, **part.more()), part.targets)
                loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return losses

    def _run_schedule(self, batch: Batch, run: Any) -> list[Tensor]:
        losses: list[Tensor] = []
        inputs = [] if self.stages[0].embedding is None else [batch.tokens]
        options: dict[str, Any] = dict(batch.more())
        if "return_outputs" in inspect.signature(self._schedule.step).parameters:
            # Otherwise the last stage keeps the logits of all micro-batches to the end of the step.
            options["return_outputs"] = False
        if self.has_loss:
            options |= {"target": batch.targets, "losses": losses}
        run(*inputs, **options)
        return [loss.detach() for loss in losses]

    def _share(self, losses: list[Tensor]) -> Tensor:
        """Return this rank's share of the sum of the losses over all ranks, as a scalar tensor.

        The ranks of a tensor group have the same loss, and each returns an equal fraction of it.
        In a pipeline, only the last stage has losses; the ranks of the other stages return 0.
        """
        total = torch.zeros((), dtype=torch.float64, device=self.strategy.device)
        for loss in losses:
            total += loss.full_tensor() if isinstance(loss, DTensor) else loss
        return total / self.layout.tensor

    @torch.no_grad()
    def _average(self) -> None:
        """Sum or average the gradients over ranks where PyTorch's backward pass does not do so."""
        if self._replicas is None:
            return
        for parameter in self.parameters.values():
            gradient = parameter.grad
            if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
                # Tensor ranks have summands of the gradients of norms, whose weights they share.
                parameter.grad = gradient.redistribute(placements=parameter.placements)
        gradients = {
            name: sharded.local(parameter.grad) for name, parameter in self.parameters.items()
            if parameter.grad is not None
        }
        with self.strategy.waiting():
            if self.layout.data_parallel in ("ddp", "zero1") and not self.layout.overlaps:
                for bucket in buckets(list(gradients.values())):
                    flat = flatten(bucket).div_(self.replicas)
                    dist.all_reduce(flat, group=self._replicas.get_group())
                    unflatten(flat, bucket)
            # Both layers add their gradient of the tied weights, unless these are not trained.
            if self._ends is not None and "embedding.weight" in gradients:
                dist.all_reduce(gradients["embedding.weight"], group=self._ends)


def _ends(strategy: TorchStrategy) -> Any:
    """Return the process group of the first and the last pipeline stage; None on other ranks."""
    ranks = strategy.mesh.mesh  # type: ignore[attr-defined]
    pairs = torch.stack([ranks[0].flatten(), ranks[-1].flatten()], 1).tolist()
    return dist.new_subgroups_by_enumeration(pairs)[0]  # type: ignore[no-untyped-call]
