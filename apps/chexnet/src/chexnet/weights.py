"""The first weights: a checkpoint of this app, Keras's published files, or torchvision's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
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
"""Network -> the files that Keras publishes of it, and their MD5: `keras.applications`."""
SHOWN = 5  # differences that are named


def load(network: Network, file: Path) -> None:
    """Give `network` the weights in `file`; its classifier keeps its own where that has others.

    Raises:
        DataError: it is of another network, or not what was published.
    """
    if file.suffix == ".npz":
        _from_checkpoint(network, file)
    elif file.suffix == ".h5":
        _assign(network, _keras(network, file), file)
    elif file.suffix == ".pth":
        _assign(network, _torch(file), file)
    else:
        raise DataError(f"{file}: first weights are in .npz (a checkpoint), .h5 (Keras) or .pth")


def _from_checkpoint(network: Network, file: Path) -> None:
    state = outputs.load_trained(None, file)
    about = state.get("about", {})
    if about.get("model") != network.name:
        raise DataError(f"{file} is of the network {about.get('model')}, not {network.name}")
    Variables(network.body.variables).load_state_dict(state["parts"]["body"])
    head = Variables(network.head.variables)
    shapes = [value.shape for value in head.state_dict().values()]
    if [value.shape for value in state["parts"]["head"].values()] == shapes:
        head.load_state_dict(state["parts"]["head"])


def _keras(network: Network, file: Path) -> dict[str, list[NDArray[Any]]]:
    """Return layer -> arrays of a file that Keras publishes, after comparing its MD5."""
    import h5py

    known = KERAS.get(network.name, {})
    found = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()  # all Keras gives
    if found not in known.values():
        listed = ", ".join(f"{name} {md5}" for name, md5 in known.items()) or "none"
        raise DataError(
            f"{file} has the MD5 {found}; the files that Keras publishes of {network.name}:"
            f" {listed}"
        )
    with h5py.File(file, "r") as document:
        return {
            _text(name): [np.asarray(document[name][weight])
                          for weight in document[name].attrs["weight_names"]]
            for name in document.attrs["layer_names"]
        }


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _torch(file: Path) -> dict[str, list[NDArray[Any]]]:
    """Return layer -> arrays of torchvision's file, laid out as Keras has them."""
    layers: dict[str, list[NDArray[Any]]] = {}
    for name, value in torchfile.read(file).items():
        layer, _, kind = name.rpartition(".")
        if layer.startswith("classifier") or kind == "num_batches_tracked":
            continue
        if value.ndim == 4:  # (out, in, h, w); of a filter for each channel (channels, 1, h, w)
            value = value.transpose((2, 3, 0, 1) if value.shape[1] == 1 else (2, 3, 1, 0))
        layers.setdefault(layer, []).append(value)
    return layers


def _assign(network: Network, found: Mapping[str, list[NDArray[Any]]], file: Path) -> None:
    """Put the arrays into the layers of the same names: all of the body, of the head what is there.

    Raises:
        DataError: layers are missing or have other shapes; they are named.
    """
    body = {layer.name for layer in network.body.layers}
    wanted = [layer for layer in network.layers if layer.name != CLASSIFIER
              and not layer.name.startswith(("normalized", "centred"))
              and (layer.name in body or layer.name in found)]
    faults = list(_differences(wanted, found))
    if faults:
        more = f", and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise DataError(
            f"{file} is not of {network.name}: {'; '.join(faults[:SHOWN])}{more}"
        )
    for layer in wanted:
        for variable, value in zip(layer.variables, found[layer.name], strict=True):
            variable.assign(value)


def _differences(
    layers: Iterable[Any], found: Mapping[str, list[NDArray[Any]]]
) -> Iterable[str]:
    for layer in layers:
        if layer.name not in found:
            yield f"{layer.name} is missing"
            continue
        own = [tuple(variable.shape) for variable in layer.variables]
        theirs = [value.shape for value in found[layer.name]]
        if own != theirs:
            yield f"{layer.name} has {theirs}, not {own}"
