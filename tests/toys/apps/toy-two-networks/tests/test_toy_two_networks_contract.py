"""The toy obeys the app contract, and learns."""

from pathlib import Path

import pytest

from trainkit.testing import App, Contract, Program, reading

FEW = "--steps 6 --grow-at 3 --log-every 2 --base-lr 1e-4"
"""Options of a short training with a small rate, so that rounding errors remain small."""


class TestContract(Contract):
    app = App(
        folder=Path(__file__).parents[1],
        training="--steps 400 --grow-at 100 --batch-size-per-rank 16 --checkpoint-every 7 "
                 "--log-every 5 --device cpu",
        steps=400, diverging="--base-lr 1e30",
        alone=FEW, shared=f"{FEW} --batch-size-per-rank 8",
    )

    @pytest.mark.slow
    @pytest.mark.parametrize(("grows", "begins", "steps"), [(5, 4, 6), (4, 4, 6), (3, 4, 6)])
    def test_it_goes_on_to_the_same_bits_from_before_and_after_the_growth(
        self, program: Program, tmp_path: Path, grows: int, begins: int, steps: int
    ) -> None:
        """Weights are bitwise equal with and without a resumption, before or after the growth.

        After the growth, the generator has one more block, and its optimizer has more state.
        """
        words = ["--steps", str(steps), "--grow-at", str(grows), "--checkpoint-every", str(begins)]
        whole, out = tmp_path / "whole", tmp_path / "run"
        assert program.main(whole, *words) == 0
        first, last = reading.checkpoints(whole)
        assert (first.name, last.name) == (f"step-{begins:08d}.npz", f"step-{steps:08d}.npz")
        assert program.main(out, *words, "--resume", str(first)) == 0
        assert reading.same(reading.parts(out), reading.parts(whole))
        assert reading.result(out)["blocks"] == 2

    @pytest.mark.slow
    def test_it_learns(self, program: Program, tmp_path: Path) -> None:
        program.train(
            tmp_path / "run", "--steps", "1000", "--grow-at", "500", "--batch-size-per-rank", "128",
            "--checkpoint-every", "1000",
        )
        distances = [value for _, value in reading.values(tmp_path / "run", "eval_distance")]
        assert len(distances) == 10
        assert distances[-1] < 0.3 < distances[0]
