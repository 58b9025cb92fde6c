"""Test `export`: the file describes the network, and computes the same outputs as the network.

If the outputs differ, or the command is refused, no file is written.
"""

import importlib.util
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from resnet_imagenet import export
from resnet_imagenet.__main__ import main
from resnet_imagenet.evaluate import restore_network
from trainkit.outputs import load_trained
from trainkit.testing.refusals import assert_reported

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(run: Path, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "network.onnx"
    assert main(["export", "--out", str(run), "--to", str(path), "--data", str(tiny)]) == 0
    return path


@pytest.mark.parametrize("number", [1, 2, 5])
def test_onnx_runtime_gives_the_logits_of_pytorch(exported: Path, run: Path, number: int) -> None:
    network, _, _ = restore_network(load_trained(run, None))
    images = torch.randn(number, 1, 12, 12)
    with torch.inference_mode():
        wanted = network.eval()(images).numpy()
    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"images": images.numpy()})
    assert logits.shape == (number, 2)
    np.testing.assert_allclose(logits, wanted, atol=1e-4)


def test_the_file_is_valid_whole_and_describes_itself(exported: Path) -> None:
    model = onnx.load(exported, load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert [
        tensor.data_location for tensor in model.graph.initializer if tensor.external_data
    ] == []
    assert [(o.domain, o.version) for o in model.opset_import] == [("", export.OPSET)]
    (batch, *rest) = model.graph.input[0].type.tensor_type.shape.dim
    assert (batch.dim_param, [d.dim_value for d in rest]) == ("batch", [1, 12, 12])
    facts = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert facts["model"] == "resnet20"
    assert facts["classes"] == ["class 0", "class 1"]
    assert facts["training_step"] == 28
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["preprocessing"] == {
        "mode": "L",
        "resize": [12, 12],
        "formula": "(pixel / 255 - mean) / std",
        "mean": [0.5],
        "std": [0.25],
        "layout": "NCHW",
        "dtype": "float32",
    }


def test_the_file_tells_nothing_of_the_machine(exported: Path) -> None:
    content = exported.read_bytes()
    assert str(Path(export.__file__).parent).encode() not in content
    assert str(Path(torch.__file__).parent).encode() not in content


def test_export_says_how_well_they_agree_and_nothing_else(
    run: Path, tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "network.onnx"
    arguments = ["--out", str(run), "--to", str(path), "--data", str(tiny), "--image-size", "24"]
    assert main(["export", *arguments]) == 0
    said = capfd.readouterr()
    assert said.err == ""
    random, real, last = said.out.splitlines()
    assert random.startswith("random: 17 images, logits up to ")
    assert random.endswith("same top-1 on 17")
    assert real.startswith(f"{tiny}: 30 images, ")
    assert real.endswith("same top-1 on 30")
    assert last.startswith(f"{path}  resnet20, 1.1 MB, images (any number, 1, 24, 24)")
    assert list(tmp_path.iterdir()) == [path]


def test_torchscript_gives_the_same_logits(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "network.pt"
    (checkpoint,) = (run / "checkpoints").glob("step-00000028.npz")
    arguments = ["--checkpoint", str(checkpoint), "--to", str(path), "--format", "torchscript"]
    assert main(["export", *arguments]) == 0
    assert capfd.readouterr().err == ""
    network, _, _ = restore_network(load_trained(run, None))
    images, extra = torch.randn(3, 1, 12, 12), {"classes.json": ""}
    with export.quiet(), torch.inference_mode():
        loaded = torch.jit.load(io.BytesIO(path.read_bytes()), _extra_files=extra)
        torch.testing.assert_close(loaded(images), network.eval()(images))
    assert json.loads(extra["classes.json"]) == ["class 0", "class 1"]


@pytest.mark.parametrize(
    "spoil", [lambda bias: bias.add_(0.01), lambda bias: bias.fill_(torch.nan)]
)
def test_a_file_that_answers_otherwise_is_not_kept(
    spoil: Callable[[torch.Tensor], object],
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = export.script_file

    def wrong(network: nn.Module, *more: object) -> bytes:
        bias = network.head.bias
        before = bias.detach().clone()
        with torch.no_grad():
            spoil(bias)
            content = right(network, *more)
            bias.copy_(before)
        return content

    monkeypatch.setattr(export, "script_file", wrong)
    arguments = ["--out", str(run), "--to", str(tmp_path / "n.pt"), "--format", "torchscript"]
    assert main(["export", *arguments]) == 3
    assert_reported(capsys.readouterr().err, "export-differs", ": 17 images")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "n.onnx"
    path.write_text("mine")
    assert main(["export", "--out", str(run), "--to", str(path)]) == 2
    assert_reported(capsys.readouterr().err, "file-exists", path)
    assert path.read_text() == "mine"


def test_without_the_packages_it_says_where_to_export(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if "onnx" in name else find(name)
    )
    assert main(["export", "--out", str(run), "--to", str(tmp_path / "n.onnx")]) == 2
    named = " onnx, onnxscript, onnxruntime,"
    assert_reported(capsys.readouterr().err, "library-missing", named)


def test_images_of_another_kind_are_refused(
    run: Path, photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--out", str(run), "--to", str(tmp_path / "n.pt"), "--format", "torchscript"]
    assert main(["export", *arguments, "--data", str(photographs)]) == 3
    assert_reported(capsys.readouterr().err, "data-mismatch", photographs, " 3 channels", " 1")
    assert list(tmp_path.iterdir()) == []


def test_photographs_are_described_by_their_crop(photograph_run: Path) -> None:
    state = load_trained(photograph_run, None)
    _, to, about = restore_network(state)
    facts = json.loads(export.metadata(state, to, about)["preprocessing"])
    assert (facts["mode"], facts["centre_square"], facts["resize"]) == ("RGB", 0.875, [224, 224])
