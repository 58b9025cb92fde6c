"""The toy obeys the app contract, and learns."""

from pathlib import Path

import pytest

from trainkit.testing import App, Contract, reading
from trainkit.testing.refusals import assert_reported


class TestContract(Contract):
    app = App(
        folder=Path(__file__).parents[1],
        training="--steps 400 --checkpoint-every 7 --log-every 5 --device cpu", steps=400,
        diverging="--base-lr 1e38",
        alone="--steps 40 --accumulation 2", shared="--steps 40 --batch-size-per-rank 16",
    )

    @pytest.mark.slow
    def test_it_learns(self, whole: Path) -> None:
        ((step, accuracy),) = reading.values(whole, "eval_accuracy")
        assert step == 400
        assert accuracy > 0.9

    def test_parts_of_a_batch_are_equal(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.app.main("train", "--out", "run", "--accumulation", "3") == 2
        assert_reported(capsys.readouterr().err, "arguments-conflict", " 3 ")
