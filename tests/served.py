"""The pages of the site that tests open: one of each kind, and those with the widest content."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page

Open = Callable[..., Page]
"""Opens a page by its place in the site; keywords `dark` and `phone`."""

KINDS = (
    "", "recipes/", "recipes/resnet-imagenet/v100x1-throughput/",
    "recipes/resnet-imagenet/gtx1080ti-x4-scaling/", "recipes/resnet-imagenet/cpu-quickstart/",
    "results/", "results/throughput/", "results/scaling/", "results/accuracy/",
    "results/benchmarks/", "results/tests/", "images/", "images/resnet-imagenet-torch-cpu/",
    "images/building/", "apps/", "apps/futuregan/", "apps/chexnet/", "apps/resnet-imagenet/",
    "guides/precision/", "guides/strategies/", "tutorials/quickstart/", "tutorials/cluster/",
    "reference/cli/", "reference/recipe-schema/", "reference/trainkit/session/",
    "reference/exit-codes/", "project/changelog/",
)
