"""The file `config.json` of Hugging Face `transformers`, which describes the shape of a network."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from language_model.shapes import RotaryScaling, Shape

MOST_PARAMETERS = 1 << 50
"""The most parameters of a network; PyTorch cannot describe arrays of more than 2^63 bytes."""


def config_of(shape: Shape) -> dict[str, Any]:
    """Return the content of `config.json` for a shape."""
    common: dict[str, Any] = {
        "model_type": shape.family, "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied, "dtype": "float32",
        "bos_token_id": None, "eos_token_id": None,
    }
    if shape.family == "gpt2":
        return common | {
            "architectures": ["GPT2LMHeadModel"], "n_layer": shape.layers, "n_embd": shape.width,
            "n_head": shape.heads, "n_inner": shape.hidden, "n_positions": shape.positions,
            "layer_norm_epsilon": shape.epsilon, "activation_function": "gelu_new",
        }
    scaling = shape.rotary_scaling
    return common | {
        "architectures": ["LlamaForCausalLM"], "num_hidden_layers": shape.layers,
        "hidden_size": shape.width, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_heads, "intermediate_size": shape.hidden,
        "max_position_embeddings": shape.positions, "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta, "hidden_act": "silu",
        "rope_scaling": None if scaling is None else {
            "rope_type": "llama3", "factor": scaling[0], "low_freq_factor": scaling[1],
            "high_freq_factor": scaling[2], "original_max_position_embeddings": scaling[3],
        },
    }


class Config:
    """A `config.json`, whose entries are checked when they are read.

    Args:
        entries: the content.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = entries

    def count(self, name: str, default: int | None = None) -> int:
        """Return the entry `name`, a whole number from 1 to 2^31 - 1, or else `default`.

        Raises:
            ValueError: the entry is not such a number, or is missing without a default.
        """
        found = self._entries.get(name)
        found = default if found is None else found
        if type(found) is not int or not 1 <= found < 1 << 31:
            raise ValueError(f"{name} is {found!r}, not a whole number of at least 1")
        return found

    def word(self, names: Sequence[str], default: str) -> str:
        """Return a string: the first entry among `names` that exists, or else `default`.

        Raises:
            ValueError: the entry is not a string.
        """
        for name in names:
            found = self._entries.get(name)
            if found is not None:
                if not isinstance(found, str):
                    raise ValueError(f"{name} is {found!r}, not a text")
                return found
        return default

    def number(self, name: str, default: float | None = None) -> float:
        """Return the entry `name`, a number above 0, or else `default`.

        Raises:
            ValueError: the entry is not such a number, or is missing without a default.
        """
        found = self._entries.get(name)
        found = default if found is None else found
        if isinstance(found, bool) or not isinstance(found, int | float) or not (
            0 < found <= sys.float_info.max  # JSON also describes larger whole numbers
        ):
            raise ValueError(f"{name} is {found!r}, not a number above 0")
        return float(found)

    def switch(self, name: str, default: bool) -> bool:
        """Return the entry `name`, which is true or false, or else `default`.

        Raises:
            ValueError: the entry is neither true nor false.
        """
        found = self._entries.get(name, default)
        if not isinstance(found, bool):
            raise ValueError(f"{name} is {found!r}, not true or false")
        return found

    def part(self, name: str) -> Config | None:
        """Return the entry `name`, a JSON object, or None if the entry is missing or null.

        Raises:
            ValueError: the entry is not an object.
        """
        found = self._entries.get(name)
        if found is not None and not isinstance(found, dict):
            raise ValueError(f"{name} is {found!r}, not an object")
        return None if found is None else Config(found)

    def demand(self, name: str, default: Any, *allowed: Any) -> None:
        """Refuse an entry that describes a network which this app does not support.

        Raises:
            ValueError: the entry has none of the values that are allowed.
        """
        found = self._entries.get(name, default)
        if found not in allowed:
            raise ValueError(f"{name} is {found!r}, but this app has only "
                             f"{' or '.join(map(repr, allowed))}")


def shape_of(entries: Mapping[str, Any]) -> Shape:
    """Return the shape that a `config.json` describes, with the same defaults as transformers.

    Raises:
        ValueError: this app does not support the network; the message names the entry.
    """
    config = Config(entries)
    config.demand("model_type", None, "gpt2", "llama")
    shape = _gpt2(config) if entries["model_type"] == "gpt2" else _llama(config)
    if shape.width % shape.heads or shape.heads % shape.key_heads or shape.head_width % 2:
        raise ValueError(f"a width of {shape.width} cannot be divided over {shape.heads} heads, or "
                         f"these over {shape.key_heads} heads of keys and values")
    if shape.parameters > MOST_PARAMETERS:
        raise ValueError(f"it describes a network of {shape.parameters} parameters, more than "
                         f"{MOST_PARAMETERS}")
    return shape


def _gpt2(config: Config) -> Shape:
    config.demand("activation_function", "gelu_new", "gelu_new", "gelu_pytorch_tanh")
    config.demand("scale_attn_weights", True, True)
    for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        config.demand(name, False, False)
    width, heads = config.count("n_embd"), config.count("n_head")
    return Shape(
        "gpt2", config.count("n_layer"), width, heads, heads, config.count("n_inner", 4 * width),
        config.count("vocab_size"), config.count("n_positions"),
        tied=config.switch("tie_word_embeddings", True),
        epsilon=config.number("layer_norm_epsilon", 1e-5),
    )


def _llama(config: Config) -> Shape:
    config.demand("hidden_act", "silu", "silu")
    for name in ("attention_bias", "mlp_bias"):
        config.demand(name, False, False)
    width, heads = config.count("hidden_size"), config.count("num_attention_heads")
    config.demand("head_dim", None, None, width // heads)
    theta, scaling = _rotary(config)
    return Shape(
        "llama", config.count("num_hidden_layers"), width, heads,
        config.count("num_key_value_heads", heads), config.count("intermediate_size"),
        config.count("vocab_size"), config.count("max_position_embeddings"),
        tied=config.switch("tie_word_embeddings", False), theta=theta,
        epsilon=config.number("rms_norm_eps", 1e-6), rotary_scaling=scaling,
    )


def _rotary(config: Config) -> tuple[float, RotaryScaling | None]:
    """Return the base and the scaling of rotary positions.

    transformers 5 stores both in `rope_parameters`, earlier versions in two entries.
    """
    entry = config.part("rope_parameters") or config.part("rope_scaling") or Config({})
    theta = entry.number("rope_theta", config.number("rope_theta", 10000.0))
    kind = entry.word(("rope_type", "type"), "default")  # `type` in early versions
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ValueError(f"rope_type is {kind!r}, but this app has only 'default' or 'llama3'")
    low, high = entry.number("low_freq_factor"), entry.number("high_freq_factor")
    if low >= high:
        raise ValueError(f"low_freq_factor {low} is not below high_freq_factor {high}")
    return theta, (entry.number("factor"), low, high,
                   entry.count("original_max_position_embeddings"))
