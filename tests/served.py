"""List the pages of the site that tests open: one of each kind, and the widest pages."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, ViewportSize, expect

PHONE: ViewportSize = {"width": 390, "height": 800}
DESK: ViewportSize = {"width": 1280, "height": 900}

Open = Callable[..., Page]
"""A function that opens the page at a path in the site; keywords: `dark` and `phone`."""

KINDS = (
    "", "recipes/", "recipes/resnet-imagenet/v100x1-throughput/",
    "recipes/resnet-imagenet/gtx1080ti-x4-scaling/", "recipes/resnet-imagenet/cpu-quickstart/",
    "recipes/resnet-imagenet/cpu-2core-large-batch-convergence/",
    "recipes/resnet-imagenet/skx8160-2s-cyclic1-convergence/",
    "results/", "results/throughput/", "results/scaling/", "results/accuracy/",
    "results/benchmarks/", "results/tests/", "results/measuring/", "images/",
    "images/resnet-imagenet-torch-cpu/", "images/building/", "apps/", "apps/futuregan/",
    "apps/chexnet/", "apps/resnet-imagenet/",
    "guides/precision/", "guides/strategies/", "tutorials/quickstart/", "tutorials/cluster/",
    "reference/cli/", "reference/recipe-schema/", "reference/trainkit/session/",
    "reference/exit-codes/", "project/changelog/",
)


def darken(page: Page) -> None:
    """Select dark colours, and wait until the page shows them."""
    page.get_by_title("Dark colours").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    page.wait_for_function("document.getAnimations().every(one => one.playState !== 'running')")
