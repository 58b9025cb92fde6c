"""List the settings that can be tuned for a recipe, each with the values to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimaran.engines.host import GLIBC_TUNABLES
from trimaran.recipes import cards
from trimaran.recipes.cards import Option, Tuning
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.recipe import Recipe

Value = int | str | None
"""A value of a parameter; None means that the app's default is used."""

Configuration = Mapping[str, Value]
"""The settings of one trial: name of each parameter -> its value."""

RANKS, THREADS, INPUT = "ranks", "threads", "input-workers"
PARTS, PRECISION = "batch-parts", "precision"
ALLOCATOR, FUSION = "allocator", "fusion-threshold"

NAMES = (RANKS, THREADS, INPUT, PARTS, PRECISION, ALLOCATOR, FUSION)
"""Names of all settings that `trimaran tune` can change, in the order in which they are shown."""

EXACT = frozenset({THREADS, INPUT, ALLOCATOR, FUSION})
"""Parameters that do not change the formulas of the training; expected accuracies stay valid.

These parameters can change the order of sums, and thus the rounding. The other parameters change
the precision, or the number of samples over which batch normalization computes its statistics.
"""

OMP, FUSED = "OMP_NUM_THREADS", "HOROVOD_FUSION_THRESHOLD"

MIB = 2**20
FUSIONS = (16 * MIB, 64 * MIB, 128 * MIB)
"""Values to try: the number of bytes of gradients that Horovod averages in one operation.

The default of Horovod is 128 MiB (Horovod, documentation of tensor fusion).
"""

PLAIN_GLIBC = {"MALLOC_TRIM_THRESHOLD_": str(128 * 1024), "MALLOC_MMAP_MAX_": "65536"}
"""Variables that set two options of the glibc allocator to their defaults, see mallopt(3)."""

TCMALLOC, GLIBC, KEEPING = "tcmalloc", "glibc", "glibc-keeping"
"""Names of memory allocators to try; `glibc-keeping` is glibc that keeps freed memory."""

_FOR_GPUS = frozenset({"tf32", "fp16", "fp8"})
_MOST_PARTS = 8
_MOST_WORKERS = 16


