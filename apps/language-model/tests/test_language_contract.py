"""The app contract, tested with trainings of a small network on a small text."""

from __future__ import annotations

from pathlib import Path

import packed_text
import pytest

from trainkit.testing import App, Contract, reading

TRAINING = """
    --model llama-test --sequence 32 --batch-size 16 --learning-rate 1e-2
    --warmup-steps 4 --steps 28 --precision fp32 --device cpu --log-every 5 --checkpoint-every 3
    --peak-tflops 0.1 --yardsticks
"""
"""Options of a training of 28 steps, which logs every 5 steps and has a checkpoint every 3."""
SOME = "--steps 8 --warmup-steps 0 --eval-every 0 --log-every 1"


class TestContract(Contract):
    app = App(
        folder=Path(__file__).parents[1], training=TRAINING, steps=28,
        diverging="--learning-rate 1e30 --warmup-steps 0", alone=f"{SOME} --micro-batches 2",
        shared=SOME, files=("tokenizer.json",),
    )

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return packed_text.small(tmp_path_factory.mktemp("data") / "small")

    @pytest.mark.slow
    def test_a_run_learns(self, whole: Path) -> None:
        losses = [value for _, value in reading.values(whole, "train_loss")]
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] < losses[0] - 1

    @pytest.mark.slow
    def test_utilization_is_the_throughput_times_the_operations_of_a_token(
        self, whole: Path
    ) -> None:
        speeds = dict(reading.values(whole, "throughput"))
        # 6 products per weight outside the table of tokens, and 12 per width, layer and position
        each = 6 * (65888 - 257 * 32) + 12 * 4 * 32 * 32
        for step, share in reading.values(whole, "model_flops_utilization"):
            assert share == pytest.approx(speeds[step] * each / 0.1e12)
