"""Tests of the precision that a training chooses for its devices, and of PyTorch's switches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trainkit import provenance
from trainkit.torch.precision import has_bf16, prepare, settle
from trainkit.torch.strategy import TorchStrategy

CPU = torch.device("cpu")


class OtherRank(TorchStrategy):
    """The strategy of one of two ranks; `gather` returns its own value and `other`.

    The attribute `other` is the value that the second rank contributes.
    """

    other = True

    def gather(self, value: Any) -> list[Any]:
        return [value, self.other]


@pytest.mark.parametrize(("key", "flags", "found"), [
    ("flags", "fpu avx avx2 fma", "fp32"),
    ("flags", "fpu avx2 avx512f avx512_vnni", "fp32"),  # AVX-512 alone has none
    ("flags", "fpu avx2 avx512f avx512_bf16", "bf16"),
    ("flags", "fpu avx2 amx_bf16", "bf16"),
    ("Features", "fp asimd sve", "fp32"),
    ("Features", "fp asimd sve bf16", "fp32"),  # oneDNN has no fast gradients in bf16 there
])
def test_a_cpu_computes_in_what_it_has_instructions_for_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, key: str,
    flags: str, found: str,
) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor : 0\nmodel name : A processor\n{key} : {flags}\n")
    machine = "x86_64" if key == "flags" else "aarch64"
    monkeypatch.setattr(provenance, "Path", lambda _: file)
    monkeypatch.setattr(provenance.platform, "machine", lambda: machine)
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


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore PyTorch's switches for determinism and TF32 after the test."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), cudnn.benchmark
    kept = cuda.allow_tf32, cudnn.allow_tf32
    yield
    torch.use_deterministic_algorithms(before[0])
    cudnn.benchmark = before[1]
    cuda.allow_tf32, cudnn.allow_tf32 = kept


@pytest.mark.usefixtures("switches")
@pytest.mark.parametrize(("device", "deterministic", "exact"), [
    ("cpu", False, True), ("cpu", True, True), ("cuda", False, False), ("cuda", True, True),
])
@pytest.mark.parametrize(("precision", "fast"), [
    ("fp32", False), ("tf32", True), ("bf16", True), ("fp16", True),
])
def test_products_and_convolutions_are_as_exact_as_asked_for(
    device: str, deterministic: bool, exact: bool, precision: str, fast: bool
) -> None:
    for way in (True, False):  # whatever was there before
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = way
        torch.backends.cudnn.benchmark = way
        prepare(precision, torch.device(device), seed=77, deterministic=deterministic)
        assert torch.backends.cuda.matmul.allow_tf32 is fast
        assert torch.backends.cudnn.allow_tf32 is fast
        assert torch.backends.cudnn.benchmark is not exact
        assert torch.are_deterministic_algorithms_enabled() is exact
    wanted = ":4096:8" if (device, deterministic) == ("cuda", True) else None
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == wanted


@pytest.mark.usefixtures("switches")
def test_random_numbers_follow_the_seed() -> None:
    drawn = []
    for seed in (3, 4, 3):
        prepare("fp32", CPU, seed=seed, deterministic=False)
        drawn.append(torch.rand(4).tolist())
    assert drawn[0] == drawn[2] != drawn[1]
