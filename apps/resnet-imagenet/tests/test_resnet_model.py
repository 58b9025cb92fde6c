"""The networks have the sizes, the strides and the initial weights of their publications."""

import pytest
import torch
from torch import nn

from resnet_imagenet import model
from resnet_imagenet.settings import MODELS


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def build_without_memory(name: str) -> model.ResNet:
    """Return a network for ImageNet whose tensors have shapes, but no values in memory."""
    with torch.device("meta"):
        return model.build(name, classes=1000)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet18", 11_689_512),
        ("resnet34", 21_797_672),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
    ],
)
def test_imagenet_parameters_as_published(name: str, count: int) -> None:
    assert parameters(build_without_memory(name)) == count


@pytest.mark.parametrize("name", sorted(model.IMAGENET))
def test_layers_have_the_output_sizes_of_table_1(name: str) -> None:
    network = build_without_memory(name)
    expansion = 1 if name in ("resnet18", "resnet34") else 4
    x = network.stem(torch.zeros(2, 3, 224, 224, device="meta"))
    assert x.shape == (2, 64, 56, 56)
    for stage, width, side in zip(
        network.stages, (64, 128, 256, 512), (56, 28, 14, 7), strict=True
    ):
        x = stage(x)
        assert x.shape == (2, width * expansion, side, side)
    assert network.head(x.mean(dim=(2, 3))).shape == (2, 1000)


def test_running_statistics_take_the_asked_share_of_a_new_batch() -> None:
    network = model.build("resnet20", classes=10, bn_momentum=0.05)  # Caffe's 0.95
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {norm.momentum for norm in norms} == {0.05}
    norms[0](torch.full((2, 16, 4, 4), 8.0))
    assert torch.allclose(norms[0].running_mean, torch.full((16,), 0.05 * 8))


@pytest.mark.parametrize(("name", "millions"), [("resnet20", 0.27), ("resnet32", 0.46)])
def test_cifar_parameters_as_in_table_6(name: str, millions: float) -> None:
    network = model.build(name, classes=10)
    assert parameters(network) / 1e6 == pytest.approx(millions, abs=0.006)


@pytest.mark.parametrize("name", MODELS)
def test_weighted_layers_are_as_many_as_the_name_says(name: str) -> None:
    network = build_without_memory(name)
    projections = {
        id(m) for s in network.modules() if isinstance(s, nn.Sequential) and len(s) == 2
        for m in s if isinstance(m, nn.Conv2d)
    }
    weighted = [
        m
        for m in network.modules()
        if isinstance(m, nn.Conv2d | nn.Linear) and id(m) not in projections
    ]
    assert len(weighted) == int(name.removeprefix("resnet"))


@pytest.mark.parametrize("name", MODELS)
def test_logits_have_one_column_per_class(name: str) -> None:
    with torch.device("meta"):
        network = model.build(name, classes=7, channels=1, stem="small")
        assert network(torch.zeros(2, 1, 32, 32)).shape == (2, 7)


@pytest.mark.parametrize(("stem", "side"), [("imagenet", 8), ("small", 32)])
def test_stems_reduce_by_four_or_not_at_all(stem, side: int) -> None:
    network = model.build("resnet18", classes=10, stem=stem).eval()
    assert network.stem(torch.zeros(1, 3, 32, 32)).shape == (1, 64, side, side)


def test_v1_5_halves_in_the_3x3_convolution() -> None:
    block = model.build("resnet50", classes=10).stages[1][0]
    assert block.conv1.stride == (1, 1)
    assert block.conv2.stride == (2, 2)
    assert block.conv2.kernel_size == (3, 3)


def test_a_new_block_is_the_identity_of_its_non_negative_input() -> None:
    block = model.build("resnet20", classes=10).stages[0][0].train()
    x = torch.rand(2, 16, 8, 8)
    assert torch.equal(block(x), x)


def test_option_a_subsamples_pads_with_zeros_and_has_no_parameters() -> None:
    shortcut = model.PadShortcut(2, 6, 2)
    x = torch.arange(32.0).reshape(1, 2, 4, 4)
    y = shortcut(x)
    assert y.shape == (1, 6, 2, 2)
    assert torch.equal(y[:, 2:4], x[:, :, ::2, ::2])
    assert y[:, :2].abs().sum() == y[:, 4:].abs().sum() == 0
    assert parameters(shortcut) == 0
    assert parameters(model.build("resnet20", classes=10)) == 269_722


@pytest.mark.parametrize(("name", "last"), [("resnet18", "bn2"), ("resnet50", "bn3")])
def test_first_weights_are_those_of_the_papers(name: str, last: str) -> None:
    """Compare the deviation of weights, gamma and biases with the papers.

    He et al., arXiv:1502.01852, equation 14, and Goyal et al., arXiv:1706.02677, section 5.1.
    """
    torch.manual_seed(1)
    network = model.build(name, classes=1000)
    for key, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
            spread = 1.5 / module.weight.numel() ** 0.5
            assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=spread * 2)
            assert module.bias is None
        elif isinstance(module, nn.BatchNorm2d):
            gamma = 0.0 if key.endswith(last) else 1.0
            assert set(module.weight.tolist()) == {gamma}, key
            assert set(module.bias.tolist()) == {0.0}
    assert network.head.weight.std().item() == pytest.approx(0.01, rel=0.01)
    assert network.head.bias.abs().max() == 0


def test_a_block_adds_its_branch_to_its_input_and_cuts_below_zero() -> None:
    for name in ("resnet20", "resnet50"):
        block = model.build(name, classes=10).stages[0][1].eval()
        last = block.bn2 if name == "resnet20" else block.bn3
        with torch.no_grad():
            last.weight.fill_(0.5)
            last.bias.fill_(-0.1)
        x = torch.randn(2, 16 if name == "resnet20" else 256, 8, 8)
        out = torch.relu(block.bn1(block.conv1(x)))
        if name == "resnet20":
            out = block.bn2(block.conv2(out))
        else:
            out = block.bn3(block.conv3(torch.relu(block.bn2(block.conv2(out)))))
        torch.testing.assert_close(block(x), torch.relu(out + x))


def test_features_are_the_means_over_the_places() -> None:
    network = model.build("resnet20", classes=3).eval()
    x = torch.randn(2, 3, 16, 16)
    maps = network.stages(network.stem(x))
    wanted = maps.sum((2, 3)) / 16 @ network.head.weight.T + network.head.bias
    torch.testing.assert_close(network(x), wanted)


def test_a_stem_is_a_convolution_normalized_rectified_and_for_photographs_pooled() -> None:
    x = torch.randn(2, 3, 32, 32)
    for kind in ("small", "imagenet"):
        layers = model.stem(kind, 3, 4)
        maps = torch.relu(layers[1](layers[0](x)))
        if kind == "imagenet":
            maps = nn.functional.max_pool2d(maps, 3, 2, 1)
        torch.testing.assert_close(layers(x), maps)


def test_option_b_is_a_strided_1x1_with_its_own_normalization() -> None:
    shortcut, x = model.projection(2, 6, 2).eval(), torch.randn(2, 2, 8, 8)
    with torch.no_grad():
        shortcut[1].bias.fill_(-3.0)  # no ReLU follows
    weight = shortcut[0].weight[:, :, 0, 0]
    plain = torch.einsum("oc,nchw->nohw", weight, x[:, :, ::2, ::2]) / (1 + 1e-5) ** 0.5 - 3
    torch.testing.assert_close(shortcut(x), plain)
    assert isinstance(model.build("resnet50", classes=2).stages[0][0].shortcut, nn.Sequential)
