"""Compare the memory that `estimate` computes with published numbers and with counted bytes."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from language_model import measure, memory, states
from language_model.__main__ import main
from language_model.footprint import RING
from language_model.job import Job
from language_model.layout import Layout
from language_model.lora import Lora
from language_model.shapes import SHAPES
from trainkit.exits import ArgumentError
from trainkit.testing.program import LIMIT, VARIABLES, launcher
from trainkit.testing.refusals import refused
from trainkit.torch.strategy import TorchStrategy

SMALL = "--model gpt2-5m --sequence 128 --batch-size 8 --precision fp32"
TWO = {
    "ddp": "", "zero1": "--data-parallel zero1", "zero2": "--data-parallel zero2",
    "fsdp": "--data-parallel fsdp", "tp": "--tensor-parallel 2", "cp": "--context-parallel 2",
    "1f1b": "--pipeline-parallel 2 --micro-batches 4",
    "gpipe": "--pipeline-parallel 2 --micro-batches 4 --pipeline-schedule gpipe",
    "fsdp-bf16-full": "--data-parallel fsdp --precision bf16 --recompute full",
    "tp-large-vocabulary": "--tensor-parallel 2 --vocabulary 4096",
    "lora-fsdp": "--data-parallel fsdp --lora-rank 8",
    "lora-tp": "--tensor-parallel 2 --lora-rank 8",
}
FOUR = {
    "fsdp-tp": "--data-parallel fsdp --tensor-parallel 2",
    "tp-pp": "--tensor-parallel 2 --pipeline-parallel 2 --micro-batches 2",
    "fsdp-pp": "--data-parallel fsdp --pipeline-parallel 2 --micro-batches 2",
    "interleaved": "--model gpt2-test --sequence 64 --pipeline-parallel 2 --micro-batches 4 "
                   "--pipeline-schedule interleaved",
}
ONE = {
    "fp32": Layout(), "bf16": Layout(precision="bf16"), "full": Layout(recompute="full"),
    "selective": Layout(recompute="selective"), "micro-batches": Layout(micro_batches=4),
    "fp8": Layout(precision="fp8"),
}


def test_llama_2_7b_needs_the_published_memory() -> None:
    """The estimates for Llama 2 7B are within 4 % of 112 GB for a training, and 28 GB of weights.

    The published numbers are for 7 billion parameters; Llama 2 7B has 6.74 billion.
    """
    [found] = memory.of_ranks(Job(SHAPES["llama2-7b"], Layout(), 1, 4096, 1))
    assert found.states == 16 * 6_738_415_616
    assert found.states / 1e9 == pytest.approx(112, rel=0.04)
    assert found.weights / 1e9 == pytest.approx(28, rel=0.04)


def test_an_adaptation_needs_no_gradients_of_the_weights() -> None:
    """A frozen weight takes 4 bytes, and a trained weight of the adaptation takes 16 bytes."""
    lora = Lora(16, 16)
    [found] = memory.of_ranks(Job(SHAPES["llama3-8b"], Layout(), 1, 4096, 1, lora=lora))
    added = lora.parameters(SHAPES["llama3-8b"])
    assert found.states == 4 * 8_030_261_248 + 16 * added
    assert found.gradients == 4 * added


@pytest.mark.parametrize("lora", [None, Lora(8, 8)], ids=["whole", "lora"])
@pytest.mark.parametrize("shape", ["gpt2-5m", "llama-5m"])
@pytest.mark.parametrize("name", ONE)
def test_one_process_needs_the_estimated_memory(
    name: str, shape: str, lora: Lora | None
) -> None:
    job = Job(SHAPES[shape], ONE[name], 1, 128, 8, lora=lora)
    found = measure.step_facts(job, TorchStrategy())
    [expected] = memory.of_ranks(job)
    assert expected.states == pytest.approx(found["states"][0], rel=0.001)
    assert expected.peak == pytest.approx(found["peak"][0], rel=0.1)


def test_a_large_vocabulary_needs_the_estimated_memory() -> None:
    job = Job(replace(SHAPES["gpt2-test"], vocabulary=8192), Layout(), 1, 64, 16)
    found = measure.step_facts(job, TorchStrategy())
    [expected] = memory.of_ranks(job)
    assert expected.moment == "in the loss"
    assert expected.peak == pytest.approx(found["peak"][0], rel=0.1)


def test_a_rank_sends_what_a_ring_sends() -> None:
    assert RING["allreduce_"](4) == RING["all_reduce"](4) == 1.5
    assert RING["_allgather_base_"](4) == RING["reduce_scatter_tensor"](4) == 0.75
    assert RING["all_gather_into_tensor"](4) == RING["_reduce_scatter_base_"](4) == 3


def measured(ranks: int, words: str) -> dict[str, Any]:
    done = subprocess.run(
        [*launcher("mesh", ranks), "language_model", "estimate", *SMALL.split(), "--strategy",
         "mesh", "--device", "cpu", "--measure", "--json", *words.split()],
        capture_output=True, text=True, timeout=LIMIT, check=False,
        env=os.environ | VARIABLES,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "name"), [
    *((2, name) for name in TWO), (4, "fsdp-pp"), (4, "interleaved"),
    *(pytest.param(4, name, marks=pytest.mark.long) for name in ("fsdp-tp", "tp-pp")),
])
def test_ranks_need_the_estimated_memory(ranks: int, name: str) -> None:
    found = measured(ranks, (TWO if ranks == 2 else FOUR)[name])
    stages = found["memory"]
    each = ranks // len(stages)
    for number, expected in enumerate(stages):
        own = slice(number * each, (number + 1) * each)
        assert expected["peak"] == pytest.approx(max(found["measured"]["peak"][own]), rel=0.1)
        assert expected["states"] == \
            pytest.approx(max(found["measured"]["states"][own]), rel=0.001)


@pytest.mark.slow
def test_data_parallelism_sends_what_a_ring_sends() -> None:
    whole = 4 * SHAPES["gpt2-5m"].parameters
    for words, share in (("", 1.0), ("--data-parallel fsdp", 1.5), ("--data-parallel zero1", 1.5)):
        found = measured(2, words)
        assert found["measured"]["sent"] == pytest.approx([share * whole] * 2, rel=0.01)


def test_a_layout_that_cannot_fit_is_refused() -> None:
    with refused(ArgumentError, "memory-insufficient", "2.000 GiB", "1.000 GiB", "fsdp"):
        states.refuse(2 << 30, 1 << 30, "the memory")
    states.refuse(1 << 30, 1 << 30, "the memory")
    huge = replace(SHAPES["gpt2-test"], vocabulary=1 << 40)
    with refused(ArgumentError, "memory-insufficient", "for each rank"):
        states.check(Job(huge, Layout(), 1, 64, 1), TorchStrategy())
    states.check(Job(SHAPES["gpt2-test"], Layout(), 1, 64, 1 << 30), TorchStrategy())


def test_the_command_fails_if_the_layout_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["estimate", "--model", "llama2-7b", "--batch-size", "1", "--device-memory", "80"]
    assert main(words) == 2
    assert "memory-insufficient" in capsys.readouterr().err
    assert main([*words[:-1], "1000"]) == 0


def test_the_time_is_the_operations_by_the_rate(capsys: pytest.CaptureFixture[str]) -> None:
    words = f"estimate {SMALL} --json --peak-tflops 1 --utilization 0.5 --steps 10 --ranks 2"
    assert main([*words.split(), "--strategy", "mesh"]) == 0
    found = json.loads(capsys.readouterr().out)
    # 6 products per weight outside of the table of positions, 12 per width, layer and token
    each = 6 * (SHAPES["gpt2-5m"].parameters - 512 * 256) + 12 * 6 * 256 * 128
    assert found["seconds_per_step"] == pytest.approx(each * 8 * 128 / (2 * 0.5e12))
    assert found["seconds"] == pytest.approx(10 * found["seconds_per_step"])


def test_pipelines_keep_the_published_number_of_micro_batches() -> None:
    """GPipe keeps all micro-batches at once, and 1F1B at most as many as there are stages.

    Narayanan et al., arXiv:2104.04473, section 2.2.
    """
    gpipe, plain = (Layout(pipeline=4, micro_batches=8, schedule=name) for name in
                    ("gpipe", "1f1b"))
    assert [memory.in_flight(gpipe, rank) for rank in range(4)] == [[8]] * 4
    assert [memory.in_flight(plain, rank) for rank in range(4)] == [[4], [3], [2], [1]]
    several = Layout(pipeline=2, micro_batches=4, schedule="interleaved")
    assert [memory.in_flight(several, rank) for rank in range(2)] == [[3, 2], [2, 1]]


ESTIMATES = json.loads(Path(__file__).parents[1].joinpath("estimates.json").read_text())


@pytest.mark.parametrize("recipe", ESTIMATES)
def test_the_estimates_of_recipes_are_up_to_date(
    recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`estimate` prints what `estimates.json` contains, which `make generate-apps` writes."""
    known = ESTIMATES[recipe]
    assert main(["estimate", *known["arguments"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == known["estimate"]
