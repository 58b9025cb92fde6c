"""Tests of the networks and of their initial weights."""

from __future__ import annotations

import hashlib
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tf_keras

from chexnet import network, torchfile, weights
from chexnet.network import Network
from trainkit.exits import DataError
from trainkit.testing.refusals import refused


def variables(found: Network) -> list[Any]:
    return [*found.body.variables, *found.head.variables]


def parameters(found: Network) -> int:
    return sum(int(np.prod(one.shape)) for one in variables(found))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [
    ("densenet121", 7_037_504 + 14 * 1025), ("resnet50", 23_587_712 + 14 * 2049),
    ("vgg16", 134_260_544 + 14 * 4097), ("mobilenetv2", 2_257_984 + 14 * 1281),
])
def test_the_networks_are_as_large_as_published(name: str, count: int) -> None:
    """Parameter counts equal Keras's documentation, without the layer of 1,000 outputs.

    The count of MobileNetV2 is from torchvision: 2,223,872 weights and 34,112 statistics.
    """
    assert parameters(network.build(name, 224, 14, "fp32")) == count


def test_a_grey_image_is_a_coloured_one_without_colours() -> None:
    found = network.build("small", 32, 3, "fp32")
    grey = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 1), np.uint8)
    ours = found.logits(grey, training=False).numpy()
    np.testing.assert_array_equal(
        ours, found.logits(np.repeat(grey, 3, -1), training=False).numpy()
    )


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_weights_and_logits_are_fp32_in_any_precision(precision: str) -> None:
    found = network.build("small", 32, 3, precision)
    image = np.zeros((1, 32, 32, 3), np.uint8)
    assert found.features(image, training=False).dtype.name in ("bfloat16", "float16")
    assert found.logits(image, training=False).dtype.name == "float32"
    assert {one.dtype for one in variables(found)} == {"float32"}
    network.build("small", 32, 3, "fp32")


def test_hashes_are_those_that_keras_publishes() -> None:
    from keras.src.applications import densenet, resnet, vgg16

    assert resnet.WEIGHTS_HASHES["resnet50"][1] in weights.KERAS["resnet50"].values()
    for module, name in ((densenet, "densenet121"), (vgg16, "vgg16")):
        source = Path(str(module.__file__)).read_text()
        for file, md5 in weights.KERAS[name].items():
            assert md5 in source
            assert file in source


def keras_file(path: Path, layers: dict[str, list[np.ndarray]]) -> Path:
    """Write arrays in the format of Keras's published files, and return the path."""
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [name.encode() for name in layers]
        for name, arrays in layers.items():
            group = file.create_group(name)
            group.attrs["weight_names"] = [f"{name}/{at}".encode() for at in range(len(arrays))]
            for at, array in enumerate(arrays):
                group[f"{name}/{at}"] = array
    return path


def body_of(path: Path) -> list[np.ndarray]:
    with h5py.File(path) as file:
        first = next(iter(file.attrs["layer_names"]))
        return [np.asarray(file[first][one]) for one in file[first].attrs["weight_names"]]


