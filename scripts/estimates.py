"""Write the estimated memory of the recipes of each app that can estimate it.

    python scripts/estimates.py     # write estimates.json of each app with the verb `estimate`

The command `python -m MODULE estimate` computes the estimates, in the environment of the app's
framework (`scripts/app_tests.py setup`). The pages of the recipes show the estimates.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from trimaran import paths
from trimaran.data import contracts
from trimaran.plan.estimates import VERB, path
from trimaran.recipes import cards, library
from trimaran.recipes.recipe import Recipe


def arguments(recipe: Recipe, known: dict[str, Any]) -> list[str]:
    """Return the arguments of the verb `estimate` for a recipe.

    Args:
        recipe: recipe of a training; if it is a series, the recipe of one of its runs.
        known: options of `estimate` -> their descriptions in `options.json`; arguments of the
            recipe for other options are left out.
    """
    given: dict[str, Any] = dict(recipe.args)
    given["ranks"] = recipe.resources.nodes * recipe.resources.tasks_per_node
    for name in recipe.data:
        tokenizer = getattr(contracts.load(name), "tokenizer", "")
        if tokenizer.startswith("bpe:"):
            given["vocabulary"] = int(tokenizer.removeprefix("bpe:"))
    return [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in given.items() if name in known and value is not False
    ]


def of_app(app: str) -> dict[str, Any]:
    """Return the estimates of the training recipes of an app.

    The result maps a recipe to the arguments and the output of the verb `estimate`.

    Raises:
        subprocess.CalledProcessError: an estimate failed; its message is on stderr.
    """
    card = cards.load(app).card
    python = paths.repository() / f".venv-apps-{card.framework}/bin/python"
    options = json.loads((paths.repository() / "apps" / app / "options.json").read_text())
    known = options["verbs"][VERB]["options"]
    found = {}
    for name in library.files():
        for point, recipe in library.definition(name).variants():
            if recipe.app == app and recipe.verb == "train":
                words = arguments(recipe, known)
                done = subprocess.run(
                    [str(python), "-m", card.module, VERB, *words, "--json"], check=True,
                    stdout=subprocess.PIPE,
                )
                whole = name if point is None else f"{name}@{point}"
                found[whole] = {"arguments": words, VERB: json.loads(done.stdout)}
    return dict(sorted(found.items()))


def main() -> int:
    """Write `estimates.json` of each app that can estimate its memory, and print the paths."""
    for app in cards.names():
        if VERB in cards.load(app).card.verbs:
            file = path(app)
            file.write_text(json.dumps(of_app(app), indent=1) + "\n", encoding="utf-8")
            sys.stdout.write(f"{file.relative_to(paths.repository())}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
