"""Every layout trains like one process, holds only its share of the memory, and can be resumed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from layout_worker import Result, run

from language_model.layout import Layout
from trainkit.testing.program import LIMIT, VARIABLES, launcher
from trainkit.torch.strategy import TorchStrategy

LLAMA = {"shape": "llama-test"}
TWO: dict[str, dict[str, Any]] = {
    "ddp": {},
    "zero1": {"layout": {"data_parallel": "zero1"}},
    "zero2": {"layout": {"data_parallel": "zero2"}},
    "fsdp": {"layout": {"data_parallel": "fsdp", "micro_batches": 2}},
    "tp": {"layout": {"tensor": 2}},
    "tp-llama": {"layout": {"tensor": 2, "micro_batches": 2}, **LLAMA},
    "1f1b": {"layout": {"pipeline": 2, "micro_batches": 4}},
    "gpipe": {"layout": {"pipeline": 2, "micro_batches": 2, "schedule": "gpipe"}, **LLAMA},
    "interleaved": {"layout": {"pipeline": 2, "micro_batches": 4, "schedule": "interleaved"}},
    "cp": {"layout": {"context": 2}, **LLAMA},
    "cp-documents": {"layout": {"context": 2}, "documents": True},
}
"""Name of a test case -> arguments of `layout_worker.run` for a training on two ranks."""
FOUR: dict[str, dict[str, Any]] = {
    "ddp": {},
    "fsdp": {"layout": {"data_parallel": "fsdp"}},
    "tp-pp": {"layout": {"tensor": 2, "pipeline": 2, "micro_batches": 2}},
    "tp-pp-llama": {"layout": {"tensor": 2, "pipeline": 2, "micro_batches": 2}, **LLAMA},
    "fsdp-tp": {"layout": {"data_parallel": "fsdp", "tensor": 2}},
    "ddp-tp": {"layout": {"tensor": 2}, **LLAMA},
    "fsdp-pp": {"layout": {"data_parallel": "fsdp", "pipeline": 2, "micro_batches": 2}},
    "zero1-pp": {"layout": {"data_parallel": "zero1", "pipeline": 2, "micro_batches": 2}},
    "cp-tp": {"layout": {"context": 2, "tensor": 2, "recompute": "selective"}, **LLAMA},
    "fsdp-cp": {"layout": {"context": 2, "data_parallel": "fsdp", "recompute": "full"}},
}
"""Name of a test case -> arguments of `layout_worker.run` for a training on four ranks."""
SAVED = 15
"""The number of steps after which each layout writes a checkpoint."""
CHECKPOINT = f"step-{SAVED:08d}.npz"
TO_TWO = {
    "fsdp -> ddp": ("fsdp", "ddp"), "fsdp-tp -> 1f1b": ("fsdp-tp", "1f1b"),
    "tp-pp -> zero1": ("tp-pp", "zero1"), "ddp -> fsdp": ("ddp", "fsdp"),
    "fsdp-pp -> tp": ("fsdp-pp", "tp"), "zero1-pp -> interleaved": ("zero1-pp", "interleaved"),
    "tp-pp-llama -> cp": ("tp-pp-llama", "cp"),
}
"""Name of a test case -> (layout that writes a checkpoint, layout that loads it).

The first layout is a key of `FOUR` (four ranks), the second is a key of `TWO` (two
ranks).
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the fixtures train all layouts


