"""Tests of the app contract with each strategy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras
from squares import image, squares

from keras_resnet import evaluation, traffic
from trainkit.testing import App, Contract, Program, reading
from trainkit.testing.program import launcher
from trainkit.testing.refusals import assert_reported

TRAINING = """
    --model Small --size 32 --epochs 3 --batch-size 5 --momentum 0.9 --flip --log-every 4
    --checkpoint-every 4 --threads 1 --decoders 1 --device cpu
"""
"""Options of a training on 27 images: 6 steps in an epoch, the last of which has two images."""
EQUAL = "--eval-every 0 --log-every 1 --batch-size 6"

APP = App(
    folder=Path(__file__).parents[1], training=TRAINING, steps=18,
    diverging="--learning-rate 1e38 --batch-size 2 --checkpoint-every 100 --eval-every 0",
    alone=f"{EQUAL} --accumulation 2", shared=EQUAL,
    further={"mirrored": "--replicas 2", "parameter-server": "--synchronous"},
    of_each_rank=("statistics",), not_of_steps=(traffic.SENT, "staleness"),
)


class TestContract(Contract):
    app = APP

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Create images with a square on the left or on the right, and return their folder."""
        return squares(tmp_path_factory.mktemp("data") / "squares")

    @pytest.mark.slow
    def test_evaluate_gives_the_scores_of_the_training(
        self, program: Program, whole: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        words = ["--data", program.data, "--out", whole, "--device", "cpu"]
        assert APP.main("evaluate", *words, "--json") == 0
        found = json.loads(capfd.readouterr().out.splitlines()[-1])
        scores = reading.result(whole)["evaluation"]
        assert (found["step"], found["images"]) == (APP.steps, 12)
        assert found["loss"] == pytest.approx(scores["loss"], rel=1e-5)
        assert found["accuracy"] == scores["accuracy"]

    @pytest.mark.slow
    def test_a_training_that_stopped_in_an_evaluation_resumes_with_it(
        self, program: Program, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The resumed run repeats the evaluation; its accuracies and weights equal the whole run's.

        The first run stops after the last step of its first epoch, before the evaluation has ended.
        """
        out = tmp_path / "run"
        with monkeypatch.context() as patched:
            patched.setattr(evaluation, "evaluate", lambda *_: None)  # as after a signal
            assert program.main(out) == 75
        assert reading.values(out, "eval_accuracy") == []
        program.train(out, "--resume", "auto")
        assert reading.values(out, "eval_accuracy") == reading.values(whole, "eval_accuracy")
        one, other = self.weights(whole), self.weights(out)
        assert all(np.array_equal(one[name], other[name]) for name in one)

    @pytest.mark.slow
    def test_one_asynchronous_worker_trains_as_one_process_does(
        self, program: Program, whole: Path, tmp_path: Path
    ) -> None:
        """Losses and accuracies are equal, because no other worker changes the weights."""
        out, words = tmp_path / "run", launcher("parameter-server", 1)
        program.train(out, "--strategy", "parameter-server", launcher=words)
        losses, expected = (reading.values(run, "train_loss") for run in (out, whole))
        assert losses == [(step, pytest.approx(one, rel=1e-5)) for step, one in expected]
        assert {value for _, value in reading.values(out, "staleness")} == {0}
        scores, others = (reading.values(run, "eval_accuracy") for run in (out, whole))
        assert scores == others

    @pytest.mark.slow
    def test_predict_names_the_most_likely_classes(
        self, whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        picture = tmp_path / "picture.png"
        picture.write_bytes(image(1000)[0])
        words = ["--out", whole, "--device", "cpu", "--json"]
        assert APP.main("predict", "--data", picture, *words) == 0
        found = json.loads(capfd.readouterr().out.splitlines()[-1])
        assert found["file"] == str(picture)
        assert found["classes"].keys() == {"class 0", "class 1"}
        assert sum(found["classes"].values()) == pytest.approx(1, abs=1e-5)
        picture.write_bytes(b"text")
        assert APP.main("predict", "--data", picture, *words) == 3
        assert_reported(capfd.readouterr().err, "image-undecodable", picture)
        assert APP.main("predict", "--data", tmp_path / "none.png", *words) == 3
        assert_reported(capfd.readouterr().err, "data-missing", "none.png")

    @pytest.mark.slow
    def test_data_with_other_classes_are_refused(
        self, whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        other = squares(tmp_path / "other")
        about = json.loads((other / "dataset.json").read_text())
        (other / "dataset.json").write_text(json.dumps(about | {"classes": ["left", "right"]}))
        assert APP.main("evaluate", "--data", other, "--out", whole, "--device", "cpu") == 3
        assert_reported(capfd.readouterr().err, "data-mismatch", "left, right")

    @pytest.mark.slow
    def test_a_training_in_bf16_keeps_fp32_weights_and_logs_another_loss(
        self, program: Program, whole: Path, tmp_path: Path
    ) -> None:
        program.train(tmp_path / "run", "--precision", "bf16")
        losses, exact = (reading.values(run, "train_loss") for run in (tmp_path / "run", whole))
        assert losses != exact
        assert losses[0][1] == pytest.approx(exact[0][1], rel=0.05)
        dtypes = {array.dtype.name for array in self.weights(tmp_path / "run").values()}
        assert dtypes == {"float32"}

    @pytest.mark.slow
    @pytest.mark.usefixtures("own_precision")
    def test_evaluate_computes_in_the_precision_of_the_training(
        self, program: Program, whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """`evaluate` uses the precision in which the run was trained, bf16 or fp32.

        Both runs are evaluated in one process, one after the other.
        """
        other = tmp_path / "run"
        program.train(other, "--precision", "bf16")
        for run, policy in ((other, "mixed_bfloat16"), (whole, "float32")):
            words = ["--data", program.data, "--out", run, "--device", "cpu", "--json"]
            assert APP.main("evaluate", *words) == 0
            assert keras.mixed_precision.global_policy().name == policy
            found = json.loads(capfd.readouterr().out.splitlines()[-1])
            scores = reading.result(run)["evaluation"]
            assert found["loss"] == pytest.approx(scores["loss"], rel=1e-5)
