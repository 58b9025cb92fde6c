"""Tests of the training that an image must pass before it is published."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import tinyapp
from refusals import refused
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import BuildError
from trimaran.images import definition
from trimaran.publishing import smoke
from trimaran.reporting import Silent
from trimaran.run import pipeline
from trimaran.run.request import Request
from trimaran.site_file import Site
from trimaran.verdict.metrics import Outcome, Row, Verdict, worst

DIGEST = "sha256:" + "2" * 64

CARD_WITH_RATE = tinyapp.CARD.replace("neutral_options", """\
  rate: {key: throughput, unit: images/s, better: higher, least: 0, hardware_bound: true}
neutral_options""")


def verdict(**outcomes: Outcome) -> Verdict:
    """Return a verdict with these outcomes of metrics, and a metric that is only shown."""
    rows = [
        Row(metric=metric, unit="%", at="end", measured=1, basis="x", outcome=outcome,
            required=True)
        for metric, outcome in outcomes.items()
    ]
    shown = Row(metric="val_top1", unit="%", at="end", measured=1, basis="x",
                outcome="NO REFERENCE", required=False)
    return Verdict(outcome=worst([row.outcome for row in rows]), reasons=[], notes=[],
                   rows=[*rows, shown], checked=[])


@pytest.mark.parametrize(("found", "published"), [
    (verdict(val_top1="PASS"), True),
    (verdict(val_top1="FAIL"), False),
    (verdict(val_top1="NO REFERENCE"), False),
    (verdict(val_top1="PASS", rate="NO REFERENCE"), True),
    (verdict(rate="NO REFERENCE"), True),
    (verdict(val_top1="PASS", rate="FAIL"), False),
    (verdict(), False),
])
def test_an_image_is_published_if_each_metric_of_its_training_passes(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Verdict,
    published: bool,
) -> None:
    tinyapp.write(checkout, tmp_path / "sources")
    (checkout / "apps/hello/app.yaml").write_text(CARD_WITH_RATE)
    asked: list[Request] = []

    def execute(request: Request, reporter: Silent) -> Path:
        asked.append(request)
        return Path("runs/one")

    monkeypatch.setattr(pipeline, "execute", execute)
    monkeypatch.setattr(smoke.run_verdict, "judge", lambda _: SimpleNamespace(verdict=found))
    image = definition.on(definition.load(tinyapp.APP_IMAGE), "arm64")
    built = BuiltImage(image.name, "apptainer", "x.sif", DIGEST, "0" * 64, 1)

    def train() -> str:
        engine = Apptainer("/opt/apptainer/bin/apptainer")
        return smoke.train(image, engine, built, Site(), Silent())

    if published:
        assert found.outcome in train()
    else:
        with refused("smoke-failed", "arm64", "runs/one", found.outcome, kind=BuildError):
            train()
    [request] = asked
    assert request.image.architecture == "arm64"
    assert request.pinned == built.digest, "the training is in this very image"