@dataclass(frozen=True)
class Parameter:
    """A setting to tune, with the values to try; `default` is the value in the recipe."""

    name: str
    default: Value
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Space:
    """The parameters to tune in a recipe, and the variables that select an allocator.

    Attributes:
        parameters: parameters with two or more values.
        allocators: name of an allocator -> environment variables that select it.
        tuning: the options of the app that can be tuned.
        cores: number of cores of a node that the recipe uses.
    """

    parameters: tuple[Parameter, ...]
    allocators: Mapping[str, Mapping[str, str]]
    tuning: Tuning
    cores: int = 1

    @property
    def default(self) -> dict[str, Value]:
        """The configuration of the recipe itself."""
        return {one.name: one.default for one in self.parameters}

    def first(self) -> list[dict[str, Value]]:
        """Return the first configurations to measure.

        The first one is the recipe's own. Each of the others differs from it in the value of one
        setting; only with another number of ranks, the number of threads is adapted to the cores of
        a rank.
        """
        found = [self.default]
        for one in self.parameters:
            for value in one.values[1:]:
                chosen = {**self.default, one.name: value}
                if one.name == RANKS and isinstance(value, int) and THREADS in chosen:
                    chosen[THREADS] = self._threads(self.cores // value)
                found.append(chosen)
        return found

    def _threads(self, most: int) -> Value:
        """Return the largest of the numbers of threads to try that is at most `most`.

        The numbers to try are the values of the parameter `threads`. If all of them exceed `most`,
        return the smallest one.
        """
        values = next(one.values for one in self.parameters if one.name == THREADS)
        numbers = sorted(value for value in values if isinstance(value, int))
        return max((n for n in numbers if n <= most), default=numbers[0])

    def changed(self, configuration: Configuration) -> dict[str, Value]:
        """Return the settings of a configuration that differ from the recipe."""
        default = self.default
        return {name: value for name, value in configuration.items() if value != default[name]}


def of(
    file: RecipeFile, tuning: Tuning, known: Mapping[str, str], *, keep: Sequence[str] = ()
) -> Space:
    """Return the parameters that can be tuned for a recipe.

    Args:
        file: the recipe.
        tuning: the options of its app that can be tuned, from the app card.
        known: environment variables that the image or the engine sets.
        keep: names of parameters that are not tuned.
    """
    recipe = file.recipe
    allocators = allocators_of(recipe, known)
    options = cards.verbs(recipe.app)[recipe.verb].options
    found = [
        _ranks(recipe, tuning, options), _threads(recipe, tuning), _input(recipe, tuning),
        _parts(recipe, tuning), _precision(recipe, tuning, options),
        _parameter(ALLOCATOR, next(iter(allocators), None), allocators), _fusion(recipe),
    ]
    return Space(
        tuple(one for one in found if len(one.values) > 1 and one.name not in keep),
        allocators, tuning, cores(recipe),
    )


def _parameter(name: str, default: Value, values: Sequence[Value] | Mapping[str, object]) -> (
        Parameter):
    """Return a parameter with `default` as its first value, then `values`, without duplicates."""
    return Parameter(name, default, tuple(dict.fromkeys((default, *values))))


def cores(recipe: Recipe) -> int:
    """Return the number of cores of a node that the recipe uses."""
    return recipe.resources.cpus_per_task * recipe.resources.tasks_per_node


def doubling(most: int) -> list[int]:
    """Return 1, 2, 4, ... below `most`, and `most` itself as the last value."""
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


def several(recipe: Recipe, tuning: Tuning, options: Mapping[str, Option]) -> bool:
    """Return whether the number of ranks can be changed without changing the global batch."""
    option, given = tuning.strategy, recipe.args
    if option is None or not tuning.launchers or recipe.resources.gpus_per_task:
        return False
    if global_batch(recipe, tuning) is None:
        return False
    own = given.get(option, options[option].default)
    if recipe.launcher == "none":
        return own == options[option].default
    return recipe.launcher in tuning.launchers and own == tuning.launchers[recipe.launcher]


def _ranks(recipe: Recipe, tuning: Tuning, options: Mapping[str, Option]) -> Parameter:
    own, most = recipe.resources.tasks_per_node, cores(recipe)
    values: list[int] = []
    if several(recipe, tuning, options):
        batch = global_batch(recipe, tuning) or 1
        values = [n for n in doubling(most) if most % n == 0 and batch % n == 0]
    return _parameter(RANKS, own, values)


def _threads(recipe: Recipe, tuning: Tuning) -> Parameter:
    if recipe.resources.gpus_per_task:
        return Parameter(THREADS, None, ())
    given = recipe.args.get(tuning.threads) if tuning.threads else recipe.env.get(OMP)
    default = int(given) if isinstance(given, int | str) and str(given).isdecimal() else None
    return _parameter(THREADS, default, doubling(cores(recipe)))


def _input(recipe: Recipe, tuning: Tuning) -> Parameter:
    if tuning.input is None or not recipe.data:
        return Parameter(INPUT, None, ())
    given = recipe.args.get(tuning.input)
    most = min(_MOST_WORKERS, max(2, recipe.resources.cpus_per_task))
    return _parameter(INPUT, given if isinstance(given, int) else None, doubling(most))


def global_batch(recipe: Recipe, tuning: Tuning) -> int | None:
    """Return the number of samples per step on all ranks; None if the recipe does not state it."""
    given = recipe.args.get(tuning.batch) if tuning.batch else None
    if not isinstance(given, int) or isinstance(given, bool):
        return None
    return given * (recipe.resources.tasks_per_node if tuning.batch_of == "rank" else 1)


def _parts(recipe: Recipe, tuning: Tuning) -> Parameter:
    batch = global_batch(recipe, tuning)
    if tuning.parts is None or batch is None:
        return Parameter(PARTS, None, ())
    own = recipe.args.get(tuning.parts, 1)
    share = batch // recipe.resources.tasks_per_node
    return _parameter(PARTS, own if isinstance(own, int) else 1,
                      [n for n in doubling(_MOST_PARTS) if share % n == 0])


def _precision(recipe: Recipe, tuning: Tuning, options: Mapping[str, Option]) -> Parameter:
    if tuning.precision is None:
        return Parameter(PRECISION, None, ())
    option = options[tuning.precision]
    own = recipe.args.get(tuning.precision, option.default)
    gpus = recipe.resources.gpus_per_task > 0
    values = [name for name in option.enum or () if gpus or name not in _FOR_GPUS]
    return _parameter(PRECISION, str(own), values)


def allocators_of(recipe: Recipe, known: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the allocators to try: name -> environment variables that select the allocator.

    The first allocator is the default, which is used without tuning. The result is empty if the
    recipe itself selects the allocator.
    """
    if {"LD_PRELOAD", *GLIBC_TUNABLES} & recipe.env.keys():
        return {}
    libraries = known.get("LD_PRELOAD", "").split(":")
    others = [library for library in libraries if TCMALLOC not in library]
    if len(others) < len(libraries):
        preload = {"LD_PRELOAD": ":".join(others)}
        return {TCMALLOC: {}, KEEPING: {**preload, **GLIBC_TUNABLES}}
    if known.keys() >= GLIBC_TUNABLES.keys():
        return {KEEPING: {}, GLIBC: PLAIN_GLIBC}
    return {GLIBC: {}, KEEPING: GLIBC_TUNABLES}


def _fusion(recipe: Recipe) -> Parameter:
    if "horovod" not in recipe.args.values() or recipe.launcher == "none":
        return Parameter(FUSION, None, ())
    given = recipe.env.get(FUSED, "")
    return _parameter(FUSION, int(given) if given.isdecimal() else None, FUSIONS)
