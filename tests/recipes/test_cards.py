"""Tests of app cards: parsing, and agreement with options and images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from refusals import refused
from trimaran import paths, strict
from trimaran.errors import UsageError
from trimaran.images import definition
from trimaran.recipes import cards
from trimaran.recipes.cards import AppOptions, Metric

CARD: dict[str, Any] = {
    "schema": 1, "title": "A made-up app", "framework": "torch", "module": "made_up",
    "verbs": {"train": "train it"}, "data": {"kinds": ["class"], "sets": "one"},
    "metrics": {"psnr": {"key": "eval_psnr", "unit": "dB", "better": "higher"},
                "lap": {"key": "lap_seconds", "unit": "s", "better": "lower"}},
}
VARIANTS = {"option": "rig", "files": {"sloop": "src/sloop.py"}, "per_epoch": "psnr",
            "time": "lap", "sent": "psnr"}


def load(checkout: Path, content: dict[str, Any], options: str | None = None) -> cards.CardFile:
    path = checkout / "apps/made-up/app.yaml"
    path.parent.mkdir(exist_ok=True)
    if options is not None:
        (path.parent / "options.json").write_text(options)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return cards.load("made-up")


@pytest.mark.parametrize("name", cards.names())
def test_there_is_a_framework_image_for_each_app(name: str) -> None:
    image = definition.load(f"{cards.load(name).card.framework}-cpu")
    assert image.kind == "framework"


@pytest.mark.parametrize("name", cards.names())
def test_the_files_of_variants_are_there(name: str) -> None:
    variants = cards.load(name).card.variants
    for file in variants.files.values() if variants else ():
        assert (paths.repository() / "apps" / name / file).is_file(), file


@pytest.mark.parametrize("name", cards.names())
def test_the_card_of_each_app_agrees_with_its_options_and_its_images(name: str) -> None:
    found = cards.load(name).card
    described = strict.load_json(AppOptions, paths.repository() / "apps" / name / "options.json")
    assert found.verbs == {verb: one.description for verb, one in described.verbs.items()}
    known = {option for verb in described.verbs.values() for option in verb.options}
    assert set(found.neutral_options) <= known
    for image in map(definition.load, definition.names()):
        if image.app is not None and name in image.app.packages:
            entry = definition.entry(image)
            assert entry is not None
            assert (entry.module, entry.verbs) == (found.module, found.verbs)


def test_what_is_left_out_has_a_default(checkout: Path) -> None:
    metric = load(checkout, CARD).card.metrics["psnr"]
    assert (metric.factor, metric.digits, metric.hardware_bound) == (1.0, 2, False)
    assert (metric.shown, metric.panel, metric.result) == (None, None, None)
    assert metric.can_be(-1e300)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"surprise": 1}, "surprise: .*schema, title, framework"),
        ({"framework": "Py Torch"}, "framework: "),
        ({"verbs": {}}, "verbs: "),
        ({"metrics": {}}, "metrics: "),
        ({"metrics": {"psnr": {"key": "a", "better": "more"}}},
         r":14: metrics\.psnr\.better: .*'higher' or 'lower' .*'more'"),
        ({"metrics": {"psnr": {"key": "a", "better": "higher", "factor": 0}}}, r"psnr\.factor: "),
        ({"metrics": {"psnr": {"key": "a", "better": "higher", "shown": "now"}}}, r"psnr\.shown: "),
        ({"metrics": {"psnr": {"key": "a", "better": "higher", "least": 2, "most": 1}}},
         r"metrics\.psnr: least: 2 .*most: 1"),
        ({"variants": {**VARIANTS, "time": "lapp"}}, "variants: no metric 'lapp' .*lap"),
        ({"variants": {**VARIANTS, "sent": "psnrr"}}, "variants: no metric 'psnrr' .*psnr"),
        ({"variants": {**VARIANTS, "time": "psnr"}}, "variants: psnr is not a time"),
        ({"variants": {**VARIANTS, "files": {}}}, r"variants\.files: "),
        ({"variants": {**VARIANTS, "files": {"sloop": "../a.py"}}}, r"variants\.files\.sloop: "),
        ({"variants": {**VARIANTS, "files": {"sloop": "/a.py"}}}, r"variants\.files\.sloop: "),
        ({"data": {"kinds": [], "sets": "one"}}, "data: kinds: none .*sets: one"),
        ({"data": {"kinds": ["class"], "sets": "zero"}}, "data: kinds: class .*sets: zero"),
        ({"data": {"kinds": ["class"], "sets": "two"}}, r"sets: .*'zero', 'one' or 'several'"),
    ],
)
def test_faults_are_refused_with_file_and_line(
    checkout: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load(checkout, {**CARD, **change})
    assert f"{checkout}/apps/made-up/app.yaml:" in caught.value.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"neutral_options": ["seed", "wachdog"]},
         r"23: neutral_options\.1: .*'wachdog' .*watchdog"),
        ({"variants": {**VARIANTS, "option": "rigg"}},
         r"\d+: variants\.option: .*'rigg' .*rig"),
        ({"variants": {**VARIANTS, "further": ["seed", "sail"]}},
         r"\d+: variants\.further\.1: .*'sail'"),
        ({"variants": {**VARIANTS, "follow": ["mast"]}}, r"\d+: variants\.follow\.0: .*'mast'"),
        ({"tuning": {"strategy": "rig", "launchers": {"mpirun": "sloup"}}},
         r"\d+: tuning\.launchers\.mpirun: rig must be one of sloop, ketch; got sloup"),
        ({"variants": {**VARIANTS, "files": {"sloop": "a.py", "sloup": "b.py"}}},
         r"\d+: variants\.files\.sloup: rig must be one of sloop, ketch; got sloup"),
        ({"verbs": {"train": "train it", "evaluat": "look at it"}},
         r"7: verbs\.evaluat: .*'evaluat' .*evaluate"),
        ({"verbs": {"evaluate": "look at it"}}, "5: verbs: .*train"),
    ],
)
def test_a_card_that_does_not_agree_with_the_options_is_refused_with_its_line(
    checkout: Path, change: dict[str, Any], message: str
) -> None:
    option = {"type": "integer", "description": "how"}
    rig = {"type": "string", "enum": ["sloop", "ketch"], "description": "which boat"}
    options = {"seed": option, "watchdog": option, "rig": rig}
    verbs = {"train": {"description": "train it", "options": options},
             "evaluate": {"description": "look at it", "options": {}}}
    described = json.dumps({"schema": 1, "verbs": verbs})
    card = {**CARD, "verbs": {"train": "a", "evaluate": "b"}}
    assert load(checkout, card, described).card.verbs["train"] == "a"
    path = checkout / "apps/made-up/app.yaml"
    with pytest.raises(UsageError, match=rf"^{path}:{message}") as caught:
        load(checkout, {**card, **change}, described)
    assert "make generate-apps" in str(caught.value.hint)


def test_an_app_that_is_not_there_and_one_without_a_card(checkout: Path) -> None:
    load(checkout, CARD)
    with refused("name-unknown", "made-upp", kind=UsageError) as caught:
        cards.load("made-upp")
    assert "made-up?" in str(caught.value.hint)
    (checkout / "apps/other").mkdir()
    with refused("file-missing", "apps/other/app.yaml", kind=UsageError):
        cards.load("other")


def test_units_and_what_depends_on_the_machine() -> None:
    found = cards.load("resnet-imagenet").card
    units = {name: metric.unit for name, metric in found.metrics.items() if metric.unit}
    energy = {"energy_per_sample": "J/sample", "mean_power": "W", "energy": "kJ",
              "host_energy": "kJ", "power": "W"}
    time = {"epoch_time": "s", "time_to_train": "h", "peak_memory": "GB"}
    assert units == {"val_top1": "%", "val_top5": "%", **time, "throughput": "img/s", **energy}
    bound = [name for name, metric in found.metrics.items() if metric.hardware_bound]
    assert bound == [*time, "throughput", *energy]
    assert found.neutral_options == ["seed", "watchdog"]


def test_the_rate_is_the_first_of_the_machine_that_is_better_higher() -> None:
    card = cards.load("resnet-imagenet").card
    metrics = {
        name: Metric(key=name, better=better, hardware_bound=bound)
        for name, better, bound in (
            ("score", "higher", False), ("seconds", "lower", True), ("speed", "higher", True),
            ("memory", "lower", True), ("other_speed", "higher", True),
        )
    }
    assert card.model_copy(update={"metrics": metrics}).rate == "speed"
    for name in ("speed", "other_speed"):
        del metrics[name]
    assert card.model_copy(update={"metrics": metrics}).rate is None