def train(ranks: int, jobs: list[dict[str, Any]], folder: Path) -> list[Result]:
    """Run jobs of `layout_worker` in `ranks` ranks; return their results."""
    (folder / "jobs.json").write_text(json.dumps([{"layout": {}, **job} for job in jobs]))
    worker, words = str(Path(__file__).with_name("layout_worker.py")), launcher("mesh", ranks)
    done = subprocess.run(
        [*words[:-1], worker, str(folder / "jobs.json"), str(folder / "results.json")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * LIMIT, check=False,
        env=os.environ | VARIABLES,
    )
    assert done.returncode == 0, done.stdout
    found: list[Result] = json.loads((folder / "results.json").read_text())
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for the checkpoints and results of this module."""
    folder = tmp_path_factory.mktemp("layouts")
    for name in ("two", "four"):
        (folder / name).mkdir()
    return folder


def _twice(layouts: dict[str, dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Return jobs that train each layout, and then resume it from the middle."""
    whole = [{**job, "save": str(folder / name), "at": SAVED} for name, job in layouts.items()]
    resumed = [
        {**job, "first": SAVED, "load": str(folder / name / CHECKPOINT)}
        for name, job in layouts.items()
    ]
    return [*whole, *resumed]


@pytest.fixture(scope="module")
def four(place: Path) -> dict[str, Result]:
    """Return name of a training -> its result on four ranks.

    `NAME*` is the second part of the training `NAME`, resumed from a checkpoint.
    """
    names = [*FOUR, *(f"{name}*" for name in FOUR)]
    return dict(zip(names, train(4, _twice(FOUR, place / "four"), place / "four"), strict=True))


@pytest.fixture(scope="module")
def two(place: Path, four: dict[str, Result]) -> dict[str, Result]:
    """Return name of a training -> its result on two ranks.

    `NAME*` is the second part of the training `NAME`, resumed from a checkpoint. A name with an
    arrow is a training that loaded a checkpoint of four ranks.
    """
    others = [
        {**TWO[to], **{key: FOUR[name][key] for key in ("shape",) if key in FOUR[name]},
         "first": SAVED, "load": str(place / "four" / name / CHECKPOINT),
         "save": str(place / "two" / label), "at": SAVED + 3, "steps": SAVED + 4}
        for label, (name, to) in TO_TWO.items()
    ]
    names = [*TWO, *(f"{name}*" for name in TWO), *TO_TWO]
    jobs = [*_twice(TWO, place / "two"), *others]
    return dict(zip(names, train(2, jobs, place / "two"), strict=True))


@pytest.fixture(scope="module")
def alone() -> dict[str, Result]:
    """Return the results of one process for GPT-2, for Llama, and with a mask between documents."""
    return {
        "gpt2": run(TorchStrategy(), Layout()),
        "llama": run(TorchStrategy(), Layout(), shape="llama-test"),
        "documents": run(TorchStrategy(), Layout(), documents=True),
    }


def reference(job: dict[str, Any], alone: dict[str, Result]) -> Result:
    """Return the result of one process for the network of `job`."""
    return alone["documents" if "documents" in job else "llama" if "shape" in job else "gpt2"]


def check(found: Result, expected: Result) -> None:
    assert found["losses"] == pytest.approx(expected["losses"], abs=1e-4)
    assert found["norms"] == pytest.approx(expected["norms"], abs=1e-4)
    assert found["last"] == pytest.approx(expected["last"], abs=1e-4)


@pytest.mark.parametrize("name", TWO)
def test_two_ranks_train_like_one_process(
    name: str, two: dict[str, Result], alone: dict[str, Result]
) -> None:
    check(two[name], reference(TWO[name], alone))


@pytest.mark.parametrize("name", FOUR)
def test_four_ranks_train_like_one_process(
    name: str, four: dict[str, Result], alone: dict[str, Result]
) -> None:
    check(four[name], reference(FOUR[name], alone))


@pytest.mark.parametrize("name", TWO)
def test_two_ranks_resume_with_the_same_bits(name: str, two: dict[str, Result]) -> None:
    assert two[f"{name}*"]["digest"] == two[name]["digest"]
    assert two[f"{name}*"]["losses"] == two[name]["losses"][SAVED:]


@pytest.mark.parametrize("name", FOUR)
def test_four_ranks_resume_with_the_same_bits(name: str, four: dict[str, Result]) -> None:
    assert four[f"{name}*"]["digest"] == four[name]["digest"]
    assert four[f"{name}*"]["losses"] == four[name]["losses"][SAVED:]


@pytest.mark.parametrize("label", TO_TWO)
def test_another_layout_continues_with_the_same_losses(
    label: str, two: dict[str, Result], four: dict[str, Result]
) -> None:
    """Two ranks that load a checkpoint of four get the losses of the four.

    The first loss depends on the loaded weights, later losses also on the optimizer state.
    """
    name, _ = TO_TWO[label]
    expected = four[name]["losses"][SAVED : SAVED + 4]
    assert two[label]["losses"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("label", TO_TWO)
def test_one_process_continues_what_two_ranks_continued(
    label: str, two: dict[str, Result], place: Path
) -> None:
    file = place / "two" / label / f"step-{SAVED + 3:08d}.npz"
    shape = FOUR[TO_TWO[label][0]].get("shape", "gpt2-test")
    found = run(TorchStrategy(), Layout(), shape=shape, first=SAVED + 3, steps=SAVED + 4,
                load=str(file))
    assert found["losses"] == pytest.approx(two[label]["losses"][3:], abs=1e-5)


def test_ranks_hold_only_their_share(two: dict[str, Result], four: dict[str, Result]) -> None:
    """A rank holds its share of weights, gradients and optimizer state, and little more.

    With Adam, weights and gradients are a quarter of the bytes each; the optimizer state is half.
    """
    whole = four["ddp"]["bytes"][0]
    assert max(four["fsdp"]["bytes"]) <= 0.30 * whole
    assert max(four["fsdp-tp"]["bytes"]) <= 0.30 * whole
    assert max(four["tp-pp"]["bytes"]) <= 0.35 * whole  # both ends have the tied table of tokens
    assert max(two["zero1"]["bytes"]) <= 0.76 * whole
    assert max(two["fsdp"]["bytes"]) <= 0.51 * whole


def test_a_checkpoint_has_each_value_once(four: dict[str, Result], place: Path) -> None:
    sizes = {
        name: sum(file.stat().st_size for file in (place / "four" / name).rglob("*.safetensors"))
        for name in ("ddp", "fsdp", "tp-pp", "zero1-pp")
    }
    values = 3 * 4 * 61152  # weights and two moments in fp32
    headers = 200_000
    assert all(values <= size <= values + headers for size in sizes.values()), sizes


def test_ranks_share_the_writing(four: dict[str, Result], place: Path) -> None:
    files = list((place / "four" / "ddp").rglob("*.safetensors"))
    assert len(files) == 4
    assert min(file.stat().st_size for file in files) > 0.1 * 3 * 4 * 61152
