"""The scripts, and the diffs between scripts, that documents show are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

import shown_scripts

STRATEGIES = shown_scripts.ROOT / "apps/keras-resnet/src/keras_resnet"
LONGEST = 120
"""Limit for the number of lines of a file that implements one strategy of keras-resnet."""


@pytest.mark.parametrize("document", shown_scripts.DOCUMENTS)
def test_a_document_shows_the_current_scripts(document: str) -> None:
    path = shown_scripts.ROOT / document
    assert "\n```diff\n" in shown_scripts.rendered(path)
    assert path.read_text() == shown_scripts.rendered(path), "run: make generate"


@pytest.mark.parametrize("name", [
    "sequential", "mirrored", "multiworker", "parameter_server", "horovod",
])
def test_the_file_of_a_strategy_is_short(name: str) -> None:
    assert len((STRATEGIES / f"{name}.py").read_text().splitlines()) <= LONGEST


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """Write two scripts, and return the path for a document in the same folder.

    The scripts differ from each other in their docstrings, an import and a call.
    """
    text = '"""Module {0}."""\n\nimport {0}\n\ndef main():\n    """Do {0}."""\n'
    text += "    begin()\n    fit({0})\n    end()\n"
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(text.format(name))
    return tmp_path / "page.md"


@pytest.mark.parametrize(("mark", "shown"), [
    ("script: one.py", '```python title="one.py"\nimport one\n\ndef main():\n    """Do one."""\n'
     "    begin()\n    fit(one)\n    end()\n```\n<!-- /script -->"),
    ("diff: one.py two.py", "6 changed lines, from `one.py` to `two.py`:\n\n```diff\n"
     "-import one\n+import two\n\n def main():\n-    \"\"\"Do one.\"\"\"\n"
     "+    \"\"\"Do two.\"\"\"\n     begin()\n-    fit(one)\n+    fit(two)\n     end()\n"
     "```\n<!-- /diff -->"),
    ("diff of code: one.py two.py", "2 changed lines, from `one.py` to `two.py`:\n\n```diff\n"
     "-    fit(one)\n+    fit(two)\n```\n<!-- /diff -->"),
])
def test_a_mark_is_followed_by_what_it_names(document: Path, mark: str, shown: str) -> None:
    kind = "script" if mark.startswith("script") else "diff"
    document.write_text(f"A\n<!-- {mark} -->\nold\n<!-- /{kind} -->\nB\n")
    assert shown_scripts.rendered(document) == f"A\n<!-- {mark} -->\n{shown}\nB\n"
