"""Load initial weights from a checkpoint of this app, or from a file of Keras or torchvision."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chexnet import torchfile
from chexnet.network import CLASSIFIER, Network
from trainkit import outputs
from trainkit.exits import DataError
from trainkit.tensorflow.parts import Variables

KERAS = {
    "densenet121": {"densenet121_weights_tf_dim_ordering_tf_kernels_notop.h5":
                    "30ee3e1110167f948a6b9946edeeb738"},
    "resnet50": {"resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5":
                 "4d473c1dd8becc155b73f8504c6f6626"},
    "vgg16": {"vgg16_weights_tf_dim_ordering_tf_kernels_notop.h5":
              "6d6bbae143d832006294945121d1f1fc",
              "vgg16_weights_tf_dim_ordering_tf_kernels.h5": "64373286793e3c8b2b4e3219cbf3544b"},
}
"""Network -> name and MD5 of each file that `keras.applications` publishes for it."""
SHOWN = 5  # largest number of differences in a message

Arrays = list[NDArray[Any]]


def load(network: Network, file: Path, warn: Callable[[str], object] = print) -> None:
    """Load the weights in `file` into `network`.

    The head of a checkpoint is loaded only if all of its shapes match the head of `network`. The
    classifier of other files is never loaded.

    Args:
        network: the network.
        file: a checkpoint, or a file of Keras or torchvision.
        warn: function that prints a warning for a file in Keras's format that Keras has not
            published.

    Raises:
        DataError: the file belongs to another network or is damaged, or the file has the name of a
            published file but another checksum.
    """
    if file.suffix == ".npz":
        _from_checkpoint(network, file)
    elif file.suffix == ".h5":
        _assign(network, _keras(network, file, warn), file)
    elif file.suffix == ".pth":
        _assign(network, _torch(file), file)
    else:
        raise DataError(
            f"{file}: first weights are in .npz (a checkpoint), .h5 (Keras) or .pth",
            code="argument-invalid",
        )


def recorded_learning_rate(file: Path) -> float:
    """Return the learning rate of the head that the checkpoint `file` records.

    Raises:
        DataError: the file is not a checkpoint of a training, or has no learning rate.
    """
    found = outputs.load_trained(None, file)["about"].get("learning_rate")
    if not isinstance(found, float) or not found > 0:
        raise DataError(
            f"{file} records no learning rate; use --base-lr instead", code="weights-mismatch"
        )
    return found


def _from_checkpoint(network: Network, file: Path) -> None:
    state = outputs.load_trained(None, file)
    found, head = state["parts"]["body"], Variables(network.head.variables)
    theirs = state["about"].get("model")
    if theirs != network.name:
        layers = _body(network)
        arrays = iter(found.values())
        named = {layer.name: list(itertools.islice(arrays, len(layer.variables)))
                 for layer in layers}
        differences = _summary(_differences(layers, named))
        raise DataError(
            f"{file} is of the network {theirs}, not {network.name}: {differences}",
            code="weights-mismatch",
        )
    Variables(network.body.variables).load_state_dict(found)
    shapes = [value.shape for value in head.state_dict().values()]
    if [value.shape for value in state["parts"]["head"].values()] == shapes:
        head.load_state_dict(state["parts"]["head"])


def _keras(
    network: Network, file: Path, warn: Callable[[str], object]
) -> dict[str, Arrays]:
    """Return the arrays of each layer, by its name, from a file of Keras or of the user.

    A file that Keras publishes is recognized by its MD5, under any name. A file that has a
    published name but another MD5 is damaged. Any other file was made by the user; `warn` is then
    called.

    Layers of the body are identified by their order, because versions of Keras name them
    differently (conv1/conv, conv1_conv). All later layers are identified by their names.
    """
    known = KERAS.get(network.name)
    if known is None:
        raise DataError(
            f"{file}: {network.name} is none of Keras's networks; its first weights are in .npz"
            " or .pth",
            code="weights-mismatch",
        )
    # MD5 is the only digest that Keras publishes.
    found = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
    if found not in known.values():
        if file.name in known:
            raise DataError(
                f"{file} has the MD5 {found}, and Keras publishes it with {known[file.name]}: get"
                " it again",
                code="checksum-mismatch",
            )
        warn(f"warning: {file} is not a file that Keras publishes of {network.name}: its MD5 is"
             f" {found}, and those are {', '.join(known.values())}")
    layers, body = _layers(file), _body(network)
    own = {layer.name: arrays for layer, (_, arrays) in zip(body, layers, strict=False)}
    return dict(layers[len(body) :]) | own


def _layers(file: Path) -> list[tuple[str, Arrays]]:
    """Return the name and the arrays of each layer with weights, in the order of the file."""
    import h5py

    try:
        with h5py.File(file, "r") as document:
            top = document if "layer_names" in document.attrs else document["model_weights"]
            found = [(_text(name), [np.asarray(top[name][weight])
                                    for weight in top[name].attrs["weight_names"]])
                     for name in top.attrs["layer_names"]]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{file} has no weights as Keras publishes them: {error}", code="weights-damaged"
        ) from error
    return [(name, arrays) for name, arrays in found if arrays]


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _torch(file: Path) -> dict[str, Arrays]:
    """Return the arrays of each layer in the layout of Keras, by name, from a torchvision file."""
    layers: dict[str, Arrays] = {}
    for name, value in torchfile.read(file).items():
        layer, _, kind = name.rpartition(".")
        if layer.startswith("classifier") or kind == "num_batches_tracked":
            continue
        if value.ndim == 4:  # (out, in, h, w), or (channels, 1, h, w) if depthwise
            value = value.transpose((2, 3, 0, 1) if value.shape[1] == 1 else (2, 3, 1, 0))
        layers.setdefault(layer, []).append(value)
    return layers


def _body(network: Network) -> list[Any]:
    return [layer for layer in network.body.layers if layer.variables]


def _assign(network: Network, found: Mapping[str, Arrays], file: Path) -> None:
    """Assign the arrays of a file to the layers of the same names.

    All layers of the body must be in the file; layers of the head may be missing.

    Raises:
        DataError: layers are missing or have other shapes; the message names them.
    """
    wanted = _body(network) + [layer for layer in network.head.layers
                               if layer.name in found and layer.name != CLASSIFIER]
    faults = _summary(_differences(wanted, found))
    if faults:
        raise DataError(f"{file} is not of {network.name}: {faults}", code="weights-mismatch")
    for layer in wanted:
        for variable, value in zip(layer.variables, found[layer.name], strict=True):
            variable.assign(value)


def _differences(layers: Iterable[Any], found: Mapping[str, Arrays]) -> Iterator[str]:
    for layer in layers:
        own = [tuple(variable.shape) for variable in layer.variables]
        theirs = [value.shape for value in found.get(layer.name, [])]
        if not theirs:
            yield f"{layer.name} is missing"
        elif own != theirs:
            yield f"{layer.name} has {theirs}, not {own}"


def _summary(differences: Iterable[str]) -> str:
    every = list(differences)
    more = f", and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return "; ".join(every[:SHOWN]) + more
