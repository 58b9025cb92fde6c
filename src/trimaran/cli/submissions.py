"""The recipes of `submit`: one, a scaling series, or several as one job or one chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimaran.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trimaran.recipes.cards import Argument
    from trimaran.recipes.library import RecipeFile

LARGEST = 100_000
"""Maximum accepted number of nodes; no machine has more nodes."""

MOST_SEED = 2**32 - 1
"""Maximum accepted seed: NumPy's random generators take 32 bits."""


@dataclass(frozen=True)
class Ways:
    """How `submit` queues the recipes, as its options say.

    Attributes:
        nodes: value of `--nodes`.
        seeds: value of `--seeds`.
        together: whether all trainings share one job.
        chain: whether each recipe starts from the one before it.
        form: value of `--form`.
    """

    nodes: str | None
    seeds: str | None
    together: bool
    chain: bool
    form: str | None

    def check(self, recipes: Sequence[str]) -> None:
        """Check that the options agree with each other and with the number of recipes.

        Raises:
            UsageError: two options exclude each other, or another option is needed.
        """
        several = self.together or self.chain
        words = "--together" if self.together else "--chain"
        if self.together and self.chain:
            raise _conflict("--together and --chain exclude each other", "choose one of them")
        if len(recipes) > 1 and not several:
            raise _conflict(f"{len(recipes)} recipes are named: {' '.join(recipes)}",
                            "--together trains them on one node, --chain one after the other; or"
                            " submit each alone")
        for option, value in (("--nodes", self.nodes), ("--form", self.form)):
            if several and value is not None:
                raise _conflict(f"{option} and {words} exclude each other", f"leave out {option}")
        if self.seeds is not None and not self.together:
            raise _conflict("--seeds needs --together", "add --together, or give --set seed=N")

    def trainings(
        self, recipes: Sequence[str], changes: dict[str, Argument]
    ) -> list[tuple[RecipeFile, dict[str, Argument]]]:
        """Return each recipe to submit with its changed arguments.

        Raises:
            UsageError: a recipe, a number of nodes or a seed is invalid.
        """
        from trimaran.recipes import library

        if self.nodes is not None:
            counts = numbers("--nodes", self.nodes, 1, LARGEST, "1,2,4,8")
            return [(library.sized(recipes[0], count), changes) for count in sorted({*counts})]
        files = [library.load(recipe) for recipe in recipes]
        if self.seeds is None:
            return [(file, changes) for file in files]
        if "seed" in changes:
            raise _conflict("--seeds and --set seed exclude each other", "leave out --set seed")
        seeds = numbers("--seeds", self.seeds, 0, MOST_SEED, "1,2,3,4")
        return [(file, {**changes, "seed": seed}) for file in files for seed in seeds]


def folders(
    file: RecipeFile, files: Sequence[RecipeFile], words: Sequence[str]
) -> dict[str, Path]:
    """Return the data sets of `--data` for one of several recipes, by name.

    A data set that other recipes read, and not this one, is left out.

    Raises:
        UsageError: a path lacks the name of its data set, or a name is unknown or given twice.
    """
    from trimaran.run import inputs

    others = {name for other in files for name in other.recipe.data} - set(file.recipe.data)
    return inputs.given(file, [word for word in words if word.partition("=")[0] not in others])


def numbers(option: str, text: str, least: int, most: int, example: str) -> list[int]:
    """Return the numbers in `text`, the value of an option.

    Raises:
        UsageError: a word is not a number from `least` to `most`.
    """
    words = text.split(",")
    longest = len(str(most))  # Python does not parse thousands of digits
    if not all(
        word.isascii() and word.isdigit() and len(word) <= longest and least <= int(word) <= most
        for word in words
    ):
        raise UsageError(f"{option} {text}: needs one or more numbers from {least} to {most:,}",
                         code="argument-invalid", hint=f"such as {option} {example}")
    return [int(word) for word in words]


def _conflict(message: str, hint: str) -> UsageError:
    return UsageError(message, code="arguments-conflict", hint=hint)
