"""The app contract, tested with trainings of a small network on small images, and their output."""

import json
from pathlib import Path

import pytest

from trainkit.testing import App, Contract, Program, reading

TRAINING = """
    --model resnet20 --epochs 4 --batch-size-per-rank 16 --base-lr 0.1 --warmup-epochs 1
    --momentum 0.9 --precision fp32 --device cpu --log-every 5 --checkpoint-every 3 --threads 1
"""
"""Options of a training of 28 steps, in which logging and checkpoints occur at different steps."""
SOME = "--epochs 2 --warmup-epochs 0 --eval-every 0 --log-every 1"


class TestContract(Contract):
    app = App(
        folder=Path(__file__).parents[1], training=TRAINING, steps=28,
        diverging="--base-lr 1e30 --warmup-epochs 0",
        alone=f"{SOME} --accumulation 2 --batch-size-per-rank 32", shared=SOME,
        of_each_rank=("running", "tracked"),  # batch normalization's averages
    )

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls, tiny: Path) -> Path:
        return tiny

    @pytest.mark.slow
    def test_a_run_learns_and_its_environment_is_told(self, whole: Path) -> None:
        result = reading.result(whole)
        assert result["epochs"] == 4
        assert result["evaluation"]["top1"] > 0.9
        assert result["evaluation"]["top5"] == 1.0
        environment = json.loads((whole / "environment.json").read_text())
        assert environment["threads"]["intra_op"] == 1
        assert environment["packages"]["nvidia-dali-cuda120"]

    @pytest.mark.slow
    def test_epochs_evaluations_and_rates_come_in_order(self, whole: Path) -> None:
        keys = [line["key"] for line in reading.lines(whole)]
        assert keys[3:6] == ["train_samples", "eval_samples", "epoch_start"]
        assert keys.count("epoch_start") == keys.count("epoch_stop") == 4
        assert [step for step, _ in reading.values(whole, "eval_accuracy")] == [7, 14, 21, 28]
        # every 5 steps, and the rest of each epoch of 7
        reported = [step for step, _ in reading.values(whole, "train_loss")]
        assert reported == [5, 7, 10, 14, 15, 20, 21, 25, 28]
        rates = [rate for _, rate in reading.values(whole, "learning_rate")]
        assert max(rates) == pytest.approx(0.1)
        assert rates[1:] == sorted(rates[1:], reverse=True)
        assert all(value > 0 for _, value in reading.values(whole, "throughput"))
        assert all(0 <= value < 1 for _, value in reading.values(whole, "data_wait_fraction"))

    @pytest.mark.slow
    def test_more_threads_that_decode_change_nothing(
        self, program: Program, whole: Path, tmp_path: Path
    ) -> None:
        program.train(tmp_path / "run", "--threads", "2")
        self.same(tmp_path / "run", whole)
