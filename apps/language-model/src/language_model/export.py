"""The command `export`: write the weights of a checkpoint for Hugging Face `transformers`.

The folder has `config.json`, the weights in fp32 in safetensors files, and the tokenizer if the
run or the data set has it. The folder gets its name when it is complete. The products of a low-rank
adaptation are added to the weights.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from language_model import configuration, huggingface, tokenizer
from language_model.huggingface import Readable
from language_model.initial import CONFIG, INDEX, TOKENIZER, WEIGHTS
from language_model.settings import ExportSettings
from language_model.shapes import Shape
from language_model.state import shape_of, trained_weights
from trainkit import atomic, outputs
from trainkit.exits import DataError
from trainkit.tensorfile import Source, write

LARGEST_FILE = 5_000_000_000
"""Largest total size of the tensors in a file in bytes, as in versions of transformers before 5."""


def main(settings: ExportSettings) -> None:
    """Write the network of a checkpoint to a new folder.

    Raises:
        DataError: there is no such checkpoint, or the data has another tokenizer.
    """
    assert settings.to is not None  # noqa: S101 - `settings.check` refuses None
    state = outputs.load_trained(settings.out, settings.checkpoint)
    shape, weights = shape_of(state), trained_weights(state)
    config, others = configuration.config_of(shape), {}
    content, end = read_tokenizer(settings, state["about"]["tokenizer"]), state["about"]["end"]
    if content is not None:
        config |= {"bos_token_id": end, "eos_token_id": end}
        others = {TOKENIZER: content, "tokenizer_config.json": tokenizer_config(content, end)}
    with new_folder(settings.to) as folder:
        write_weights(folder, shape, weights)
        atomic.write_json(folder / CONFIG, config)
        for name, content in others.items():
            with atomic.replacing(folder / name) as file:
                file.write(content)
    without = "" if others else "; without the tokenizer, which --data adds"
    print(f"{settings.to}  {shape.family}, {shape.parameters:,} parameters in fp32{without}")


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends without an error."""
    path = path.resolve()  # a link to an empty folder stays, and "." gets a name
    temporary = path.with_name(f".{path.name}{atomic.TEMPORARY}")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a killed process
    temporary.mkdir()
    try:
        yield temporary
        temporary.rename(path)  # replaces an empty folder
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    atomic.sync_folder(path.parent)


def write_weights(folder: Path, shape: Shape, weights: Mapping[str, Readable]) -> None:
    """Write all weights, and an index if they need several files.

    Raises:
        DataError: a weight is missing.
    """
    try:
        sources = {
            name: Source(weights[tensor.weights[0]].dtype, tensor.shape,
                         partial(huggingface.joined, tensor, weights))
            for name, tensor in huggingface.tensors(shape).items()
        }
    except KeyError as error:
        raise DataError(
            f"the checkpoint does not have the weight {error}", code="checkpoint-mismatch"
        ) from error
    files = divided(sources)
    names = [WEIGHTS] if len(files) == 1 else [
        WEIGHTS.replace(".", f"-{number:05d}-of-{len(files):05d}.")
        for number in range(1, len(files) + 1)
    ]
    for name, part in zip(names, files, strict=True):
        write(folder / name, part, {"format": "pt"})
    if len(files) > 1:
        total = sum(source.nbytes for source in sources.values())
        where = {key: name for name, part in zip(names, files, strict=True) for key in part}
        atomic.write_json(
            folder / INDEX, {"metadata": {"total_size": total}, "weight_map": where}
        )


def divided(sources: Mapping[str, Source]) -> list[dict[str, Source]]:
    """Return the tensors of each file, in order; a file has at most `LARGEST_FILE` bytes.

    A tensor that is larger than this limit has a separate file.
    """
    files: list[dict[str, Source]] = [{}]
    size = 0
    for name, source in sources.items():
        if files[-1] and size + source.nbytes > LARGEST_FILE:
            files.append({})
            size = 0
        files[-1][name] = source
        size += source.nbytes
    return files


def read_tokenizer(settings: ExportSettings, sha256: str | None) -> bytes | None:
    """Return the tokenizer file of the training.

    Return None if the text of the training was synthetic, or if the run has no copy.

    Args:
        settings: options that name the data set, or else the run with its copy of the file.
        sha256: SHA-256 of the tokenizer of the training; None for a synthetic text.

    Raises:
        DataError: the data set or the run has another tokenizer.
    """
    if sha256 is None:
        if settings.data is not None:
            raise DataError(
                f"--data {settings.data}: the network was trained on a synthetic text, which has "
                "no tokenizer; leave the option out",
                code="data-mismatch",
            )
        return None
    path = tokenizer.of_run(settings.data, settings.out, settings.checkpoint)
    if settings.data is None and not path.exists():
        return None
    return tokenizer.verified(path, sha256)


def tokenizer_config(content: bytes, end: int) -> bytes:
    """Return the content of `tokenizer_config.json`, for `AutoTokenizer` of transformers.

    Args:
        content: content of `tokenizer.json`.
        end: the token that ends a document.
    """
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for token in json.loads(content).get("added_tokens", []):
        if token["id"] == end:
            config["eos_token"] = config["bos_token"] = token["content"]
    return json.dumps(config, indent=2).encode() + b"\n"
