"""The training step: an update computed by hand, and one rank of a mesh without the other ranks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import packed_text
import pytest
import torch
import torch.distributed as dist
from layout_worker import global_batch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial
from torch.nn import functional
from torch.testing._internal.distributed import fake_pg

from language_model import measures, memory, method, train
from language_model.footprint import Footprint
from language_model.inputs import open_inputs
from language_model.job import Job
from language_model.layout import Layout
from language_model.model import initial_values
from language_model.settings import TrainSettings
from language_model.shapes import SHAPES
from language_model.steps import Network
from trainkit import checkpoint
from trainkit.ranks import Ranks
from trainkit.testing import reading
from trainkit.torch import sharded
from trainkit.torch.mesh import Mesh
from trainkit.torch.strategy import TorchStrategy

SHAPE = SHAPES["llama-test"]
assert fake_pg  # its import adds the backend "fake" to PyTorch


class Alone(Mesh):
    """A mesh with only one real rank; all other ranks seem to have the values of this rank."""

    def gather(self, value: Any) -> list[Any]:
        return [value] * self.size

    def distribute(self, network: nn.Module, *, overlap: bool = True) -> nn.Module:
        return network

    def backward(self, network: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        return nullcontext()


Start = Callable[..., AbstractContextManager[Alone]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that starts one rank of a mesh, in which collectives change nothing.

    A process must have the same rank in all meshes of one shape, because PyTorch caches the pieces
    of a rank.
    """
    connect = dist.init_process_group

    @contextmanager
    def started(layout: Layout, size: int, rank: int = 1) -> Iterator[Alone]:
        connect("fake", rank=rank, world_size=size)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(dist, "init_process_group", lambda *_, **__: None)
                ranks = Ranks("torchrun", rank, size, rank, size)
                strategy = Alone(ranks, torch.device("cpu"), layout.axes)
            yield strategy
        finally:
            dist.destroy_process_group()

    return started


def as_if_equal(tensor: Tensor, group: Any) -> None:
    """Replace a sum over the ranks of a group: multiply by their number, as if all were equal."""
    tensor.mul_(group.size())


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_an_update_is_that_of_the_mean_over_the_tokens(
    precision: str, clip: float, tmp_path: Path
) -> None:
    """The first update is computed from the mean gradient over the tokens of 12 sequences of text.

    The batch also has 4 sequences of padding, which must not count. With the large epsilon of the
    test, the first update of Adam depends on the size of the gradient.
    """
    documents = [[(7 * n + place) % 200 for place in range(24)] for n in range(4)]
    data = packed_text.pack(tmp_path / "text", {"train": [documents], "val": [documents]})
    settings = TrainSettings(
        data=data, out=tmp_path / "run", model="llama-test", sequence=8, batch_size=16, steps=1,
        learning_rate=0.5, epsilon=1.0, clip=clip, precision=precision, device="cpu", seed=5,
        log_every=1, eval_every=0,
    )
    train.main(settings)
    batches = open_inputs(settings, SHAPE).train
    batch = next(batches.epoch(0))
    assert batches.targets(0, 0) == 12 * 8 < batch.targets.numel()
    network = Network(SHAPE, Layout(), TorchStrategy(), 5)
    logits = network.stages[0](batch.tokens, batch.positions)
    loss = functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())  # skips -100
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {name: weight.grad for name, weight in network.parameters.items()}
    norm = math.sqrt(sum(float((one**2).sum()) for one in gradients.values() if one is not None))
    assert norm > 0.2
    near = 1e-4 if precision == "fp32" else 1e-2
    assert reading.values(settings.out or tmp_path, "train_loss") == [
        (1, pytest.approx(loss.item(), rel=near))]
    assert reading.values(settings.out or tmp_path, "gradient_norm") == [
        (1, pytest.approx(norm, rel=near))]
    file = reading.checkpoints(tmp_path / "run")[-1]
    stored = checkpoint.load(file)["parts"]["network"]
    factor = min(1.0, clip / norm) if clip else 1.0
    for name, weight in network.parameters.items():
        gradient = gradients[name]
        assert gradient is not None
        gradient *= factor
        decay = 0.1 if weight.ndim > 1 else 0.0
        before = weight.detach() * (1 - 0.5 * decay)
        moved = torch.from_numpy(stored[name].read()) - before
        expected = -0.5 * gradient / (gradient.abs() + 1)
        assert (moved - expected).norm() <= 3 * near * expected.norm() + 1e-6, name


