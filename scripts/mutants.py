"""Mutation tests: insert one fault at a time into the programs, and check that a test fails.

The faults are in tables: `tests/mutants.yaml` of the tool and of each app. An entry describes
a wrong method ("the evaluation is not summed over the ranks") as a replacement of text, and names
the quickest test that must fail. The tools mutmut and cosmic-ray are not used, because they replace
thousands of operators and run a whole suite for each, which takes hours and tests the method less.

    python scripts/mutants.py                       # try all mutants, one or two seconds each
    python scripts/mutants.py --sample 10           # try ten mutants, chosen by the revision
    python scripts/mutants.py --only evaluate.py    # try those whose file or text contains this

Faults are inserted into copies of the tree in a temporary folder, one copy for each core, never
into the tree itself. Exit codes: 0 tests failed for all faults, 1 a fault survived, 2 a table or a
test is wrong (a text does not occur exactly once, or a test fails without a fault).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar, cast

import app_tests
from suite_evidence import evidence, revision
from trimaran import parsing
from warm_pytest import WarmPytest

ROOT = Path(__file__).resolve().parents[1]
TABLE = "tests/mutants.yaml"  # path below the root, each app and trainkit
LIMIT = 180.0  # seconds for one test
Outcome = Literal["killed", "survived", "timed out", "does not run"]
Item = TypeVar("Item")
Result = TypeVar("Result")


class TableError(Exception):
    """A table of mutants has an invalid entry, or a test fails although no fault was inserted."""


@dataclass(frozen=True)
class Mutant:
    """One fault: `text`, which occurs once in `file`, is replaced by `becomes`.

    Attributes:
        what: description of the fault.
        test: the quickest test that must fail, `test_file.py::test_name`.
    """

    file: str
    what: str
    text: str
    becomes: str
    test: str

    def applied(self, source: str) -> str:
        """Return `source` with the fault.

        Raises:
            TableError: the text that the fault replaces does not occur exactly once in `source`, or
                the fault changes nothing.
        """
        found = source.count(self.text)
        if found != 1:
            raise TableError(f"{self.file}: {self.what}: {self.text!r} occurs {found} times")
        if self.text == self.becomes:
            raise TableError(f"{self.file}: {self.what}: nothing changes")
        return source.replace(self.text, self.becomes)


@dataclass(frozen=True)
class Found:
    """The outcome of the test of a mutant, and its duration in seconds."""

    mutant: Mutant
    outcome: Outcome
    seconds: float


def load(root: Path) -> list[Mutant]:
    """Return the entries of all tables in `root`, after a check that each can be applied.

    Raises:
        TableError: An entry cannot be applied, or its test does not exist.
    """
    found = []
    for table in (root / TABLE, *sorted(root.glob(f"apps/*/{TABLE}"))):
        if table.is_file():
            place = table.parents[1].relative_to(root)
            try:  # a file that is there twice must not hide the entries of the first time
                document = parsing.parse_yaml(table.read_text(encoding="utf-8"))
            except parsing.Malformed as error:
                raise TableError(f"{table}:{error.line}: {error}") from error
            content = cast("dict[str, list[dict[str, str]]]", document.content)
            found += [Mutant(str(place / file), **entry)
                      for file, entries in content.items() for entry in entries]
    for mutant in found:
        mutant.applied((root / mutant.file).read_text(encoding="utf-8"))
        test_path(root, mutant)
    return found


def test_path(root: Path, mutant: Mutant) -> str:
    """Return the test of `mutant` with its folder, for pytest.

    Raises:
        TableError: The file or the test in it does not exist.
    """
    file, _, name = mutant.test.partition("::")
    for folder in (root / "tests", *sorted(root.glob("apps/*/tests"))):
        path = folder / file
        if path.is_file() and f"def {name.partition('[')[0]}(" in path.read_text(encoding="utf-8"):
            return f"{path.relative_to(root)}::{name}"
    raise TableError(f"{mutant.file}: {mutant.what}: no test {mutant.test}")


def copy(root: Path, folder: Path) -> Path:
    """Copy `root` to `folder`, including uncommitted files, without files that git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=root, capture_output=True, check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    return folder


def python(root: Path, test: str) -> str:
    """Return the Python interpreter of the environment in which the test `test` runs.

    `test` is the path of a test file, or a path and the name of a test (`FILE::NAME`).
    """
    return str(app_tests.interpreter(root, Path(test.partition("::")[0])))


