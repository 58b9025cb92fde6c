"""Cards: an app says of itself what the tool has to know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trimaran import paths, strict
from trimaran.errors import UsageError
from trimaran.images import definition
from trimaran.recipes import card
from trimaran.recipes.options import AppOptions

CARD: dict[str, Any] = {
    "schema": 1, "title": "A made-up app", "framework": "torch", "module": "made_up",
    "verbs": {"train": "train it"}, "data": {"kinds": ["class"], "sets": "one"},
    "metrics": {"psnr": {"key": "eval_psnr", "unit": "dB", "better": "higher"}},
}


def load(checkout: Path, content: dict[str, Any]) -> card.CardFile:
    path = checkout / "apps/made-up/app.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return card.load("made-up")


@pytest.mark.parametrize("name", card.names())
def test_the_card_of_each_app_agrees_with_its_options_and_its_images(name: str) -> None:
    found = card.load(name).card
    described = strict.load_json(AppOptions, paths.repository() / "apps" / name / "options.json")
    assert found.verbs == {verb: one.description for verb, one in described.verbs.items()}
    assert set(found.neutral_options) <= set(described.verbs["train"].options)
    images = [definition.load(image) for image in definition.names()]
    for image in images:
        if image.app is not None and name in image.app.packages:
            assert image.app.module == found.module
            assert set(image.app.commands) <= set(found.verbs)


def test_what_is_left_out_has_a_default(checkout: Path) -> None:
    metric = load(checkout, CARD).card.metrics["psnr"]
    assert (metric.factor, metric.digits, metric.hardware_bound) == (1.0, 2, False)
    assert (metric.shown, metric.panel, metric.result) == (None, None, None)
    assert metric.can_be(-1e300)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"surprise": 1}, "unknown key (allowed: schema, title, framework"),
        ({"framework": "caffe"}, "framework: Input should be 'torch' or 'tensorflow'"),
        ({"verbs": {}}, "verbs: Dictionary should have at least 1 item"),
        ({"metrics": {}}, "metrics: Dictionary should have at least 1 item"),
        ({"metrics": {"psnr": {"key": "a", "better": "more"}}},
         "app.yaml:14: metrics.psnr.better: Input should be 'higher' or 'lower' (found: 'more')"),
        ({"metrics": {"psnr": {"key": "a", "better": "higher", "factor": 0}}}, "psnr.factor"),
        ({"metrics": {"psnr": {"key": "a", "better": "higher", "shown": "now"}}}, "psnr.shown"),
        ({"metrics": {"psnr": {"key": "a", "better": "higher", "least": 2, "most": 1}}},
         "metrics.psnr: least: 2 is not below most, 1"),
        ({"data": {"kinds": [], "sets": "one"}}, "data: kinds: none, but sets: one"),
        ({"data": {"kinds": ["class"], "sets": "zero"}}, "data: kinds: class, but sets: zero"),
        ({"data": {"kinds": ["class"], "sets": "two"}}, "'zero', 'one' or 'several'"),
    ],
)
def test_faults_are_refused_with_file_and_line(
    checkout: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        load(checkout, {**CARD, **change})
    assert f"{checkout}/apps/made-up/app.yaml:" in caught.value.message
    assert message in caught.value.message


def test_an_app_that_is_not_there_and_one_without_a_card(checkout: Path) -> None:
    load(checkout, CARD)
    with pytest.raises(UsageError) as caught:
        card.load("made-upp")
    assert caught.value.hint == "did you mean made-up?"
    (checkout / "apps/other").mkdir()
    with pytest.raises(UsageError, match=r"apps/other/app\.yaml is not there"):
        card.load("other")


def test_units_and_what_depends_on_the_machine() -> None:
    found = card.load("resnet-imagenet").card
    units = {name: metric.unit for name, metric in found.metrics.items() if metric.unit}
    assert units == {"val_top1": "%", "val_top5": "%", "throughput": "img/s"}
    assert [n for n, metric in found.metrics.items() if metric.hardware_bound] == ["throughput"]
    assert found.neutral_options == ["seed", "watchdog"]
