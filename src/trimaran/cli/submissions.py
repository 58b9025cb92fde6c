"""Select the jobs that `submit` queues for one recipe, a scaling series or several recipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimaran.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trimaran.recipes.cards import Argument
    from trimaran.recipes.library import RecipeFile
    from trimaran.reporting import Reporter
    from trimaran.run.request import Request
    from trimaran.site_file import Cluster

LARGEST = 100_000
"""Maximum accepted number of nodes; no machine has more nodes."""

MOST_SEED = 2**32 - 1
"""Maximum accepted seed: NumPy's random generators take 32 bits."""


@dataclass(frozen=True)
class Ways:
    """The options of `submit` that determine how recipes are queued.

    Attributes:
        nodes: value of `--nodes`.
        seeds: value of `--seeds`.
        together: whether all trainings share one job.
        chain: whether each recipe starts from the last checkpoint of the recipe before it.
        form: kind of the script that `--dry-run` prints: "docker"; None: the job script.
    """

    nodes: str | None
    seeds: str | None
    together: bool
    chain: bool
    form: str | None

    def check(self, recipes: Sequence[str], *, dry_run: bool = False) -> None:
        """Check that the options agree with each other and with the number of recipes.

        Raises:
            UsageError: two options exclude each other, another option is needed, or the value of
                `--form` is unknown.
        """
        from trimaran.cluster import docker

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
        if self.form not in (None, docker.FORM):
            raise UsageError(f"unknown --form {self.form}", code="argument-invalid",
                             hint=f"known: {docker.FORM}")
        if self.form is not None and not dry_run:
            raise _conflict(f"--form {self.form} needs --dry-run: Trimaran prints this form and"
                            " cannot submit it", "add --dry-run")

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

    def previews(self, requests: Sequence[Request], cluster: Cluster) -> list[str]:
        """Return the scripts that would be queued.

        Raises:
            UsageError: a request cannot be a job of the cluster.
        """
        from trimaran.cluster import docker, recipe_chain, submission, together

        if self.together:
            return [together.preview(requests, cluster)]
        if self.chain:
            return [recipe_chain.preview(requests, cluster)]
        render = submission.preview if self.form is None else docker.render
        return [render(request, cluster) for request in requests]

    def check_requests(self, requests: Sequence[Request], cluster: Cluster) -> None:
        """Check the requests before anything is prepared.

        Raises:
            UsageError: a request cannot be a job of the cluster.
        """
        from trimaran.cluster import recipe_chain, submission, together

        if self.together:
            together.check(requests)
        elif self.chain:
            recipe_chain.check(requests)
        else:
            for request in requests:
                submission.check(request, cluster)

    def submit(
        self, requests: Sequence[Request], name: str, cluster: Cluster, reporter: Reporter
    ) -> Path:
        """Queue the requests.

        Return the run directory of a single run, or the folder that contains the run directories of
        all requests.

        Raises:
            UsageError, BuildError, RunError: as in `submission.submit`.
        """
        from trimaran.cluster import recipe_chain, submission, together

        if len(requests) > 1 and not self.together and not self.chain:
            return submission.submit_series(requests, name, cluster, reporter)
        if self.together:
            done = together.submit(requests, name, cluster, reporter)
        elif self.chain:
            done = recipe_chain.submit(requests, name, cluster, reporter)
        else:
            done = submission.submit(requests[0], name, cluster, reporter)
        reporter.note(f"job {done.job} of {name}; trimaran status, trimaran logs -f RUN")
        return done.directory.parent if self.chain else done.directory


def folders(
    file: RecipeFile, files: Sequence[RecipeFile], words: Sequence[str]
) -> dict[str, Path]:
    """Return the `--data` folder of each data set of the recipe `file`, keyed by the data set.

    Folders of data sets that only other recipes of the command read are left out.

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
