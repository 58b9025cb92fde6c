"""The network that a checkpoint describes is checked before it is built."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from language_model.shapes import SHAPES
from language_model.state import shape_of
from trainkit.exits import DataError

SMALL = dataclasses.asdict(SHAPES["llama-test"])
ABOUT: dict[str, Any] = {
    "document_mask": False, "end": 256, "model": "llama-test", "precision": "fp32", "sequence": 8,
    "shape": SMALL, "tokenizer": None,
}


@pytest.mark.parametrize(("about", "message"), [
    (ABOUT | {"shape": SMALL | {"layers": -3}}, "num_hidden_layers is -3"),
    (ABOUT | {"shape": SMALL | {"layers": 10**8}}, "100000000 layers"),
    (ABOUT | {"shape": SMALL | {"width": "x"}}, "hidden_size is 'x'"),
    (ABOUT | {"shape": SMALL | {"width": 2**31 - 4, "heads": 2, "key_heads": 2}}, "parameters"),
    (ABOUT | {"shape": SMALL | {"heads": 0}}, "num_attention_heads is 0"),
    (ABOUT | {"shape": SMALL | {"family": "bert"}}, "num_hidden_layers|model_type"),
    (ABOUT | {"shape": SMALL | {"rotary_scaling": []}}, "index out of range"),
    ({name: ABOUT[name] for name in ABOUT if name != "end"}, "no end"),
    ([], "indices"),
])
def test_checkpoints_with_an_impossible_description_are_refused(about: Any, message: str) -> None:
    state = {"about": about, "parts": {"network": dict.fromkeys(range(40))}}
    with pytest.raises(DataError, match=message) as error:
        shape_of(state)
    assert error.value.code == "checkpoint-mismatch"
    assert shape_of(state | {"about": ABOUT}) == SHAPES["llama-test"]