def body(found: Network) -> dict[str, list[np.ndarray]]:
    return {layer.name: [one.numpy() + 1 for one in layer.variables]
            for layer in found.body.layers if layer.variables}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Network:
    """A network that is fast to build; `weights.KERAS` lists the file `small.h5` for it."""
    monkeypatch.setitem(weights.KERAS, "small", {"small.h5": "0" * 32})
    return network.build("small", 32, 3, "fp32")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "maker", "module"), [
    ("densenet121", "DenseNet121", "densenet"), ("resnet50", "ResNet50", "resnet50"),
    ("vgg16", "VGG16", "vgg16"),
])
def test_a_file_that_keras_writes_gives_the_features_of_keras(
    name: str, maker: str, module: str, tmp_path: Path
) -> None:
    """With the weights of a file of Keras, a body has the same features as Keras's network.

    Keras 2 writes the file, as it wrote the published files; Keras 3 gives the layers of DenseNet
    other names.
    """
    applications = tf_keras.applications
    theirs = getattr(applications, maker)(
        include_top=False, weights=None, input_shape=(64, 64, 3)
    )
    draw = np.random.default_rng(0)
    theirs.set_weights([
        one * draw.uniform(0.5, 1.5, one.shape) + draw.uniform(0, 0.01, one.shape)
        for one in theirs.get_weights()
    ])  # no two layers have the same
    file = tmp_path / "own.h5"
    theirs.save_weights(file)
    ours = network.build(name, 64, 2, "fp32")
    weights.load(ours, file)
    images = draw.integers(0, 256, (2, 64, 64, 3)).astype(np.float32)
    prepared = getattr(applications, module).preprocess_input(images.copy())
    expected = theirs(prepared, training=False).numpy()
    found = ours.features(images, training=False).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_keras_files_go_to_the_layers_in_their_order(small: Network, tmp_path: Path) -> None:
    wanted = body(small)
    renamed = {f"{number}/of Keras": arrays for number, arrays in enumerate(wanted.values())}
    classifier = {"predictions": [np.ones((32, 1000), np.float32)]}
    weights.load(small, keras_file(tmp_path / "own.h5", renamed | {"relu": []} | classifier))
    for layer in small.body.layers:
        for one, value in zip(layer.variables, wanted.get(layer.name, []), strict=True):
            np.testing.assert_array_equal(one.numpy(), value)


def test_a_file_of_a_published_name_is_as_published(small: Network, tmp_path: Path) -> None:
    file = keras_file(tmp_path / "small.h5", body(small))
    md5 = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
    with refused(DataError, "checksum-mismatch", f"{file} ", md5, " 0"):
        weights.load(small, file)
    weights.KERAS["small"]["small.h5"] = md5
    weights.load(small, file, warn=pytest.fail)
    weights.load(small, file.rename(tmp_path / "renamed.h5"), warn=pytest.fail)


def test_a_file_of_another_name_that_nobody_published_is_told(
    small: Network, tmp_path: Path
) -> None:
    """Such a file may be damaged, or may come from the user: it is loaded with a warning."""
    file, told = keras_file(tmp_path / "own.h5", body(small)), list[str]()
    weights.load(small, file, warn=told.append)
    [line] = told
    assert "own.h5 is not a file that Keras publishes of small: its MD5 is " in line
    np.testing.assert_array_equal(small.body.variables[0].numpy(), body_of(file)[0])


def test_weights_of_another_network_are_refused_with_the_layers(
    small: Network, tmp_path: Path
) -> None:
    layers = body(small)
    layers["small.1"][0] = layers["small.1"][0][..., :5]
    del layers["small.2.bn"]
    file = keras_file(tmp_path / "own.h5", layers)
    named = ("small.1 has [(3, 3, 8, 5)], not [(3, 3, 8, 16)]", "; small.2.bn is missing")
    with refused(DataError, "weights-mismatch", f"{file} ", *named):
        weights.load(small, file)


def test_a_network_that_is_not_kerass_takes_no_file_of_keras(tmp_path: Path) -> None:
    """A file of Keras is refused for a network that Keras does not publish.

    For example, Keras and torchvision define MobileNetV2 with equal shapes but other outputs.
    """
    found = network.build("small", 32, 3, "fp32")
    with refused(DataError, "weights-mismatch", "own.h5: small "):
        weights.load(found, keras_file(tmp_path / "own.h5", body(found)))


def test_a_file_without_weights_of_keras_is_refused(small: Network, tmp_path: Path) -> None:
    other, broken = tmp_path / "other.h5", tmp_path / "broken.h5"
    h5py.File(other, "w").close()
    broken.write_bytes(b"no HDF5")
    for file in (other, broken):
        with refused(DataError, "weights-damaged", file):
            weights.load(small, file)


def test_a_file_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(b"0")
    with refused(DataError, "argument-invalid", file, ".npz", ".h5", ".pth"):
        weights.load(network.build("small", 32, 3, "fp32"), file)


