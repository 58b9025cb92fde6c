"""A resumed training ends like an uninterrupted one, and needs every part of the checkpoint.

The network uses dropout. Therefore the result also depends on the state of PyTorch's random number
generator, which is a part of the checkpoint.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import memory_training as memory
import numpy as np
import pytest
import torch

from resnet_imagenet.settings import TrainSettings
from resnet_imagenet.state import identity
from trainkit import checkpoint, statefile
from trainkit.exits import ArgumentError, RanksDifferError
from trainkit.testing import reading
from trainkit.testing.identities import may_change
from trainkit.testing.refusals import refused
from trainkit.torch.horovod import Horovod
from trainkit.torch.strategy import TorchStrategy

EVERYTHING = {
    "ema_decay": 0.8, "precision": "fp16", "accumulation": 2, "checkpoint_every": 4, "keep": 99,
    "log_every": 3, "max_bad_records": 2,
}
"""Options: 18 steps, 6 per epoch; checkpoints after 4, 6, 8, 12, 16, 18, log after 3, 6, 9, …"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a training that was never interrupted, with all its checkpoints."""
    with pytest.MonkeyPatch.context() as patch:
        return train(tmp_path_factory.mktemp("whole") / "run", patch)


def train(out: Path, monkeypatch: pytest.MonkeyPatch, ranks: int = 1, **more: Any) -> Path:
    asked = memory.settings(out, **EVERYTHING | more)
    dropout = 0.3 if ranks == 1 else 0.0  # ranks that are threads share one generator
    return memory.train(asked, monkeypatch, ranks=ranks, network=memory.Network(dropout))


def at(step: int) -> str:
    return f"step-{step:08d}.npz"


