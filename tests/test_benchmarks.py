"""Test the code of `benchmarks/` without measuring: statistics, tables, environments, errors."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from trimaran import paths
from trimaran.plan import pairs

BENCHMARKS = paths.repository() / "benchmarks"
NAMES = ("cli", "contestants", "machine", "report", "runner", "spread", "timing")
PROGRAMS = (
    "resnet_cpu", "resnet_gpu", "input_pipeline", "futuregan_step", "futuregan_memory",
    "tensorflow_cpu", "keras_strategies", "tool_time", "revisions", "mpi_collectives",
    "language_layouts", "language_model_step", "two_ranks",
)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def parts(name: str) -> ModuleType:
    return module(f"sidebyside.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_the_runner_needs_the_standard_library_only(name: str) -> None:
    assert parts(name).__doc__


def test_a_spread_is_minimum_median_maximum() -> None:
    spread = parts("spread").Spread((3.0, 1.0, 2.0, 10.0))
    assert (spread.low, spread.median, spread.high) == (1.0, 2.5, 10.0)
    with pytest.raises(ValueError, match="no measurements"):
        parts("spread").Spread(())


def test_ratios_are_formed_round_by_round() -> None:
    spread = parts("spread")
    found = spread.ratios(spread.Spread((10.0, 30.0)), spread.Spread((5.0, 10.0)))
    assert found.values == (2.0, 3.0)
    with pytest.raises(ValueError, match="zip"):
        spread.ratios(spread.Spread((1.0,)), spread.Spread((1.0, 2.0)))


def test_a_rate_over_windows_is_all_images_by_all_seconds() -> None:
    over_windows = parts("spread").over_windows
    assert over_windows([100.0, 50.0]) == pytest.approx(200 / 3)  # 1 s and 2 s for 100 each
    for rates in ([], [1.0, 0.0]):
        with pytest.raises(ValueError, match="no positive rates"):
            over_windows(rates)


def test_the_first_report_of_a_run_is_its_warm_up() -> None:
    lines = [{"key": "throughput", "value": value} for value in (1.0, 8.0, 8.0)]
    text = "\n".join(map(json.dumps, [{"key": "seed", "value": 17}, *lines]))
    assert parts("contestants").throughput(text) == 8.0
    with pytest.raises(ValueError, match="no positive rates"):
        parts("contestants").throughput(json.dumps(lines[0]))


def test_a_rate_by_the_clock_counts_what_happens_between_two_steps() -> None:
    lines = [{"key": "global_batch_size", "value": 32, "time_ms": 0, "metadata": {}}]
    lines += [
        {"key": "throughput", "value": 99.0, "time_ms": 1000 * seconds, "metadata": {"step": step}}
        for step, seconds in ((10, 50), (20, 60), (30, 82))
    ]
    clock = parts("contestants").with_all_that_stops
    assert clock("\n".join(map(json.dumps, lines))) == 20 * 32 / 32
    with pytest.raises(ValueError, match="1 reports: at least 2 are needed"):
        clock("\n".join(map(json.dumps, lines[:2])))


def test_a_loader_is_timed_after_its_warm_up() -> None:
    drawn = []

    def sizes() -> object:
        while True:
            drawn.append(1)
            yield 1

    assert parts("timing").images_per_second(sizes(), warmup=5, seconds=0.001) > 0
    assert len(drawn) > 5


def test_stock_runs_without_tuning() -> None:
    tuned = {"PATH": "/bin", "LD_PRELOAD": "x", "KMP_AFFINITY": "y", "OMP_NUM_THREADS": "2"}
    assert parts("machine").stock_environment(tuned) == {"PATH": "/bin"}


def test_ours_runs_with_what_the_image_preloads(tmp_path: Path) -> None:
    machine = parts("machine")
    environment, notes = machine.our_environment({"PATH": "/bin"}, tmp_path)
    assert environment == {"PATH": "/bin"}
    assert "tcmalloc is not on this host" in notes[0]
    library = tmp_path / "lib64/libtcmalloc_minimal.so.4"
    library.parent.mkdir()
    library.touch()
    environment, notes = machine.our_environment({}, tmp_path)
    assert environment == {"LD_PRELOAD": str(library)}
    assert "OpenMP is not on this host" in notes[0]
    given, notes = machine.our_environment({"LD_PRELOAD": "mine.so"}, tmp_path)
    assert given == {"LD_PRELOAD": "mine.so"}
    assert "as given" in notes[0]


def test_the_cores_of_a_benchmark_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = parts("machine")
    monkeypatch.setattr(os, "sysconf", lambda _name: 100)  # ticks per second
    stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 50 50 7 7 0 0 300 0 0\ncpu1 1 1 1 1 1 1 1 1 0 0\n"
    assert machine.core_seconds(stat, [0]) == (2.0, 3.0)
    assert machine.core_seconds(stat, [0, 1]) == (2.05, 3.01)


def test_others_are_who_is_neither_this_process_nor_its_children() -> None:
    others, stolen = parts("machine").Meter(sorted(os.sched_getaffinity(0))).shares()
    assert others >= 0
    assert stolen >= 0


def program(name: str, text: str) -> object:
    argv = [sys.executable, "-c", text]
    return parts("runner").Contestant(name, lambda _folder: argv, dict(os.environ))


def test_contestants_alternate(tmp_path: Path) -> None:
    said: list[str] = []
    pair = [program("a", "print('{\"rate\": 4}')"), program("b", "print('{\"rate\": 2}')")]
    rates = parts("runner").alternate(pair, 2, tmp_path, said.append)
    assert {name: spread.values for name, spread in rates.items()} == {"a": (4, 4), "b": (2, 2)}
    assert [line.split(":")[0] for line in said] == [
        "round 1/2  a", "round 1/2  b", "round 2/2  a", "round 2/2  b",
    ]
    assert not list(tmp_path.glob("run-*"))


@pytest.mark.parametrize("complete", [0, 1, 2])
def test_an_interrupt_keeps_the_complete_rounds(tmp_path: Path, complete: int) -> None:
    pair = [program("a", "print('{\"rate\": 4}')"), program("b", "print('{\"rate\": 2}')")]
    runner, said = parts("runner"), []

    def interrupt(line: str) -> None:
        said.append(line)
        if line.startswith(f"round {complete + 1}/3  a"):
            raise KeyboardInterrupt

    if complete == 0:
        with pytest.raises(KeyboardInterrupt):
            runner.alternate(pair, 3, tmp_path, interrupt)
        return
    rates = runner.alternate(pair, 3, tmp_path, interrupt)
    assert {name: spread.values for name, spread in rates.items()} == {
        "a": (4,) * complete, "b": (2,) * complete,
    }
    assert f"the {complete} complete of 3 rounds" in said[-1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("print('no rate')", "no rate"), ("raise SystemExit('lost')", "code 1")],
)
def test_a_failing_contestant_is_named_with_its_output(
    tmp_path: Path, text: str, reason: str
) -> None:
    runner = parts("runner")
    with pytest.raises(runner.BenchmarkError, match=reason) as caught:
        runner.alternate([program("the slow one", text)], 1, tmp_path, lambda _line: None)
    assert str(caught.value).startswith("the slow one: ")
    assert caught.value.code == 4


def result() -> object:
    report, spread = parts("report"), parts("spread")
    pair = [program("a", ""), program("b", "")]
    comparisons = [
        report.Comparison("a / b", "a", "b", 1.5),
        report.Comparison("a / 100", "a", 100.0, 1),
        report.Comparison("b / a", "b", "a"),
    ]
    facts = {
        "date": "today", "command": "python x", "revision": None, "processor": "P",
        "flags": ["avx2"], "cores": [0, 1], "memory_gib": 1.0, "gpus": [],
        "image": None, "image_digest": None,
        "python": "3.11", "packages": {"torch": "2"}, "load_before": 0.1,
        "others": 0.2, "stolen": 0.0,
    }
    rates = {"a": spread.Spread((2.0, 4.0)), "b": spread.Spread((1.0, 2.0))}
    plan = report.Plan(pair, comparisons, ["a note"], ["c / d: not available"])
    return report.Report("tiny", plan, facts, rates)


def test_the_tables_say_what_is_met() -> None:
    text = result().markdown()
    assert "| a / b                | 2    | 2      | 2    | >= 1.5 | met          |" in text
    assert "| a / 100              | 0.02 | 0.03   | 0.04 | >= 1   | NOT MET      |" in text
    assert "| b / a                | 0.5  | 0.5    | 0.5  | -      |              |" in text
    assert "| c / d: not available | -    | -      | -    | -      | not measured |" in text
    assert "others used 20.0% of the cores meanwhile" in text
    assert "NOT IDLE" in text
    assert "- a note" in text


def test_the_best_of_several_is_that_of_each_round() -> None:
    report, spread = parts("report"), parts("spread")
    rates = {"a": spread.Spread((2.0, 9.0)), "b": spread.Spread((4.0, 3.0)),
             "c": spread.Spread((1.0, 2.0))}
    best = report.Comparison("best / c", ("a", "b"), ["c"])
    found = report.Report("tiny", report.Plan([], [best]), {}, rates).ratio(best)
    assert found.values == (4.0, 4.5)


def test_the_json_has_every_value() -> None:
    document = json.loads(result().json())
    assert document["rates"][0]["values"] == [2.0, 4.0]
    assert document["ratios"][0] | {"goal": 1.5, "median": 2.0} == document["ratios"][0]
    assert document["not_measured"] == ["c / d: not available"]


def test_tables_go_between_their_markers() -> None:
    between = parts("report").between_markers
    text = "before\n<!-- x -->\nold\n<!-- /x -->\nafter\n"
    new = between(text, "x", "| new |\n")
    assert new == "before\n<!-- x -->\n\n| new |\n\n<!-- /x -->\nafter\n"
    assert between(new, "x", "| new |\n") == new
    for wrong in ("", "<!-- x -->", "<!-- /x --><!-- x -->", text + text):
        with pytest.raises(ValueError, match="each once"):
            between(wrong, "x", "")


def test_every_benchmark_has_a_place_in_the_page_that_its_command_names() -> None:
    commands = (BENCHMARKS / "README.md").read_text()
    for name in PROGRAMS:
        found = re.search(rf"(?m)^\S*python benchmarks/{name}\.py .*--markdown (\S+)", commands)
        assert found, name
        page = BENCHMARKS.parent / found[1]
        parts("report").between_markers(page.read_text(), name, "")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rounds", "0"], "at least 1"),
        (["--cores", "one"], "not a list"),
        (["--cores", "99999"], "may use"),
        (["--json", "missing/x.json"], "folder that exists"),
        (["--json", "there.json"], "give a new file"),
        (["--work", "missing"], "no such folder"),
        (["--markdown", "missing.md"], "missing.md"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    name: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there.json").touch()
    benchmark = module(name)
    with pytest.raises(SystemExit) as caught:
        parts("cli").run(name, benchmark.parser(), benchmark.plan, words)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("word", ["32", "32:0", "31:4", "a:b"])
def test_sizes_of_frames_have_a_batch_each(word: str) -> None:
    with pytest.raises(SystemExit) as caught:
        module("futuregan_step").parser().parse_args(["--sizes", word])
    assert caught.value.code == 2
    assert module("futuregan_step").batch("64:4") == (64, 4)


@pytest.mark.parametrize("word", ["gpt2-5m", "gpt2-5m:256", "gpt2-5m:0:4", "llama-5m:256:16"])
def test_a_case_of_the_language_model_is_a_gpt2_with_sequences(word: str) -> None:
    with pytest.raises(SystemExit) as caught:
        module("language_model_step").parser().parse_args(["--cases", word])
    assert caught.value.code == 2
    assert module("language_model_step").case("gpt2-5m:256:16") == ("gpt2-5m", 256, 16)


def test_precisions_and_shapes_of_the_language_model_benchmark_are_words_of_the_app() -> None:
    step = module("language_model_step")
    described = json.loads((paths.repository() / "apps/language-model/options.json").read_text())
    options = described["verbs"]["train"]["options"]
    parsed = step.parser().parse_args([])
    assert set(step.PLAIN_GOALS) <= set(options["precision"]["enum"])
    assert {model for model, _, _ in parsed.cases} <= set(options["model"]["enum"])


def test_a_package_that_a_benchmark_needs_is_named() -> None:
    with pytest.raises(parts("runner").BenchmarkError, match="no_such_package") as caught:
        parts("contestants").imported(os.environ, "json", "no_such_package")
    assert caught.value.code == 69


def test_devices_of_a_benchmark_are_words_of_the_app() -> None:
    described = json.loads((paths.repository() / "apps/futuregan/options.json").read_text())
    known = described["verbs"]["train"]["options"]["device"]["enum"]
    assert set(module("futuregan_step").DEVICES) <= set(known)


def test_memory_is_that_of_the_rank_with_the_most_and_of_the_one_with_the_least() -> None:
    memory = module("futuregan_memory")
    assert memory.case("32:16/4") == (32, 16, 4, False)
    assert memory.case("64:2x2") == (64, 2, None, True)
    told = {"key": "peak_memory_bytes", "value": 3e9, "metadata": {"ranks": [2e9, 3e9]}}
    lines = "\n".join(map(json.dumps, [{"key": "seed", "value": 1}, told]))
    assert (memory.peak(lines), memory.peak(lines, 0)) == (3.0, 2.0)
    with pytest.raises(argparse.ArgumentTypeError, match="SIDE:BATCH"):
        memory.case("31:4")


def test_an_environment_without_the_app_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = {"PATH": os.environ["PATH"], "PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}
    contestants, runner = parts("contestants"), parts("runner")
    monkeypatch.setattr(contestants, "APP", "no_such_app")
    with pytest.raises(runner.BenchmarkError, match="cannot run the app") as caught:
        contestants.app_options(bare)
    assert caught.value.code == 69


def test_a_revision_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(parts("runner").BenchmarkError, match="--before no-such: fatal:") as caught:
        module("revisions").unpack("no-such", tmp_path)
    assert caught.value.code == 69


def test_the_rates_of_two_ranks_have_the_names_that_predictions_read() -> None:
    program = module("two_ranks")
    steps = parts("contestants").Steps(16, 4, 2)
    found, _ = program.of_case(program.CASES[0], steps, dict(os.environ), [0, 1])
    rates = {one.name: 10.0 for one in (*found, program.link({}))}
    (one, *_) = pairs.pairs(rates, 16)
    assert (one.network, one.alone, one.beside) == ("resnet-imagenet/resnet18", 10, 10)