class _Storage:
    def __init__(self, key: str, values: np.ndarray) -> None:
        self.key, self.values = key, values


class _Named:
    """A placeholder in a pickle for a class or function of PyTorch."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


def torch_file(
    path: Path, tensors: dict[str, np.ndarray], evil: bool = False, together: bool = False
) -> Path:
    """Write tensors as PyTorch before 1.6 did, with pickles that are assembled by hand.

    Each tensor has its own storage. If `together` is true, all tensors have the same type and
    share one storage.
    """
    storages, offset = {str(at): array for at, array in enumerate(tensors.values())}, 0
    if together:
        storages = {"0": np.concatenate([array.ravel() for array in tensors.values()])}
    content = b""
    for first in (torchfile.MAGIC, 1001, {"little_endian": True}):
        content += pickle.dumps(first, 2)
    words = b"\x80\x02ccollections\nOrderedDict\n)R("  # MARK of the items that follow
    for at, (name, array) in enumerate(tensors.items()):
        shape, key = tuple(array.shape), "0" if together else str(at)
        strides = tuple(int(step) // array.itemsize for step in array.strides)
        kind = b"FloatStorage" if array.dtype == np.float32 else b"LongStorage"
        function = b"cos\nsystem\n" if evil else b"ctorch._utils\n_rebuild_tensor_v2\n"

        def plain(value: Any) -> bytes:
            return pickle.dumps(value, 2)[2:-1]

        words += plain(name) + function + b"("
        words += b"(" + plain("storage") + b"ctorch\n" + kind + b"\n" + plain(key)
        words += plain("cpu") + plain(storages[key].size) + b"NtQ"  # a persistent id
        words += plain(offset) + plain(shape) + plain(strides) + b"\x89" + b"N" + b"tR"
        offset += array.size if together else 0
    content += words + b"u."
    content += pickle.dumps(sorted(storages), 2)
    for array in (storages[key] for key in sorted(storages)):
        content += struct.pack("<q", array.size) + array.tobytes()
    path.write_bytes(content)
    return path


def test_tensors_are_read_without_pytorch(tmp_path: Path) -> None:
    tensors = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([7])}
    found = torchfile.read(torch_file(tmp_path / "x.pth", tensors))
    assert isinstance(found, dict | OrderedDict)
    for name, value in tensors.items():
        np.testing.assert_array_equal(found[name], value)


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    file = torch_file(tmp_path / "x.pth", {"a": np.zeros(1, np.float32)}, evil=True)
    with refused(DataError, "weights-damaged", file, "os.system"):
        torchfile.read(file)


@pytest.mark.parametrize("cut", [0, 5, 40, 200, -1])
def test_a_file_cut_short_is_refused(cut: int, tmp_path: Path) -> None:
    file = torch_file(tmp_path / "x.pth", {"a": np.zeros(9, np.float32)})
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"x\.pth"):
        torchfile.read(file)


@pytest.mark.slow
def test_mobilenet_has_a_layer_for_each_of_torchvision(tmp_path: Path) -> None:
    """This test compares the names and shapes of the layers, not their outputs."""
    found = network.build("mobilenetv2", 64, 2, "fp32")
    tensors = {}
    for layer in found.body.layers:
        if not layer.name.startswith("features"):
            continue
        names = ("weight", "bias", "running_mean", "running_var")
        for one, name in zip(layer.variables, names, strict=False):
            value = np.full(one.shape, 0.5, np.float32)
            if value.ndim == 4:
                depthwise = isinstance(layer, keras.layers.DepthwiseConv2D)
                value = np.ascontiguousarray(value.transpose((2, 3, 0, 1) if depthwise
                                                             else (3, 2, 0, 1)))
            tensors[f"{layer.name}.{name}"] = value
    tensors["classifier.1.weight"] = np.zeros((1000, 1280), np.float32)
    assert sum(name.endswith("running_mean") for name in tensors) == 52
    weights.load(found, torch_file(tmp_path / "mobilenet.pth", tensors))
    assert all((one.numpy() == 0.5).all() for one in found.body.trainable_variables)
