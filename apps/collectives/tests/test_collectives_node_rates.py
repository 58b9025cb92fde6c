"""Tests of the rates of a node: counted operations and bytes, and reads of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from collectives import importing, node_rates

CPU = torch.device("cpu")


@pytest.fixture
def half_a_second(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Replace the timing: each measured call counts as 0.5 s. Return the list of the calls."""
    calls: list[object] = []

    def measured(call: object, synchronize: object, seconds: float) -> float:
        calls.append(call)
        call()  # type: ignore[operator]
        return 0.5

    monkeypatch.setattr(node_rates, "median_seconds", measured)
    return calls


def test_a_matrix_product_has_two_operations_for_each_of_n_cubed(half_a_second: object) -> None:
    assert node_rates.gemm(CPU, 64, 0.0, lambda: None) == pytest.approx(2 * 64**3 / 0.5 / 1e12)


def test_the_triad_counts_three_arrays(half_a_second: object) -> None:
    assert node_rates.triad(CPU, 4096, 0.0, lambda: None) == pytest.approx(3 * 4096 / 0.5 / 1e9)


def test_the_median_leaves_out_the_first_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that a call moves: the first takes 100 s, the others 1, 2 and 6 s.
    now, lasts = [0.0], iter([100.0, 1.0, 2.0, 6.0])
    monkeypatch.setattr(node_rates.time, "perf_counter", lambda: now[0])

    def call() -> None:
        now[0] += next(lasts)

    assert node_rates.median_seconds(call, lambda: None, 8.0) == 2.0


@pytest.mark.parametrize(("pilot", "order"), [(10.0, 4096), (0.1, 2048), (0.02, 1024), (1e-9, 512)])
def test_the_order_of_the_matrices_fits_the_time(pilot: float, order: int) -> None:
    # 4 products of 2048 in 1 s need 0.069 TFLOP/s, of 1024 0.0086.
    assert node_rates.fitting_order(CPU, pilot, 1.0) == order


def test_the_arrays_fit_memory_and_time() -> None:
    assert node_rates.fitting_bytes(CPU, 1 << 40, 100.0, 1.0) == 1 << 28
    assert node_rates.fitting_bytes(CPU, 1 << 27, 100.0, 1.0) == 1 << 26
    assert node_rates.fitting_bytes(CPU, 1 << 40, 3.0, 1.0) == 1 << 26
    assert node_rates.fitting_bytes(CPU, 1 << 20, 100.0, 1.0) == 1 << 20


def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    node_rates.write_file(path, 10_000_000, 60.0)
    assert path.stat().st_size == 10_000_000
    assert node_rates.read_file(path, 60.0) > 0
    with pytest.raises(FileExistsError):  # never overwritten
        node_rates.write_file(path, 1, 60.0)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    with pytest.raises(OSError, match="link"):
        node_rates.write_file(tmp_path / "link", 1, 60.0)
    assert not (tmp_path / "target").exists()


def test_an_empty_file_has_no_rate(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(OSError, match="is empty"):
        node_rates.read_file(tmp_path / "empty", 60.0)


def test_a_missing_file_is_not_removed_from_the_cache(tmp_path: Path) -> None:
    importing.uncache(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    importing.uncache(tmp_path / "pipe")


def test_an_import_that_takes_too_long_has_no_time() -> None:
    assert importing.again(0.001) is None
