"""Test the ring of points, and the distance between sets of points."""

import pytest
import torch

from toy_two_networks import networks, points


def test_a_batch_depends_on_seed_and_step_only() -> None:
    one, two = points.batch(17, 3, 64), points.batch(17, 3, 64)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one[0], points.batch(17, 4, 64)[0])
    assert not torch.equal(one[0], points.batch(18, 3, 64)[0])
    assert one[0].norm(dim=1).sub(1).abs().max() < 5 * points.SPREAD


def test_the_distance_is_that_of_a_shift() -> None:
    cloud = points.batch(17, 0, 512)[0]
    assert points.distance(cloud, cloud[torch.randperm(512)]) == 0.0
    # The mean of |cos| over all directions is 2 / pi.
    found = points.distance(cloud, cloud + torch.tensor([3.0, 0.0]))
    assert found == pytest.approx(3 * 2 / torch.pi, rel=0.01)


def test_growth_changes_no_point_yet() -> None:
    generator, noise = networks.Generator(), torch.randn(8, 2)
    before = generator(noise)
    generator.grow()
    assert torch.equal(before, generator(noise))
    assert len(generator.blocks) == 2


def test_slopes_of_a_plane_are_its_own() -> None:
    plane = torch.nn.Linear(2, 1)
    found = networks.slopes(plane, torch.randn(5, 2))
    assert found.tolist() == pytest.approx([plane.weight.norm().item()] * 5)
    found.sum().backward()
    assert plane.weight.grad is not None
