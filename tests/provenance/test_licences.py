"""Tests of licences: their SPDX identifiers, and the number of packages of each kind.

A name gets an SPDX identifier only if it is unambiguous. Kinds are, for example, permissive and
copyleft.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from refusals import refused
from trimaran.provenance import licences


@pytest.mark.parametrize(("name", "identifier"), [
    ("GPL-2", "GPL-2.0-only"), ("GPL-2+", "GPL-2.0-or-later"), ("GPL-2.0+", "GPL-2.0-or-later"),
    ("LGPL-2.1", "LGPL-2.1-only"), ("LGPLv2.1+", "LGPL-2.1-or-later"),
    ("GFDL-NIV-1.3+", "GFDL-1.3-no-invariants-or-later"), ("GFDL-1.2", "GFDL-1.2-only"),
    ("Expat", "MIT"), ("MIT License", "MIT"), ("BSD-3-clause", "BSD-3-Clause"),
    ("Apache-2", "Apache-2.0"), ("Apache License 2.0", "Apache-2.0"), ("zlib", "Zlib"),
    ("Python Software Foundation License", "PSF-2.0"), ("Artistic", "Artistic-1.0-Perl"),
    ("BSD License", None), ("GPL", None), ("GPL-7", None), ("public-domain", None), ("", None),
    ("GPL-2+ with Autoconf exception", None), ("MIT AND BSD-3-Clause", None),
])
def test_a_name_with_one_meaning_has_an_identifier(name: str, identifier: str | None) -> None:
    assert licences.identifier(name) == identifier


@pytest.mark.parametrize(("names", "kinds"), [
    (["MIT"], {"permissive"}), (["Expat", "GPL-2+"], {"permissive", "copyleft"}),
    (["LGPL-2.1+ or BSD-3-clause"], {"weak copyleft", "permissive"}),
    (["MPL-2.0 AND MIT"], {"weak copyleft", "permissive"}),
    (["NVIDIA Proprietary Software"], {"proprietary"}),
    (["LicenseRef-NVIDIA-Proprietary"], {"proprietary"}),
    (["public-domain"], {"public domain"}), (["GFDL-NIV-1.3"], {"documentation"}),
    (["ad-hoc"], {"other"}), ([], {"not stated"}),
])
def test_kinds(names: list[str], kinds: set[str]) -> None:
    assert licences.groups(names) == kinds


def test_what_is_settled_by_hand_is_spdx_with_a_reason(tmp_path: Path) -> None:
    settled = licences.settled()
    assert len({entry.reason for entry in settled.values()}) == 10
    assert settled["python3.11"].licence == "Python-2.0"
    wrong = tmp_path / "licences.yaml"
    wrong.write_text("debian:\n  - {packages: [a], licence: Mine-1.0, reason: so}\n")
    with refused("file-invalid", f"{wrong}:2: ", "Mine-1.0"):
        licences.settled(wrong)


def test_a_summary_counts_a_package_once_in_each_kind_it_names() -> None:
    found = licences.summary([["MIT", "BSD-3-clause"], ["GPL-2", "MIT"], []])
    assert found == {"copyleft": 1, "permissive": 2, "not stated": 1}
