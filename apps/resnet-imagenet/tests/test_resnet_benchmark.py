"""Test `benchmark`: networks as published, counted operations, inference and training step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from resnet_imagenet import benchmark, zoo
from resnet_imagenet.__main__ import main
from resnet_imagenet.settings import OTHERS, BenchmarkSettings
from trainkit.exits import ArgumentError
from trainkit.testing.refusals import assert_reported, refused
from trainkit.testing.zoo import check_benchmark
from trainkit.zoo.measure import Effort, Failure, attempt


def build_without_memory(name: str) -> nn.Module:
    with torch.device("meta"):
        return benchmark.build(name, 224)


@pytest.mark.parametrize(("name", "parameters", "products"), [
    ("alexnet", 61_100_840, 0.71e9),  # torchvision's documentation of its weights
    ("vgg16", 138_357_544, 15.47e9),  # the same, as for the next two
    ("densenet121", 7_978_856, 2.83e9),
    ("mobilenetv2", 3_504_872, 0.30e9),
    ("vgg19", 143_667_240, 19.6e9),  # arXiv:1512.03385, section 3.3
    ("resnet50", 25_557_032, 4.09e9),  # v1.5, torchvision's documentation
    ("resnet152", 60_192_808, 11.3e9),  # v1, arXiv:1512.03385, table 1
    ("googlenet", 6_998_552 + 7_280, 1.5e9),  # arXiv:1409.4842, section 3
])
def test_parameters_and_multiplications_are_as_published(
    name: str, parameters: int, products: float
) -> None:
    """Compare the numbers of parameters and of multiplications with the publications.

    The published GoogLeNet has biases. Here each of the 7,280 features of its convolutions has two
    parameters of batch normalization instead of one bias: one parameter more for each feature.
    """
    network = build_without_memory(name)
    assert sum(one.numel() for one in network.parameters()) == parameters
    image = torch.empty(1, 3, 224, 224, device="meta")
    assert benchmark.count_flops(network, image) / 2 == pytest.approx(products, rel=0.06)


@pytest.mark.parametrize(("name", "inputs", "outputs", "thousands"), [
    ("3a", 192, 256, 159), ("3b", 256, 480, 380), ("4a", 480, 512, 364), ("4b", 512, 512, 437),
    ("4c", 512, 512, 463), ("4d", 512, 528, 580), ("4e", 528, 832, 840), ("5a", 832, 832, 1072),
    ("5b", 832, 1024, 1388),
])
def test_inception_modules_are_those_of_table_1(
    name: str, inputs: int, outputs: int, thousands: int
) -> None:
    """Compare output shapes and numbers of weights with arXiv:1409.4842, table 1.

    The numbers in the table are rounded, and up to 8 % off.
    """
    module = zoo.inception(name)
    assert module(torch.zeros(2, inputs, 7, 7)).shape == (2, outputs, 7, 7)
    weights = sum(one.numel() for one in module.parameters() if one.dim() == 4)
    assert weights / 1024 == pytest.approx(thousands, rel=0.08)


def test_googlenet_has_the_output_sizes_of_table_1() -> None:
    x = torch.empty(1, 3, 224, 224, device="meta")
    shapes = []
    for layer in build_without_memory("googlenet").eval().children():
        x = layer(x)
        if isinstance(layer, nn.MaxPool2d | zoo.Side):
            shapes.append((x.shape[1], x.shape[2]))
    assert shapes == [
        (64, 56), (192, 28), (256, 28), (480, 28), (480, 14), (512, 14), (512, 14), (512, 14),
        (528, 14), (832, 14), (832, 7), (832, 7), (1024, 7),
    ]


@pytest.mark.parametrize("name", OTHERS)
def test_a_network_accepts_its_smallest_images(name: str) -> None:
    smallest = zoo.NETWORKS[name].smallest
    with torch.device("meta"):
        network = benchmark.build(name, smallest).eval()
        assert network(torch.empty(2, 3, smallest, smallest)).shape == (2, 1000)
    with refused(ArgumentError, "argument-invalid", name, smallest):
        benchmark.build(name, smallest - 1)


def test_the_operations_of_a_network_are_those_of_its_layers() -> None:
    network = nn.Sequential(
        nn.Conv2d(4, 8, 5, 2, 2), nn.BatchNorm2d(8), nn.ReLU(),  # (8, 16, 16), sums of 5 x 5 x 4
        nn.Conv2d(8, 16, 3, groups=8),  # (16, 14, 14), sums of 3 x 3
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),  # 10 sums of 16
    )
    products = 8 * 16 * 16 * 100 + 16 * 14 * 14 * 9 + 10 * 16
    assert benchmark.count_flops(network, torch.zeros(1, 4, 32, 32)) == 2 * products


def framework(precision: str) -> benchmark.PyTorch:
    settings = BenchmarkSettings(
        batch_size=2, size=32, threads=1, device="cpu", precision=precision
    )
    return benchmark.open_framework(settings)


@pytest.mark.parametrize(("precision", "kind"), [
    ("fp32", torch.float32), ("bf16", torch.bfloat16)
])
def test_the_steps_compute_in_the_precision_and_only_training_changes_weights(
    precision: str, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = benchmark.build("resnet20", 32)
    monkeypatch.setattr(benchmark, "build", lambda *_: network)
    found = framework(precision).network("resnet20")
    kinds = []
    network.get_submodule("head").register_forward_hook(lambda *args: kinds.append(args[-1].dtype))
    before = [one.detach().clone() for one in network.parameters()]
    found.forward()
    after = list(network.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    found.train()
    assert not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert kinds == [kind] * 2


def test_too_little_memory_is_recognized() -> None:
    one = framework("fp32")
    with pytest.raises(one.FAILURES) as caught:
        torch.empty(1 << 50)
    assert one.is_out_of_memory(caught.value)
    with pytest.raises(one.FAILURES) as caught:
        torch.zeros(2) @ torch.zeros(3)
    assert not one.is_out_of_memory(caught.value)


def test_a_network_that_cannot_train_with_one_image_has_a_reason() -> None:
    """`benchmark` reports the error of batch normalization, which needs more than one value.

    With one image of 32 pixels, the last channels have only one value each.
    """
    settings = BenchmarkSettings(batch_size=1, size=32, threads=1, device="cpu", precision="fp32")
    found = attempt(lambda: benchmark.open_framework(settings), "resnet50", Effort(1, 1, 0))
    assert isinstance(found, Failure)
    assert (found.code, "more than 1 value" in found.reason) == ("app-failed", True)


def test_wrong_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["benchmark", "--models", "resnet50", "alexnett"])
    assert_reported(capsys.readouterr().err, "argument-invalid", "alexnett", "alexnet")
    assert main(["benchmark", "--size", "7"]) == 2
    assert_reported(capsys.readouterr().err, "argument-invalid", "7", "8")


@pytest.mark.slow
def test_networks_are_measured_one_after_the_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check_benchmark(main, ("resnet20", "alexnet"), tmp_path, capfd, "--precision", "fp32")
