"""The common part of the command lines of all benchmarks: options, errors, output."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from sidebyside import machine, report
from sidebyside.report import Plan, Report
from sidebyside.runner import BenchmarkError, alternate

EXIT_CODES = """exit codes: 0 done (goals met or not), 2 bad arguments, 4 a contestant failed,
69 what the benchmark needs is not on this machine, 130 interrupted in the first round (later,
the complete rounds are reported)"""


def positive(text: str) -> int:
    """Return the number in `text`, which must be at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}: at least 1 is needed")
    return value


def cores(text: str) -> list[int]:
    """Return the numbers of the cores in a list such as `0,1` or `0-3`.

    Raises:
        ArgumentTypeError: the list is malformed, or this process may not use one of the cores.
    """
    try:
        ends = [[int(word) for word in part.split("-")] for part in text.split(",")]
        numbers = sorted({number for part in ends for number in range(part[0], part[-1] + 1)})
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: not a list such as 0,1 or 0-3") from error
    usable = os.sched_getaffinity(0)
    if not numbers or not set(numbers) <= usable:
        raise argparse.ArgumentTypeError(
            f"{text}: this process may use {','.join(map(str, sorted(usable)))}"
        )
    return numbers


def parser(description: str, *, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    top = argparse.ArgumentParser(
        description=description,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--rounds", type=positive, default=rounds,
                     help="how often each contestant runs (default: %(default)s)")
    top.add_argument("--cores", type=cores, default=sorted(os.sched_getaffinity(0)), metavar="LIST",
                     help="cores for every contestant, such as 0,1 or 0-3 (default: all)")
    top.add_argument("--work", type=Path, metavar="DIR",
                     help="where temporary files go (default: the system's place)")
    top.add_argument("--image-digest", metavar="DIGEST",
                     help="digest of the image this runs in, to be shown with the figures")
    top.add_argument("--json", type=Path, metavar="FILE", help="new file for all values")
    top.add_argument("--markdown", type=Path, metavar="FILE",
                     help="Markdown file whose tables of this benchmark are replaced")
    return top


def run(
    name: str,
    parser: argparse.ArgumentParser,
    plan: Callable[[argparse.Namespace, Path], Plan],
    arguments: list[str] | None = None,
) -> int:
    """Run a benchmark: parse its arguments, measure, and report; return the exit code.

    Args:
        name: name of the benchmark; it marks the tables in a Markdown file.
        parser: parser of the command line.
        plan: function that makes the plan from the arguments and a folder, whose files exist until
            the end of the benchmark.
        arguments: words of the command line; default: those of this process.
    """
    parsed = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as for Ctrl-C
    try:
        check(name, parser, parsed)
        os.sched_setaffinity(0, parsed.cores)  # inherited by every contestant
        facts = machine.facts(parsed.cores) | {"image_digest": parsed.image_digest}
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=parsed.work) as folder:
            planned = plan(parsed, Path(folder))
            if facts["load_before"] > machine.IDLE:
                print(f"load average {facts['load_before']}: not idle", file=sys.stderr)
            meter = machine.Meter(parsed.cores)
            rates = alternate(planned.contestants, parsed.rounds, Path(folder))
            facts["others"], facts["stolen"] = meter.shares()
        settings = {key: _plain(value) for key, value in vars(parsed).items()}
        publish(Report(name, planned, facts, rates, settings), parsed)
    except BenchmarkError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130
    return 0


def check(name: str, parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    """Exit with code 2 if a path in the options cannot be used, before the measurement starts."""
    if parsed.json is not None and (parsed.json.exists() or not parsed.json.parent.is_dir()):
        parser.error(f"--json {parsed.json}: give a new file in a folder that exists")
    if parsed.work is not None and not parsed.work.is_dir():
        parser.error(f"--work {parsed.work}: no such folder")
    if parsed.markdown is not None:
        try:
            report.between_markers(parsed.markdown.read_text(encoding="utf-8"), name, "")
        except (OSError, ValueError) as error:
            parser.error(f"--markdown {parsed.markdown}: {error}")


def publish(result: Report, parsed: argparse.Namespace) -> None:
    """Print the tables, and write the requested files."""
    tables = result.markdown()
    print(tables)
    if parsed.json is not None:
        report.write_atomically(parsed.json, result.json())
    if parsed.markdown is not None:
        text = parsed.markdown.read_text(encoding="utf-8")
        report.write_atomically(
            parsed.markdown, report.between_markers(text, result.name, tables)
        )


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value
