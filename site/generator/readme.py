"""Write the table of results into the README.

The README stays short: only the home page also has the smoke runs, which take a minute each.
"""

from __future__ import annotations

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
        UsageError: The README lacks the lines before and after the table.
    """
    before, begin, rest = path().read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"{path()}: the lines `{BEGIN}` and `{END}` are missing")
    rows = [
        [f"`{name}`", *row] for name, *row in results.real(sources) if not name.endswith("-smoke")
    ]
    table = markdown.table(results.REAL, rows)
    return f"{before}{BEGIN}\n\n{table}\n\n{results.CAPTION}\n\n{END}{after}"


def write(sources: Sources) -> None:
    """Write the table into the README."""
    write_atomic(path(), text(sources))
