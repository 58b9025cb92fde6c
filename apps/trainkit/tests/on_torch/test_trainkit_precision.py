"""Which numbers a training computes in when it is left to its devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from trainkit import provenance
from trainkit.torch.precision import has_bf16, settle
from trainkit.torch.strategy import TorchStrategy

CPU = torch.device("cpu")


class OtherRank(TorchStrategy):
    """Two ranks; the other says what it is told to."""

    other = True

    def gather(self, value: Any) -> list[Any]:
        return [value, self.other]


@pytest.mark.parametrize(("key", "flags", "found"), [
    ("flags", "fpu avx avx2 fma", "fp32"),
    ("flags", "fpu avx2 avx512f avx512_vnni", "fp32"),  # AVX-512 alone has none
    ("flags", "fpu avx2 avx512f avx512_bf16", "bf16"),
    ("flags", "fpu avx2 amx_bf16", "bf16"),
    ("Features", "fp asimd sve", "fp32"),
    ("Features", "fp asimd sve bf16", "bf16"),
])
def test_a_cpu_computes_in_what_it_has_instructions_for_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, key: str,
    flags: str, found: str,
) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor : 0\nmodel name : A processor\n{key} : {flags}\n")
    monkeypatch.setattr(provenance, "Path", lambda _: file)
    assert settle("auto", TorchStrategy()) == found
    assert capsys.readouterr().out.startswith(f"precision {found}: the cpu has ")


def test_a_gpu_that_emulates_bf16_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation
    )
    assert not has_bf16(torch.device("cuda", 0))


def test_one_rank_without_bf16_decides_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "cpu_flags", lambda: ["avx2", "avx512_bf16"])
    strategy = OtherRank()
    assert settle("auto", strategy) == "bf16"
    strategy.other = False
    assert settle("auto", strategy) == "fp32"


@pytest.mark.parametrize("asked", ["fp32", "tf32", "bf16", "fp16"])
def test_a_precision_that_is_asked_for_is_taken(
    asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert settle(asked, TorchStrategy()) == asked
    assert capsys.readouterr().out == ""