def test_the_schedule_spans_a_training_that_ends_early() -> None:
    settings = TrainSettings(epochs=3, max_steps=12)
    found = method.course(settings, 10)
    assert (found.planned, found.last_step) == (30, 12)
    assert method.course(TrainSettings(steps=7), 10).planned == 7


def test_the_utilization_is_that_of_all_devices() -> None:
    network: Any = SimpleNamespace(shape=SHAPE, lora=None, strategy=SimpleNamespace(size=4))
    data: Any = SimpleNamespace(train=SimpleNamespace(length=16))
    [each] = measures.words(TrainSettings(peak_tflops=2.0), network, data).by_speed.values()
    assert each == pytest.approx(method.operations_per_token(SHAPE, 16) / (4 * 2e12))
    assert measures.words(TrainSettings(), network, data).by_speed == {}


@pytest.mark.parametrize(("layout", "rank", "part", "replicas"), [
    (Layout(), 5, (5, 8), 8), (Layout(context=2), 5, (2, 4), 8),
    (Layout(tensor=2), 5, (2, 4), 4), (Layout(tensor=2, pipeline=2, micro_batches=2), 5, (0, 2), 2),
])
def test_a_rank_of_a_mesh_has_its_part_of_the_batch(
    layout: Layout, rank: int, part: tuple[int, int], replicas: int, start: Start
) -> None:
    with start(layout, 8, rank) as strategy:
        network = Network(SHAPE, layout, strategy, 3)
        assert (network.part, network.replicas) == (part, replicas)
        batch = global_batch(0, False)
        own = network._own_tokens(batch)
        half = batch.tokens[:, 16:] if layout.context == 2 else batch.tokens  # rank 5 is odd
        assert torch.equal(own.tokens, half)
        assert network._share([torch.tensor(6.0)]).item() == 6.0 / layout.tensor


