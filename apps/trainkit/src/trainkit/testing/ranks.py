"""Tests of ranks: two ranks give the same result as one process, or are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainkit import metrics
from trainkit.testing import reading
from trainkit.testing.fixtures import Fixtures
from trainkit.testing.program import LIMIT, Program, launcher, until
from trainkit.testing.refusals import assert_reported

LOST = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
"""The variables that torchrun sets for rank 0 of 2; the test starts no rank 1, which is lost."""


class RankContract(Fixtures):
    """Tests of trainings on two ranks, with each installed strategy of the app."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize the tests of ranks with the strategies of the app."""
        if "strategy" in metafunc.fixturenames:
            metafunc.parametrize("strategy", self.app.strategies)

    @pytest.fixture(scope="class")
    @classmethod
    def alone(cls, program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return the folder of a run of one process, which trains with two micro-batches per batch.

        Tests compare runs of two ranks with this run, and must not change it.
        """
        out = tmp_path_factory.mktemp("alone") / "run"
        program.train(out, *cls.app.alone.split())
        return out

    @pytest.mark.slow
    def test_two_ranks_train_as_one_does_with_two_parts(
        self, strategy: str, program: Program, alone: Path, tmp_path: Path
    ) -> None:
        out, words = tmp_path / "run", launcher(strategy)
        further = self.app.further.get(strategy, "").split()
        more = [*self.app.shared.split(), "--strategy", strategy, *further]
        said = program.train(out, *more, launcher=words)
        assert len(re.findall(r"step \d+/", said)) == len(reading.values(out, "throughput"))
        self.tells_the_same(out, alone)
        assert min(self.memory(out)) > 0
        one, other = self.weights(alone), self.weights(out)
        assert one.keys() == other.keys()
        for name, array in one.items():
            np.testing.assert_allclose(other[name], array, rtol=1e-4, atol=1e-6, err_msg=name)

    def tells_the_same(self, out: Path, alone: Path, rel: float = 1e-5) -> None:
        """Assert that two runs logged equal metrics, except times, within the tolerance `rel`."""
        for about in self.app.card["metrics"].values():
            if about["key"] not in reading.TIMED:
                found, expected = (reading.values(run, about["key"]) for run in (out, alone))
                close = [(step, pytest.approx(one, rel=rel, abs=rel / 10))
                         for step, one in expected]
                assert found == close

    @pytest.mark.slow
    def test_one_rank_goes_on_with_the_work_of_two(
        self, strategy: str, program: Program, alone: Path, tmp_path: Path
    ) -> None:
        """Assert that one rank can resume a training that two ranks began.

        The losses and weights must equal those of an uninterrupted training in one process. The
        test is skipped for an app without the option `--ranks`.
        """
        if "ranks" not in self.app.options["train"]:
            pytest.skip("the app is not elastic")
        words = [*self.app.shared.split(), "--strategy", strategy, "--ranks", "2"]
        out = tmp_path / "run"
        both = program.start(out, *words, launcher=launcher(strategy))
        until(lambda: bool(reading.checkpoints(out)), both)
        both.terminate()
        both.communicate(timeout=LIMIT)
        program.train(out, *words, "--resume", "auto", launcher=launcher(strategy, 1))
        begun = [one for one in reading.lines(out) if one["key"] in reading.BEGUN]
        assert [one["metadata"]["ranks"] for one in begun] == [2, 1]
        found, expected = (reading.values(run, metrics.TRAIN_LOSS) for run in (out, alone))
        assert found == [(step, pytest.approx(one, rel=1e-5, abs=1e-6)) for step, one in expected]
        one, other = self.weights(alone), self.weights(out)
        for name, array in one.items():
            np.testing.assert_allclose(other[name], array, rtol=1e-4, atol=1e-6, err_msg=name)

    @pytest.mark.slow
    def test_work_that_cannot_be_shared_is_refused(self, program: Program, tmp_path: Path) -> None:
        if "ranks" not in self.app.options["train"]:
            pytest.skip("the app is not elastic")
        words = [*self.app.shared.split(), "--ranks", "3"]
        said = program.train(tmp_path / "run", *words, "--strategy", self.app.strategies[0],
                             launcher=launcher(self.app.strategies[0]), code=1)
        assert_reported(said, "ranks-uneven", "2 ranks", " 3 ", "start 1")

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["single", "horovod"])
    def test_a_rank_that_sees_no_other_one_is_refused(
        self, name: str, program: Program, tmp_path: Path
    ) -> None:
        """Assert an error if torchrun's variables announce a second rank that does not exist."""
        if name != "single":
            launcher(name)
        out = tmp_path / "run"
        said = program.train(out, "--strategy", name, code=2, **LOST)
        assert_reported(said, "ranks-unconnected", "torchrun started 2 ranks", "--strategy")
        assert not out.exists()

    def memory(self, out: Path) -> list[int]:
        """Return the peak memory of each rank, in bytes."""
        (told,) = (one for one in reading.lines(out) if one["key"] == metrics.PEAK_MEMORY)
        found: list[int] = told["metadata"]["ranks"]
        assert max(found) == told["value"]
        return found

    def weights(self, out: Path) -> dict[str, Any]:
        """Return the arrays in the newest checkpoint that are equal on all ranks."""
        return {
            name: value for name, value in reading.parts(out).items()
            if isinstance(value, np.ndarray) and value.dtype.kind == "f"
            and not any(word in name for word in self.app.of_each_rank)
        }
