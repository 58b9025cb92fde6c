"""The app contract (`apps/README.md`) as tests that every app runs.

    class TestContract(Contract):
        app = App(folder=Path(__file__).parents[1], training="--steps 400", steps=400, …)

An app with a data set provides it in a fixture `data`. The modules of trainkit have tests of their
own; the contract tests detect the faults that an app can still have if trainkit is correct. A
training imports nothing from this package, because the package needs pytest.
"""

# ruff: noqa: E402 - pytest rewrites the asserts of modules that are registered before the import

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{name}" for name in ("commands", "ends", "program", "ranks", "refusals", "runs"))
)

from trainkit.testing.commands import CommandContract
from trainkit.testing.ends import EndContract
from trainkit.testing.program import App, Program
from trainkit.testing.ranks import RankContract
from trainkit.testing.runs import RunContract

__all__ = ["App", "Contract", "Program"]


class Contract(CommandContract, RunContract, EndContract, RankContract):
    """The base class of all contract tests; an app's test class inherits from it and sets `app`."""
