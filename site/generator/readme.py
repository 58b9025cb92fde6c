"""Write the table of results into the README, with the number of recipes in each status.

The README stays short: the home page also has the smoke runs, which take a minute each, and the
page of results has every published number.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from generator import markdown, results
from generator.sources import Sources
from trimaran import paths
from trimaran.errors import UsageError
from trimaran.files import write_atomic

BEGIN = "<!-- results: written by `make generate` -->"
END = "<!-- end of results -->"


def path() -> Path:
    """Return the path of the README."""
    return paths.repository() / "README.md"


def text(sources: Sources) -> str:
    """Return the README with the current table of results.

    Raises:
        UsageError: The README lacks the comment lines that mark begin and end of the table.
    """
    before, begin, rest = path().read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"{path()}: the lines `{BEGIN}` and `{END}` are missing")
    rows = [
        [f"`{name}`", *row] for name, *row in results.real(sources) if not name.endswith("-smoke")
    ]
    table = markdown.table(results.REAL, rows)
    caption = f"{results.CAPTION} {_counts(sources)}"
    return f"{before}{BEGIN}\n\n{table}\n\n{caption}\n\n{END}{after}"


def _counts(sources: Sources) -> str:
    """Return a sentence with the number of recipes in each status.

    Each run (point) of a scaling series counts as a recipe of its own.
    """
    found = Counter(one.status for one in sources.standings.values())
    return (
        f"Of {found.total()} recipes (each run of a scaling series counts), {found['reproduced']}"
        f" are reproduced (a run has the verdict PASS), {found['measured']} measured without PASS,"
        f" {found['published']} published by others and not run by us, and {found['open']} have no"
        " number yet: the page Results of the site has all of them."
    )


def write(sources: Sources) -> None:
    """Write the current table of results into the README."""
    write_atomic(path(), text(sources))
