"""Test whole tunings: with made-up rates, and with real processes that write metrics."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import tunedapp
from finished import write_recipe
from refusals import refused
from trimaran import cli, paths
from trimaran.engines.host import Host
from trimaran.errors import Interrupted, RunError
from trimaran.recipes import library
from trimaran.report import report
from trimaran.reporting import Silent
from trimaran.run.request import Request
from trimaran.tune import record, tuning
from trimaran.tune import session as sessions
from trimaran.tune.record import TuningRecord
from trimaran.tune.search import Measured
from trimaran.tune.session import Session
from trimaran.tune.space import NAMES, Configuration
from tunedapp import BEST, SPACE, response


class Clock:
    """A simulated clock for a tuning, in which each run takes `run` seconds."""

    def __init__(self, minutes: float, run: float) -> None:
        self.left = 60 * minutes
        self.run = run

    def spend(self) -> None:
        self.left -= self.run


def session(
    folder: Path, rate: Callable[[Configuration, str], float | None], minutes: float = 20,
    run: float = 10.0,
) -> Session:
    clock = Clock(minutes, run)

    def measure(chosen: Configuration, place: str, limit: float) -> Measured:
        clock.spend()
        found = rate(chosen, place)
        return Measured(found, None if found else "app-killed: out of memory", run, place)

    made = TuningRecord(
        recipe="app/x-smoke", sha256="ab" * 32, date=date(2026, 11, 28), host="2 cores",
        engine="host", image_digest=None, command="trimaran tune app/x-smoke", minutes=minutes,
        seed=17, steps=8, metric="throughput", unit="img/s", parameters={},
    )
    return Session(SPACE, made, folder, measure, Silent(), lambda: clock.left)


def content(folder: Path) -> Any:
    return json.loads((folder / record.FILE).read_text())


def test_a_faster_configuration_is_confirmed_within_the_time(tmp_path: Path) -> None:
    made = session(tmp_path, lambda chosen, place: response(chosen) * (1 + len(place) % 3 / 100))
    best = made.run()
    assert best is not None
    assert best.configuration == BEST
    assert content(tmp_path)["outcome"] == "faster"
    assert content(tmp_path)["confirmation"]["gain_low"] > 1.0
    assert made.left() >= 0


def test_noise_alone_is_no_difference(tmp_path: Path) -> None:
    made = session(tmp_path, lambda chosen, place: 100.0 + zlib.crc32(place.encode()) % 7)
    assert made.run() is None
    assert content(tmp_path)["outcome"] == "no difference"


def test_a_recipe_that_is_fastest_itself_is_not_run_again(tmp_path: Path) -> None:
    places: list[str] = []

    def rate(chosen: Configuration, place: str) -> float:
        places.append(place)
        return 100.0 if chosen == SPACE.default else 50.0

    assert session(tmp_path, rate).run() is None
    assert content(tmp_path)["outcome"] == "no difference"
    assert all(place.startswith("trials/") for place in places)


def test_failed_trials_are_recorded_and_the_search_goes_on(tmp_path: Path) -> None:
    made = session(tmp_path, lambda chosen, place: None if chosen["ranks"] == 4
                   else response(chosen))
    assert made.run() is not None
    failures = [one["failure"] for one in content(tmp_path)["trials"] if one["rate"] is None]
    assert failures
    assert set(failures) == {"app-killed: out of memory"}


@pytest.mark.parametrize("place", ["trials/004", "confirmation/2-tuned"])
def test_an_interruption_keeps_the_trials_and_ends_without_a_winner(
    tmp_path: Path, place: str
) -> None:
    def rate(chosen: Configuration, here: str) -> float:
        if here == place:
            raise Interrupted("stopped")
        return response(chosen)

    made = session(tmp_path, rate)
    assert made.run() is None
    found = content(tmp_path)
    assert found["outcome"] == "interrupted"
    assert len(found["trials"]) >= 3
    assert found["best"] is not None


def test_a_recipe_that_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    with refused("tuning-impossible", "out of memory"):
        session(tmp_path, lambda chosen, place: None).run()
    assert content(tmp_path)["outcome"] == "failed"


def test_too_little_time_is_an_error_with_the_time_that_is_needed(tmp_path: Path) -> None:
    with refused("tuning-impossible", "--minutes"):
        session(tmp_path, lambda chosen, place: response(chosen), minutes=1.5).run()


@pytest.mark.parametrize("load", [2.0, 30.0, 200.0])
def test_the_time_in_the_hint_is_enough(tmp_path: Path, load: float) -> None:
    """If a tuning has too little time, the error names a number of minutes that is enough.

    A run takes `load` seconds to start, and trains as long as the time of the tuning allows.
    """
    def tuned(minutes: float) -> Session:
        train = 60 * minutes / tuning.TRIALS_AT_LEAST / 2
        made = session(tmp_path, lambda chosen, place: response(chosen), minutes,
                       min(tuning.LONGEST, max(tuning.SHORTEST, train)) + load)
        made.measure(SPACE.default, "probe", 1e9)
        made.run()
        return made

    with refused("tuning-impossible") as caught:
        tuned(load / 20)
    (enough,) = re.findall(r"--minutes (\d+)", caught.value.hint or "")
    made = tuned(float(enough))
    assert made.record.confirmation is not None
    assert len(made.record.trials) >= 3


def test_a_failed_confirmation_is_not_called_no_difference(tmp_path: Path) -> None:
    made = session(tmp_path, lambda chosen, place: None if place == "confirmation/2-tuned"
                   else response(chosen))
    assert made.run() is None
    found = content(tmp_path)
    assert found["outcome"] == "not confirmed"
    assert found["failure"] == "confirmation/2-tuned: app-killed: out of memory"
    assert found["confirmation"] is None
    assert found["failure"] in record.conclusion(made.record)[-1]


def test_a_trial_may_not_take_the_time_of_the_confirmation(tmp_path: Path) -> None:
    made = session(tmp_path, lambda chosen, place: 1.0, minutes=3)
    assert made.trial_limit == 180.0
    made.wall = 10.0
    assert made.trial_limit == 40.0
    made.left = lambda: 95.0  # of which the confirmation needs 80
    assert made.trial_limit == 15.0
    assert made.limit == 40.0


def test_a_full_disk_ends_the_search(tmp_path: Path) -> None:
    def rate(chosen: Configuration, place: str) -> float:
        if place == "trials/003":
            raise RunError("no space", code="disk-full")
        return response(chosen)

    with refused("disk-full"):
        session(tmp_path, rate).run()
    assert content(tmp_path)["outcome"] == "failed"


def test_the_table_and_the_picture_show_all_trials(tmp_path: Path) -> None:
    made = session(tmp_path, lambda chosen, place: None if chosen["ranks"] == 4
                   else response(chosen))
    made.run()
    rows = record.table(made.record).rows
    assert len(rows) == len(made.record.trials)
    assert rows[-1][1] == "app-killed: out of memory"
    drawn = record.picture(made.record)
    assert drawn is not None
    assert "best so far" in drawn
    assert any("alternating" in line for line in record.conclusion(made.record))


@pytest.fixture
def runnable(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tiny_image: None
) -> Callable[..., list[str]]:
    """Install the stand-in of an app; return a function that writes a recipe of it.

    The returned function writes the recipe, and returns the arguments of `trimaran tune` for it.
    """
    tunedapp.install(checkout, monkeypatch)
    monkeypatch.setattr(tuning, "LONGEST", 1.0)
    monkeypatch.setattr(tuning, "SHORTEST", 1.0)

    def write(**more: object) -> list[str]:
        write_recipe(checkout, **{**tunedapp.RECIPE, **more})
        return ["tune", "resnet-imagenet/cpu-smoke", "--engine", "host", "--out", "tuned",
                "--minutes", "0.3"]

    return write


@pytest.mark.slow
def test_a_real_tuning_writes_a_recipe_that_loads_and_runs(
    runnable: Callable[..., list[str]], own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = runnable(env={"OMP_NUM_THREADS": "1", "FACTOR": "1.5"})
    done = CliRunner().invoke(cli.app, [*words, "--plot", "trials.svg"])
    assert done.exit_code == 0, done.output
    found = content(own_place / "tuned")
    assert found["outcome"] == "faster"
    assert (own_place / "trials.svg").read_text().startswith("<svg")
    assert any("too many parts" in str(one["failure"]) or "app-failed" in str(one["failure"])
               for one in found["trials"] if one["changed"].get("batch-parts") == 8)
    monkeypatch.setenv(paths.OWN, str(own_place / "tuned"))
    written = library.load("resnet-imagenet/cpu-2core-tuned-smoke").recipe
    assert written.args["precision"] == "bf16"
    assert written.expected == []
    assert written.tuned is not None
    assert written.tuned.gain_low > 0
    run = own_place / "tuned/confirmation/1-tuned"
    assert not (run / "checkpoints").exists()
    judged, verdict = report.write(run)
    assert verdict.outcome == "NO REFERENCE"
    assert judged.recipe.changed["eval-every"] == 0


@pytest.mark.slow
def test_no_difference_writes_no_recipe(
    runnable: Callable[..., list[str]], own_place: Path
) -> None:
    done = CliRunner().invoke(cli.app, [*runnable(), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["outcome"] == "no difference"
    assert not (own_place / "tuned/recipes").exists()


@pytest.mark.slow
def test_a_trial_that_takes_too_long_is_stopped_and_counts_as_failed(
    runnable: Callable[..., list[str]], own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SPARE", 1.0)
    monkeypatch.setattr(sessions, "SLOWER", 0.0)
    done = CliRunner().invoke(cli.app, runnable(env={"OMP_NUM_THREADS": "1", "HANG": "1"}))
    assert done.exit_code == 0, done.output
    (failure,) = [one["failure"] for one in content(own_place / "tuned")["trials"]
                  if one["changed"] == {"precision": "fp32"}]
    assert re.fullmatch(r"stopped after \d+ s", failure)  # longer on a machine under load


@pytest.mark.slow
def test_ctrl_c_in_a_run_ends_with_the_best_so_far(
    runnable: Callable[..., list[str]], own_place: Path
) -> None:
    done = CliRunner().invoke(cli.app, runnable(env={"OMP_NUM_THREADS": "1", "STOP": "1"}))
    with refused("stopped", kind=Interrupted):
        raise done.exception  # type: ignore[misc]
    assert "Interrupted" in done.output
    found = content(own_place / "tuned")
    assert found["outcome"] == "interrupted"
    assert found["best"] is not None
    assert not (own_place / "tuned/recipes").exists()
    last = own_place / f"tuned/trials/{len(found['trials']) + 1:03}/run.json"
    assert json.loads(last.read_text())["status"] == "interrupted"


def test_the_recorded_command_has_what_can_change_the_rates_without_folders(
    checkout: Path, own_place: Path
) -> None:
    base = own_place / "some" / "base.sif"
    base.parent.mkdir()
    base.touch()
    request = Request(write_recipe(checkout), Host(), {}, base=str(base), offline=True,
                      initial=own_place / "weights.pt")
    assert tuning.command_line(request, tuning.Options(8, ["precision"])) == (
        "trimaran tune resnet-imagenet/cpu-smoke --engine host --minutes 8 --keep precision"
        " --base base.sif --initial weights.pt --offline")
    request = replace(request, base="docker://debian:12", initial=None, offline=False)
    assert tuning.command_line(request, tuning.Options(8)).endswith("--base docker://debian:12")


def test_an_existing_folder_is_refused(
    runnable: Callable[..., list[str]], own_place: Path
) -> None:
    (own_place / "tuned").mkdir()
    (own_place / "tuned/notes.txt").write_text("mine")
    done = CliRunner().invoke(cli.app, runnable())
    with refused("run-not-empty"):
        raise done.exception  # type: ignore[misc]
    assert [path.name for path in (own_place / "tuned").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(("more", "code"), [
    (["--minutes", "0"], "argument-invalid"), (["--keep", "colour"], "argument-invalid"),
    (["--plot", "nowhere/p.svg"], "argument-invalid"),
    ([word for name in NAMES for word in ("--keep", name)], "tuning-impossible"),
])
def test_wrong_arguments_are_refused_before_anything_is_made(
    runnable: Callable[..., list[str]], own_place: Path, more: list[str], code: str
) -> None:
    done = CliRunner().invoke(cli.app, [*runnable(), *more])
    with refused(code, more[1] if code == "argument-invalid" else "parameter"):
        raise done.exception  # type: ignore[misc]
    assert list(own_place.iterdir()) == []


def test_an_app_without_options_to_tune_is_refused(
    runnable: Callable[..., list[str]], checkout: Path, own_place: Path
) -> None:
    words = runnable()
    card = checkout / "apps/resnet-imagenet/app.yaml"
    content = yaml.safe_load(card.read_text())
    card.write_text(yaml.safe_dump({key: one for key, one in content.items() if key != "tuning"}))
    done = CliRunner().invoke(cli.app, words)
    with refused("tuning-impossible", "tuning"):
        raise done.exception  # type: ignore[misc]
    assert list(own_place.iterdir()) == []


def test_a_recipe_for_several_nodes_is_refused(own_place: Path) -> None:
    done = CliRunner().invoke(
        cli.app, ["tune", "resnet-imagenet/cpu-2node-smoke", "--engine", "host"])
    with refused("batch-system-required"):
        raise done.exception  # type: ignore[misc]
