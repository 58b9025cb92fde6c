"""Tests of the app contract, also for trainings whose networks grow in the middle of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from futuregan import __main__ as cli
from futuregan.train import Training
from trainkit import checkpoint
from trainkit.testing import App, Contract, Program, reading
from trainkit.testing.program import launcher
from trainkit.testing.refusals import assert_reported

LONG = pytest.mark.long
NETWORK = "--past 3 --future 3 --size 16 --first-size 8 --width 4 --precision fp32 --device cpu"
TRAINING = f"""
    {NETWORK} --stride 4 --transition-epochs 1 --stabilization-epochs 1 --epochs 4
    --batch-size-per-rank 4:3,16:2 --stddev-group 2 --log-every 5 --checkpoint-every 4 --threads 1
"""
"""Options of a training of 18 steps with 9 clips.

They are 3 steps at 8 pixels, 5 steps that fade in 16 pixels, and 10 steps at 16 pixels.
"""
FEW = "--eval-every 0 --stddev-group 2 --log-every 1 --base-lr 1e-4"
"""Options of trainings on different numbers of ranks, whose metrics are compared.

The learning rate is small, because Adam amplifies rounding errors at a larger rate.
"""


class TestContract(Contract):
    app = App(
        folder=Path(__file__).parents[1], training=TRAINING, steps=18, diverging="--base-lr 1e30",
        alone=f"{FEW} --batch-size-per-rank 4 --micro-batch 2",
        shared=f"{FEW} --batch-size-per-rank 2",
    )

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls, sequences: Path) -> Path:
        return sequences

    @pytest.mark.slow
    def test_resolution_fade_and_batch_follow_the_growth(self, whole: Path) -> None:
        assert reading.values(whole, "resolution") == [
            (3, 8), (5, 16), (8, 16), (10, 16), (13, 16), (15, 16), (18, 16)]
        fades = [value for _, value in reading.values(whole, "fade_in")]
        assert fades == [1, 0.4, 1, 1, 1, 1, 1]
        rates = [value for _, value in reading.values(whole, "learning_rate")]
        assert rates == pytest.approx([0.001] + [0.00087] * 6)
        assert reading.result(whole)["epochs"] == 4

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "begins", [3, *(pytest.param(step, marks=LONG) for step in (2, 5, 8))]
    )
    def test_it_goes_on_to_the_same_bits_from_before_at_and_in_a_growth(
        self, program: Program, whole: Path, tmp_path: Path, begins: int
    ) -> None:
        """A run that resumes after step `begins` has the same bits as the uninterrupted run.

        Step 3 is the last step at 8 pixels; step 8 is the last step that fades in 16 pixels.
        """
        out = tmp_path / "run"
        program.train(tmp_path / "begun", "--checkpoint-every", str(begins), "--keep", "20")
        begun = {file.name: file for file in reading.checkpoints(tmp_path / "begun")}
        program.train(out, "--resume", begun[f"step-{begins:08d}.npz"])
        assert reading.same(reading.parts(out), reading.parts(whole))

    @pytest.mark.slow
    def test_one_clip_on_each_of_two_ranks_trains_as_two_do_on_one(
        self, strategy: str, program: Program, tmp_path: Path
    ) -> None:
        """The minibatch standard deviation includes the other rank's clip, also after a growth.

        The test compares losses instead of weights, because Adam amplifies rounding errors. The
        training itself checks that both ranks have the same weights.
        """
        few = FEW.split()
        program.train(tmp_path / "alone", *few, "--batch-size-per-rank", "2", "--max-steps", "12")
        program.train(
            tmp_path / "shared", *few, "--batch-size-per-rank", "1", "--max-steps", "12",
            "--strategy", strategy, launcher=launcher(strategy),
        )
        assert (12, 16) in reading.values(tmp_path / "shared", "resolution")
        self.tells_the_same(tmp_path / "shared", tmp_path / "alone", rel=1e-4)
        one, other = self.memory(tmp_path / "shared")
        assert one == pytest.approx(other, rel=0.2)  # no rank has more of the work

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.parametrize("loss", ["lsgan", "gan"])
    def test_other_losses_train_too(self, program: Program, tmp_path: Path, loss: str) -> None:
        program.train(tmp_path / "run", "--loss", loss, "--max-steps", "6")
        assert {value for _, value in reading.values(tmp_path / "run", "gradient_penalty")} == {0}

    @pytest.mark.slow
    @pytest.mark.parametrize("half", ["bf16", pytest.param("fp16", marks=LONG)])
    def test_half_precision_begins_as_fp32_does(
        self, program: Program, tmp_path: Path, half: str
    ) -> None:
        """In half precision, losses and penalty of the first step are close to those in fp32.

        The gradient penalty is computed in fp32, but the generated clips have half precision.
        """
        for precision in ("fp32", half):
            program.train(tmp_path / precision, "--precision", precision, "--max-steps", "1",
                          "--log-every", "1")
        for key, nearly in (("gradient_penalty", 0.02), ("critic_loss", 0.05),
                            ("generator_loss", 0.05)):
            ((_, right),) = reading.values(tmp_path / "fp32", key)
            ((_, found),) = reading.values(tmp_path / half, key)
            assert found != right
            assert found == pytest.approx(right, abs=nearly), key

    @pytest.mark.slow
    @pytest.mark.long
    def test_fp16_goes_on_over_a_growth_to_the_same_bits_and_skips_steps_out_of_range(
        self, program: Program, tmp_path: Path
    ) -> None:
        """An update whose gradient overflows is skipped; a resumed run has the same bits.

        The checkpoint contains the loss scale, which falls when a gradient overflows in fp16.
        """
        words = ["--precision", "fp16", "--reconstruction", "1e5", "--max-steps", "12"]
        program.train(tmp_path / "whole", *words, "--checkpoint-every", "1", "--keep", "20")
        files = reading.checkpoints(tmp_path / "whole")
        states = [checkpoint.load(file)["parts"] for file in files]
        first, *scales = (state["generator_scaler"]["scale"] for state in states)
        assert min(scales) < first
        assert scales[-1] >= 1
        skipped = next(at for at, scale in enumerate(scales) if scale < first)
        before, after = states[skipped : skipped + 2]
        assert reading.same(before["generator"], after["generator"])
        assert not reading.same(before["discriminator"], after["discriminator"])
        begun = files[4]  # after step 5, of the 8 of which 3 to 8 fade in larger frames
        program.train(tmp_path / "rest", *words, "--resume", begun)
        assert reading.same(reading.parts(tmp_path / "rest"), reading.parts(tmp_path / "whole"))

    @pytest.mark.slow
    def test_a_divergence_keeps_a_checkpoint_that_can_be_evaluated(
        self, program: Program, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """The training ends with an error, and the checkpoint of step 7 can be evaluated.

        Step 8 makes the generator's weights infinite, although the loss of step 8 is finite.
        """
        update = Training.update

        def too_far(self: Training, name: str, rate: float) -> None:
            last = name == "generator" and self.session.progress.steps_done == 7
            update(self, name, float("inf") if last else rate)

        monkeypatch.setattr(Training, "update", too_far)
        out = tmp_path / "run"
        assert program.main(out, "--checkpoint-every", "1") == 4
        assert_reported(capsys.readouterr().err, "state-not-finite", "eval_mse ", "step 8,")
        newest = reading.checkpoints(out)[-1]
        assert newest.name == "step-00000007.npz"
        assert cli.main(["evaluate", "--data", str(data), "--out", str(out), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["scores"]["prediction"]["psnr"]["mean"]
        assert math.isfinite(found)
