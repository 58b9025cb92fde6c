"""The description of the machine of a run."""

from __future__ import annotations

import pytest

from trimaran.report.run_evidence import Machine


@pytest.mark.parametrize(("flags", "text"), [
    (["avx", "avx2", "avx512f", "avx512_bf16"], "2 cores of P (AVX-512, bf16)"),
    (["avx", "avx2"], "2 cores of P (AVX2)"),
    (["asimd", "bf16", "sve", "sve2"], "2 cores of P (SVE2, bf16)"),
    (["asimd", "bf16", "sve"], "2 cores of P (SVE, bf16)"),
    (["asimd", "bf16"], "2 cores of P (NEON, bf16)"),
    (["asimd", "sve"], "2 cores of P (SVE)"),
    (["asimd"], "2 cores of P (NEON)"),
    ([], "2 cores of P"),
])
def test_a_processor_is_described_by_its_best_instruction_sets(
    flags: list[str], text: str
) -> None:
    machine = Machine(
        os="Debian", kernel="6.1", processor="P", cores=2, memory_gib=8, cpu_flags=flags
    )
    assert machine.text == text