def resumed(
    whole: Path, out: Path, step: int, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> Path:
    """Copy the training `whole` to `out`, and resume the copy from its checkpoint after `step`."""
    shutil.copytree(whole, out, dirs_exist_ok=True)
    return go_on(out, step, monkeypatch, **more)


def go_on(out: Path, step: int, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Path:
    (out / "result.json").unlink()
    return train(out, monkeypatch, resume=str(out / "checkpoints" / at(step)), **more)


def told(out: Path) -> list[Any]:
    """Return all metrics except times, with the step of each value."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    timed = {*reading.TIMED, "resumed_from_step"}
    return [
        (line["key"], line["value"], line["metadata"].get("step")) for line in lines
        if line["key"] not in timed
    ]


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Return path -> leaf of nested dicts and lists."""
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list | tuple):
        pairs = enumerate(value)
    else:
        return {name: value.tolist() if isinstance(value, np.ndarray) else value}
    return {k: v for key, item in pairs for k, v in flat(item, f"{name}/{key}").items()}


TIMES = ("seconds", "epoch_began", "waiting", "communicating", "metrics_offset", "identity/")


def differences(one: Path, two: Path) -> list[str]:
    """Return the paths of the leaves in which the last checkpoints differ, except times."""
    first, second = (flat(memory.last_state(out)) for out in (one, two))
    return [
        name for name in sorted({*first, *second})
        if not any(word in name for word in TIMES)
        and repr(first.get(name)) != repr(second.get(name))
    ]


@pytest.mark.parametrize("step", [4, 6, 8, 16])
def test_going_on_from_any_checkpoint_ends_with_the_same_state_and_metrics(
    step: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = resumed(whole, tmp_path / "run", step, monkeypatch)
    assert differences(whole, out) == []
    assert told(out) == told(whole)
    assert memory.values(out, "resumed_from_step") == [step]
    assert memory.values(out, "bad_record") == ["record 6 cannot be decoded"]
    results = [json.loads((folder / "result.json").read_text()) for folder in (whole, out)]
    for result in results:
        assert result.pop("training_seconds") > 0
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "part", ["network", "average", "optimizer", "scaler", "random", "progress", "bad_records"]
)
def test_a_training_that_gets_another_state_back_ends_elsewhere(
    part: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the part `part` of a checkpoint has other values, the resumed training differs.

    This proves that the previous test fails if a part of the state is not restored.
    """
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    file = out / "checkpoints" / at(16)
    state = checkpoint.load(file)
    other = checkpoint.load(out / "checkpoints" / at(4))
    other["bad_records"] = ["another"]
    window = state["progress"]["window"] | {"losses": [0.0]}
    other["progress"] = state["progress"] | {"window": window}
    if part in state["parts"]:
        write(state | {"parts": state["parts"] | {part: other["parts"][part]}}, file)
    else:
        write(state | {part: other[part]}, file)
    go_on(out, 16, monkeypatch)
    if part == "progress":  # the mean loss of the steps 16 to 18
        assert told(out) != told(whole)
    else:
        assert any(f"/{part}/" in f"{name}/" for name in differences(whole, out))


def write(state: dict[str, Any], file: Path) -> None:
    with file.open("wb") as stream:
        statefile.write(state, stream)


def test_ranks_go_on_with_the_same_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more: dict[str, Any] = {"precision": "fp32", "max_bad_records": 0, "ranks": 2}
    whole = train(tmp_path / "whole", monkeypatch, **more)
    out = resumed(whole, tmp_path / "run", 4, monkeypatch, **more)
    assert differences(whole, out) == []
    assert told(out) == told(whole)


def test_another_number_of_ranks_is_another_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = train(tmp_path / "run", monkeypatch, ranks=2, precision="fp32", max_bad_records=0)
    named = ("global_batch: 8 then, 4 now", "parts: 4 then, 2 now")
    with refused(ArgumentError, "run-changed", *named):
        go_on(out, 8, monkeypatch, precision="fp32", max_bad_records=0)


FREE = (
    "data out threads resume checkpoint_every keep log_every max_steps backend compile_cache "
    "profile stage max_bad_records ranks watchdog"
)


def test_every_setting_that_shapes_weights_or_curve_is_the_same_when_a_training_goes_on() -> None:
    def of(settings: TrainSettings, data: str = "data") -> dict[str, Any]:
        return identity(settings, SimpleNamespace(name=data), TorchStrategy())

    assert may_change(TrainSettings(), of) == set(FREE.split())
    assert of(TrainSettings(), "other") != of(TrainSettings())


def test_a_checkpoint_has_the_bad_records_that_other_ranks_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = memory.order_of(0, memory.TRAIN).split(8)
    assert any(memory.BAD in rows.tensor_split(2)[1] for rows in batches)  # not those of rank 0
    out = train(tmp_path / "run", monkeypatch, ranks=2, precision="fp32", epochs=1)
    assert memory.last_state(out)["bad_records"] == ["record 6 cannot be decoded"]


def test_ranks_that_differ_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Horovod, "_reduce", lambda *_: None)  # averages nothing
    with refused(RanksDifferError, "ranks-differ", "step 1:"):
        train(tmp_path / "run", monkeypatch, ranks=2, precision="fp32", max_bad_records=0)


def test_lars_goes_on_with_its_velocities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more: dict[str, Any] = {"optimizer": "lars", "trust": 0.1, "base_lr": 3.0, "precision": "fp32"}
    whole = train(tmp_path / "whole", monkeypatch, **more)
    assert differences(whole, resumed(whole, tmp_path / "run", 8, monkeypatch, **more)) == []


def test_the_seconds_of_training_add_up_over_the_parts(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole, out := tmp_path / "run")
    file = out / "checkpoints" / at(16)
    state = checkpoint.load(file)
    state["progress"]["seconds"] += 1000
    write(state, file)
    go_on(out, 16, monkeypatch)
    assert json.loads((out / "result.json").read_text())["training_seconds"] > 1000


@pytest.mark.parametrize("ema_decay", [0.0, 0.8])
def test_a_second_stage_begins_with_the_best_weights_and_nothing_else(
    ema_decay: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = memory.train(memory.settings(tmp_path / "first", ema_decay=ema_decay), monkeypatch)
    asked = memory.settings(
        tmp_path / "second", initial=max((first / "checkpoints").iterdir()), warmup_epochs=0.0,
        max_steps=1, log_every=1,
    )
    out = memory.train(asked, monkeypatch)
    start = memory.part(first)
    if ema_decay:
        average = memory.part(first, "average")
        start = {name: average[f"module.{name}"] for name in start}
    one = memory.Network()
    one.load_state_dict(start)
    plain = memory.train(
        memory.settings(tmp_path / "plain", warmup_epochs=0.0, max_steps=1),
        monkeypatch, network=one,
    )
    assert memory.values(out, "learning_rate") == [0.4]  # of the first step, not of the last stage
    for name, tensor in memory.part(plain).items():
        assert torch.equal(memory.part(out)[name], tensor)
