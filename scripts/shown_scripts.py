"""Write scripts, and the differences between two scripts, into the documents that show them.

    python scripts/shown_scripts.py

Pairs of comments mark the places in a document. The text between such comments is replaced. Paths
are relative to the folder of the document.

    <!-- script: PATH --> ... <!-- /script -->                  # a whole script
    <!-- diff: PATH PATH --> ... <!-- /diff -->                 # how the second one differs
    <!-- diff of code: PATH PATH --> ... <!-- /diff -->         # only in their code

Docstrings of modules are left out. A `diff of code` also omits all other docstrings, imports, blank
lines, and lines that differ only in their comments, as `trimaran compare` does. For example, it
shows the code that has to change for another strategy of data parallelism.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from trimaran.compare.code_difference import changed_lines

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("apps/keras-resnet/README.md", "site/docs/tutorials/own-script.md")
"""Paths of all documents that show scripts or diffs of scripts, relative to the repository."""
LANGUAGES = {".py": "python", ".sh": "slurm"}
"""Suffix of a script -> language of its code block.

The language `sh` is not used, because tests execute the commands in such blocks.
"""

_DOCSTRING = re.compile(r'\A(\s*)""".*?"""\n+', re.DOTALL)
_MARKED = re.compile(
    r"(?P<mark><!-- (?P<kind>script|diff|diff of code): (?P<paths>[^>]+) -->\n)"
    r".*?(?P<end><!-- /(?:script|diff) -->)",
    re.DOTALL,
)


def script(file: Path) -> str:
    """Return the text of a script without the docstring of the module."""
    return _DOCSTRING.sub("", file.read_text(encoding="utf-8"), count=1)


def diff(before: Path, after: Path) -> list[str]:
    """Return the lines that differ between two scripts, with one unchanged line around each change.

    A line `@@` separates changes that are far from each other.
    """
    found = difflib.unified_diff(
        script(before).splitlines(), script(after).splitlines(), lineterm="", n=1
    )
    lines = list(found)[3:]  # without the names of the files and the place of the first change
    return ["@@" if line.startswith("@@") else line.rstrip() for line in lines]


def _shown(kind: str, files: Sequence[Path]) -> str:
    """Return the Markdown text that shows a script, or the difference between two scripts.

    Args:
        kind: `script`, `diff` or `diff of code`, as in the comment that marks the place.
        files: the script, or the two scripts.
    """
    if kind == "script":
        [file] = files
        return f'```{LANGUAGES[file.suffix]} title="{file.name}"\n{script(file)}```\n'
    before, after = files
    changes = (changed_lines if kind == "diff of code" else diff)(before, after)
    count, text = sum(line[:1] in ("-", "+") for line in changes), "\n".join(changes)
    return (f"{count} changed lines, from `{before.name}` to `{after.name}`:\n\n"
            f"```diff\n{text}\n```\n")


def rendered(document: Path) -> str:
    """Return the text of a document in which the shown scripts and diffs are up to date.

    Only the text between pairs of comments such as `<!-- script: PATH -->` and `<!-- /script -->`
    is replaced.
    """
    def replaced(found: re.Match[str]) -> str:
        files = [document.parent / path for path in found["paths"].split()]
        return f"{found['mark']}{_shown(found['kind'], files)}{found['end']}"

    return _MARKED.sub(replaced, document.read_text(encoding="utf-8"))


def main(root: Path = ROOT) -> int:
    """Write the current scripts and differences into all documents; return 0."""
    for path in DOCUMENTS:
        (root / path).write_text(rendered(root / path), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