DIVIDED = {
    "tp": (Layout(tensor=2), 2), "fsdp": (Layout(data_parallel="fsdp"), 4),
    "fsdp-tp": (Layout(data_parallel="fsdp", tensor=2), 4),
    "pipeline": (Layout(pipeline=2, micro_batches=2), 2),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_a_rank_has_its_pieces_of_the_initial_weights(name: str, start: Start) -> None:
    layout, size = DIVIDED[name]
    with start(layout, size) as strategy:
        network = Network(SHAPE, layout, strategy, 3)
        for key, weight in network.parameters.items():
            at = network.places[key]
            whole = initial_values(key, SHAPE, at.whole, 3)
            pairs = zip(at.offsets, at.shape, strict=True)
            piece = whole[tuple(slice(low, low + count) for low, count in pairs)]
            assert torch.equal(sharded.local(weight), piece), key
        moved = [key for key, at in network.places.items() if any(at.offsets)]
        assert bool(moved) == (name != "pipeline")
        assert ("blocks.0.attention.query.weight" in network.parameters) == (name != "pipeline")


@pytest.mark.parametrize("name", DIVIDED)
def test_a_rank_holds_the_estimated_bytes_of_weights(name: str, start: Start) -> None:
    layout, size = DIVIDED[name]
    shape = dataclasses.replace(SHAPE, vocabulary=256)  # divisible, so that all pieces are equal
    with start(layout, size) as strategy:
        network = Network(shape, layout, strategy, 3)
        own = sum(sharded.local(weight).numel() for weight in network.parameters.values())
    found = memory.of_ranks(Job(shape, layout, size, 32, 8))[-1]
    assert (found.weights, found.gradients, found.optimizer) == (4 * own, 4 * own, 8 * own)


def test_data_ranks_divide_the_states_as_in_the_paper() -> None:
    """Rajbhandari et al., section 5: ZeRO-1 divides the moments, ZeRO-3 everything."""
    shape = SHAPES["gpt2-124m"]
    found = {name: memory.of_ranks(Job(shape, Layout(data_parallel=name), 8, 128, 8))[0].states
             for name in ("ddp", "zero1", "fsdp")}
    assert found["ddp"] == 16 * shape.parameters
    assert found["fsdp"] == pytest.approx(16 * shape.parameters / 8, rel=0.01)
    # The table of tokens is not divided, and so is the largest part.
    table = shape.vocabulary * shape.width
    assert found["zero1"] == 8 * shape.parameters + 8 * table


def test_a_layout_with_few_tokens_needs_most_in_the_update() -> None:
    """With one token, activations are negligible: the peak is about 16 bytes per parameter."""
    [found] = memory.of_ranks(Job(SHAPES["gpt2-124m"], Layout(), 1, 1, 1))
    assert found.moments["in the update"] == found.states == 16 * SHAPES["gpt2-124m"].parameters
    assert found.states <= found.peak < 1.01 * found.states


def test_tensor_ranks_add_the_gradients_of_norms(start: Start) -> None:
    layout = Layout(tensor=2)
    with start(layout, 2) as strategy:
        network = Network(SHAPE, layout, strategy, 3)
        weight = network.parameters["norm.weight"]
        assert isinstance(weight, DTensor)
        for parameter in network.parameters.values():
            parameter.grad = torch.ones_like(parameter)
        weight.grad = DTensor.from_local(torch.ones(32), weight.device_mesh, [Partial()])
        network._average()
        assert isinstance(weight.grad, DTensor)
        assert weight.grad.placements == weight.placements


def test_replicas_with_divided_matrices_average_their_gradients(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tensor=2)
    monkeypatch.setattr(dist, "all_reduce", as_if_equal)
    with start(layout, 4) as strategy:
        network = Network(SHAPE, layout, strategy, 3)
        for parameter in network.parameters.values():
            parameter.grad = torch.ones_like(parameter)
        network._average()
        for name, parameter in network.parameters.items():
            assert parameter.grad is not None
            assert (sharded.local(parameter.grad) == 1).all(), name


def test_tied_weights_of_a_pipeline_get_the_gradients_of_both_ends(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(pipeline=2, micro_batches=2)
    monkeypatch.setattr(dist, "all_reduce", as_if_equal)
    with start(layout, 4) as strategy:
        network = Network(SHAPES["gpt2-test"], layout, strategy, 3)
        for parameter in network.parameters.values():
            parameter.grad = torch.ones_like(parameter)
        network._average()
        for name, parameter in network.parameters.items():
            assert parameter.grad is not None
            assert (parameter.grad == (2 if name == "embedding.weight" else 1)).all(), name


def test_the_passes_of_the_first_step_are_made_twice_to_order_the_buckets(start: Start) -> None:
    """A training makes the passes of its first step twice, to order the buckets of gradients.

    Therefore a resumed training has the same buckets as an uninterrupted training.
    """
    layout = Layout(micro_batches=2)
    with start(layout, 2) as strategy:
        network, passes = Network(SHAPE, layout, strategy, 3), []
        network.stages[0].register_forward_hook(lambda *_: passes.append(1))
        batch = global_batch(0, False).parts(2)[0]
        first = network.gradients(batch, 1.0)
        gradients = [network.parameters["norm.weight"].grad]
        assert len(passes) == 4
        for parameter in network.parameters.values():
            parameter.grad = None
        assert network.gradients(batch, 1.0) == first
        assert len(passes) == 6
        gradients.append(network.parameters["norm.weight"].grad)
        one, other = (gradient for gradient in gradients if gradient is not None)
        assert torch.equal(one, other)  # the first gradients were dropped


def test_bytes_are_counted_by_the_size_of_the_group(start: Start) -> None:
    with start(Layout(), 4), Footprint() as counts:
        dist.all_reduce(torch.ones(6))
        assert counts.sent == 1.5 * 6 * 4
        dist.all_reduce(torch.ones(6, dtype=torch.bfloat16))
        assert counts.sent == 1.5 * 6 * (4 + 2)
