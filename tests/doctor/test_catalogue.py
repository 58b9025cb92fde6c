"""Each finding of `trimaran doctor` is explained, and tests cause each one above the level "ok"."""

from __future__ import annotations

import re
from pathlib import Path

from trimaran.doctor import checks

SOURCES = [*Path(__file__).parent.glob("test_*.py"),
           *(Path(__file__).parents[1] / "integration").glob("test_doctor*.py")]


def test_every_id_is_caused_by_a_test() -> None:
    text = "".join(path.read_text() for path in SOURCES)
    caused = set(re.findall(r"""\bcaused\(\s*["']([a-z-]+)["']""", text))
    possible = {name for name, known in checks.FINDINGS.items() if known.level != "ok"}
    assert possible - caused == set()
    assert caused - set(checks.FINDINGS) == set()


def test_every_id_is_explained() -> None:
    for name, known in checks.FINDINGS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        assert known.group in checks.ORDER
        assert known.meaning.endswith("."), name
        assert known.tested, name
        assert bool(known.remedy) == (known.level != "ok"), name
        assert not known.remedy.endswith("."), name
