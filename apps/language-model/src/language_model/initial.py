"""The initial weights of a training: random, from a checkpoint, or from files of `transformers`.

Rank 0 checks the files; then each rank reads only those parts of the weights that it holds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from language_model import configuration, huggingface
from language_model.huggingface import Readable
from language_model.inputs import Inputs
from language_model.settings import TrainSettings
from language_model.shapes import SHAPES, Shape
from language_model.state import shape_of, trained_weights
from language_model.steps import Network
from trainkit import outputs, parts, pieces
from trainkit.checkpoint import PIECES, State
from trainkit.exits import ArgumentError, DataError
from trainkit.statefile import FormError
from trainkit.torch.parts import array_of
from trainkit.torch.sharded import ShardedWeights, local
from trainkit.torch.strategy import TorchStrategy

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
INDEX = f"{WEIGHTS}.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
LARGEST_JSON = 100_000_000
"""The largest size of a JSON file in bytes. The index of a network of 400 billion parameters is
smaller than 1 MB."""
PLAIN = re.compile(r"[\w.-]+\.safetensors")


@dataclass(frozen=True)
class Initial:
    """The initial weights, and the network to which they belong.

    Attributes:
        shape: shape of the network.
        model: name of the shape, or of its family.
        name: the option or file that the weights come from, for messages.
        digest: SHA-256 of the shape and the files; None if the weights are random.
        weights: name -> weight; empty if they are random or not needed, as in a resumed training.
        tokenizer: SHA-256 of the tokenizer; None if it is unknown.
    """

    shape: Shape
    model: str
    name: str = ""
    digest: str | None = None
    weights: Mapping[str, Readable] = field(default_factory=dict)
    tokenizer: str | None = None

    def fit(self, data: Inputs) -> Shape:
        """Return the shape of the network for the training on `data`.

        If the weights are random, the shape gets the vocabulary size of the data.

        Raises:
            DataError: the initial weights belong to another vocabulary or tokenizer.
        """
        if self.digest is None:
            return replace(self.shape, vocabulary=data.vocabulary)
        if self.shape.vocabulary != data.vocabulary:
            raise DataError(
                f"{self.name} has a vocabulary of {self.shape.vocabulary} tokens, and {data.name} "
                f"one of {data.vocabulary}; pack the text with the tokenizer of the weights",
                code="data-mismatch",
            )
        if None not in (self.tokenizer, data.tokenizer) and self.tokenizer != data.tokenizer:
            raise DataError(
                f"{self.name} has another tokenizer ({self.tokenizer}) than {data.name} "
                f"({data.tokenizer}); pack the text with the tokenizer of the weights",
                code="data-mismatch",
            )
        return self.shape

    def load(self, network: Network) -> None:
        """Read the weights into `network`, unless they are random; all ranks must call this method.

        Raises:
            DataError: a weight is not finite.
        """
        own = {name: one for name, one in network.parameters.items() if name in self.weights}
        ShardedWeights(own, network.places, network.strategy).load_state_dict(self.weights)
        values = {name: array_of(local(one)) for name, one in own.items()}
        wrong = next(parts.not_finite(values), None)
        for name in filter(None, network.strategy.gather(wrong)):
            raise DataError(
                f"{self.name}: the weight {name} has values that are not finite",
                code="weights-damaged",
            )


def open_initial(settings: TrainSettings, strategy: TorchStrategy) -> Initial:
    """Return the initial weights that `settings` describe; all ranks must call this function.

    A training that resumes does not need the files any more.

    Raises:
        AppError: the files are missing or damaged, or have another format.
    """
    if settings.initial is None:
        return Initial(SHAPES[settings.model], settings.model)
    found = strategy.share(_open(settings.initial, settings) if strategy.is_main else None)
    assert found is not None  # noqa: S101 - rank 0 shares it
    return found


def _open(path: Path, settings: TrainSettings) -> Initial:
    if path.is_dir():
        return _folder(path)
    if path.exists():
        return _checkpoint(path)
    try:
        if settings.resume == "never":
            raise DataError("", code="checkpoint-missing")
        file = None if settings.resume == "auto" else Path(settings.resume)
        state = outputs.load_trained(settings.out, file)
    except DataError as error:
        if error.code != "checkpoint-missing":
            raise
        raise ArgumentError(f"--initial {path} does not exist", code="file-missing") from None
    model, digest = _facts(state)
    return Initial(shape_of(state), model, f"--initial {path}", digest)


def _facts(state: State) -> tuple[str, str]:
    """Return the name of the model and the digest of its initial weights from a checkpoint.

    Raises:
        DataError: the checkpoint does not contain them.
    """
    try:
        return str(state["about"]["model"]), str(state["identity"]["initial"])
    except (KeyError, TypeError) as error:
        raise DataError(
            "the checkpoint does not describe a language model", code="checkpoint-mismatch"
        ) from error


def _checkpoint(path: Path) -> Initial:
    """Return the initial weights in a checkpoint of this app."""
    state = outputs.load_trained(None, path)
    shape, about = shape_of(state), state["about"]
    sums = sorted(str(file["sha256"]) for file in state.get(PIECES, ()))
    return Initial(
        shape, str(about["model"]), str(path), _digest(shape, sums), trained_weights(state),
        about.get("tokenizer"),
    )


def _folder(path: Path) -> Initial:
    """Return the initial weights in a folder of transformers.

    Raises:
        DataError: a file is missing or damaged, or the network is not one of this app.
    """
    files = weight_files(path)
    try:
        shape = configuration.shape_of(_json(path / CONFIG))
        weights = huggingface.views(shape, _tensors(files))
    except ValueError as error:
        raise DataError(f"{path}: {error}", code="weights-mismatch") from error
    tokenizer = path / TOKENIZER
    try:
        sums = [_checksum(file) for file in files]
        known = _checksum(tokenizer) if tokenizer.exists() else None
    except OSError as error:
        raise DataError(
            f"{error.filename} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error
    return Initial(shape, shape.family, str(path), _digest(shape, sums), weights, known)


def _checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(pieces.BLOCK):
            total.update(block)
    return total.hexdigest()


def _digest(shape: Shape, sums: list[str]) -> str:
    """Return the SHA-256 of a shape and of the checksums of files."""
    return hashlib.sha256(json.dumps([asdict(shape), sums]).encode()).hexdigest()


def weight_files(path: Path) -> list[Path]:
    """Return the files of the weights in a folder of transformers.

    Raises:
        DataError: there are none, or the index names a file outside of the folder.
    """
    if (path / INDEX).exists():
        names = _json(path / INDEX).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise DataError(f"{path / INDEX} has no weight_map", code="weights-damaged")
        for name in names.values():
            if not isinstance(name, str) or not PLAIN.fullmatch(name):
                raise DataError(
                    f"{path / INDEX} refers to {name!r}, which is not the name of a safetensors "
                    "file in its folder",
                    code="weights-damaged",
                )
        return [path / name for name in sorted(set(names.values()))]
    if (path / WEIGHTS).exists():
        return [path / WEIGHTS]
    for name in PICKLES:
        if (path / name).exists():
            raise DataError(
                f"{path / name} is a pickle, which can execute code when it is read; convert it: "
                f"load the folder with transformers, and save it by save_pretrained, which writes "
                f"{WEIGHTS}",
                code="weights-damaged",
            )
    raise DataError(
        f"{path} has no {WEIGHTS} and no {INDEX}; --initial is a folder of Hugging Face "
        "transformers, or a checkpoint file of this app (RUN/checkpoints/step-NNNNNNNN.npz)",
        code="file-missing",
    )


def _tensors(files: list[Path]) -> dict[str, Readable]:
    """Return name -> tensor of all files.

    Raises:
        DataError: a file is missing or damaged, or two files have the same tensor.
    """
    found: dict[str, Readable] = {}
    for file in files:
        try:
            own = pieces.of_file(file)
        except FormError as error:
            raise DataError(str(error), code="weights-damaged") from error
        if twice := own.keys() & found.keys():
            raise DataError(
                f"{file} has the tensor {min(twice)}, which another file has, too",
                code="weights-damaged",
            )
        found |= own
    return found


def _json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file.

    Raises:
        DataError: the file cannot be read, or does not contain an object.
    """
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(LARGEST_JSON))
    except OSError as error:
        code = "file-missing" if isinstance(error, FileNotFoundError) else "file-unreadable"
        raise DataError(f"{path} cannot be read: {error.strerror}", code=code) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}", code="weights-damaged") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} does not contain an object", code="weights-damaged")
    return content