class Tree:
    """A copy of the repository, with a pytest process for each interpreter that its tests need."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.folder = copy(root, folder)
        self.log = folder / "pytest.log"
        self._warm: dict[str, WarmPytest] = {}

    def pytest(self, tests: Sequence[str], limit: float) -> int | None:
        """Return pytest's exit status; None: it took longer than `limit` seconds.

        Tests with the mark `slow` are excluded: at least one quick test must detect each fault.
        """
        interpreter = python(self.root, tests[0])
        if interpreter not in self._warm:
            self._warm[interpreter] = WarmPytest(interpreter)
        return self._warm[interpreter].run(
            folder=str(self.folder), log=str(self.log), limit=limit,
            path=[str(self.folder / "src"), *map(str, self.folder.glob("apps/*/src"))],
            words=["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *tests],
        )

    def close(self) -> None:
        """Stop the processes and their tests."""
        for process in self._warm.values():
            process.close()


def check_tests(trees: Sequence[Tree], mutants: Sequence[Mutant]) -> None:
    """Run the tests that belong to `mutants` on the unchanged code, where all of them must pass.

    Raises:
        TableError: A test fails.
    """
    root = trees[0].root
    named = sorted({test_path(root, mutant) for mutant in mutants})
    shares = [
        share
        for environment in sorted({python(root, test) for test in named})
        for number in range(len(trees))
        if (share := [one for one in named if python(root, one) == environment][number::len(trees)])
    ]

    def work(tree: Tree, tests: list[str]) -> None:
        if tree.pytest(tests, LIMIT * len(tests)) != 0:
            tail = tree.log.read_text(errors="replace")[-3000:]
            raise TableError(f"a test fails without any fault:\n{tail}")

    for _ in on_trees(trees, work, shares):
        pass


def try_mutant(tree: Tree, mutant: Mutant, limit: float) -> Found:
    """Run the test of `mutant` in `tree`, and restore the tree."""
    path, started = tree.folder / mutant.file, time.monotonic()
    right = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied(right), encoding="utf-8")
    try:
        status = tree.pytest([test_path(tree.root, mutant)], limit)
    finally:
        path.write_text(right, encoding="utf-8")
    # 1: tests failed. Other codes: a module cannot be imported, or a test does not exist.
    outcomes: dict[int | None, Outcome] = {0: "survived", 1: "killed", None: "timed out"}
    outcome = outcomes.get(status, "does not run")
    return Found(mutant, outcome, round(time.monotonic() - started, 1))


def on_trees(
    trees: Sequence[Tree], work: Callable[[Tree, Item], Result], items: Sequence[Item]
) -> Iterator[Result]:
    """Call `work` for each item, in parallel; yield the results as they are ready.

    Each call gets one of `trees`, copies of the checkout, which no other call uses at that time.
    """
    free: queue.Queue[Tree] = queue.Queue()
    for tree in trees:
        free.put(tree)

    def one(item: Item) -> Result:
        tree = free.get()
        try:
            return work(tree, item)
        finally:
            free.put(tree)

    with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
        futures = [pool.submit(one, item) for item in items]
        try:
            for future in concurrent.futures.as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def choose(mutants: list[Mutant], asked: argparse.Namespace, root: Path) -> list[Mutant]:
    """Return the mutants that the options select."""
    if asked.only:
        mutants = [m for m in mutants if asked.only in f"{m.file}: {m.what}"]
    if asked.sample is not None and asked.sample < len(mutants):
        seed = asked.seed or revision(root)
        say(f"a sample of {asked.sample}: --seed {seed}")
        mutants = random.Random(seed).sample(mutants, asked.sample)  # noqa: S311
    return mutants


def report(root: Path, found: Sequence[Found], seconds: float, words: Sequence[str]) -> str:
    """Return the evidence of a run as JSON."""
    return evidence(
        root, "mutants.py", words,
        seconds=round(seconds, 1),
        outcomes=Counter(one.outcome for one in found),
        mutants=[
            {
                "file": one.mutant.file, "what": one.mutant.what, "test": one.mutant.test,
                "outcome": one.outcome, "seconds": one.seconds,
            }
            for one in sorted(found, key=lambda one: (one.mutant.file, one.mutant.what))
        ],
    )


def say(text: str) -> None:
    """Print `text` and flush it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(root: Path, asked: argparse.Namespace, words: Sequence[str]) -> int:
    """Try the selected mutants; return the exit code."""
    started, mutants = time.monotonic(), choose(load(root), asked, root)
    if not mutants:
        raise TableError(f"no entry of a {TABLE} has '{asked.only}'")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-")))
        count = min(asked.jobs, len(mutants))
        trees = [Tree(root, folder / str(number)) for number in range(count)]
        for tree in trees:
            stack.callback(tree.close)
        say(f"the tests of {len(mutants)} mutants, without any fault")
        check_tests(trees, mutants)
        found: list[Found] = []
        work = partial(try_mutant, limit=asked.limit)
        for one in on_trees(trees, work, mutants):
            found.append(one)
            say(
                f"{len(found):4}/{len(mutants)}  {one.outcome:12} {one.seconds:6.1f} s  "
                f"{Path(one.mutant.file).name}: {one.mutant.what}"
            )
    seconds = time.monotonic() - started
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(report(root, found, seconds, words), encoding="utf-8")
    bad = [one for one in found if one.outcome != "killed"]
    say(f"{len(found) - len(bad)} of {len(found)} killed in {seconds:.0f} s")
    for one in bad:
        say(f"{one.outcome}: {one.mutant.file}: {one.mutant.what}\n  {one.mutant.test}")
    return 1 if bad else 0


def options(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--sample", type=int, metavar="N", help="try only N mutants")
    parser.add_argument("--seed", help="seed of the sample (default: the revision)")
    parser.add_argument("--only", metavar="WORDS", help="try those whose file or text has this")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="per test")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the evidence")
    return parser.parse_args(words)


def main(words: Sequence[str], root: Path = ROOT) -> int:
    """Run this program with the command-line arguments `words`; return the exit code."""
    try:
        return run(root, options(words), words)
    except (TableError, app_tests.AppsError, ChildProcessError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exit handlers delete the copies
    sys.exit(main(sys.argv[1:]))
