"""Test comparisons of variants in READMEs and on pages: chosen recipes, table, picture, plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import variantapp
from generator import evidence, recipe_status, variants
from generator import sources as everything
from generator.sources import Sources
from generator.variants import Found
from refusals import refused
from trimaran import paths
from trimaran.errors import UsageError
from trimaran.evidence import writing
from trimaran.evidence.content import sealed
from trimaran.recipes import cards
from trimaran.recipes.cards import Argument
from trimaran.report import report
from trimaran.report.page import short
from trimaran.run import run_directory

READ = everything.read()
WITH_VARIANTS = [app for app, card in READ.cards.items() if card.variants is not None]
README = f"# Boats\n\n{variants.BEGIN}\nold\n{variants.END}\n\nThe end.\n"


@pytest.mark.parametrize("app", WITH_VARIANTS)
def test_the_readme_of_each_app_with_variants_has_the_current_comparison(app: str) -> None:
    readme = paths.repository() / f"apps/{app}/README.md"
    found = variants.find(app, READ)
    assert variants.readme(app, found) == readme.read_text(), "run: make generate"
    found, picture = variants.find(app, READ), readme.with_name(variants.PICTURE)
    drawn = variants.picture(found) if found else None
    assert drawn == (picture.read_text() if picture.exists() else None), "run: make generate"


def test_an_app_has_variants() -> None:
    assert "keras-resnet" in WITH_VARIANTS


def read() -> Sources:
    shelf = evidence.read()
    standings = {one.name: one for one in recipe_status.all_of(shelf)}
    known = {name: cards.load(name).card for name in cards.names()}
    return Sources(shelf, standings, [], known, None)  # type: ignore[arg-type]


def publish(
    checkout: Path, name: str, *, day: str = "2026-01-02", lap: float = 10, cores: int = 2,
    seed: int = 1, changed: dict[str, Argument] | None = None, **args: Argument,
) -> None:
    """Write a recipe, and evidence of a run of it with two epochs.

    The metric of the time of an epoch has the value `lap`, in seconds, for the second epoch.
    """
    recipe = variantapp.recipe(checkout, name, **args)
    directory = checkout / f"{name}-{day}-{seed}-{cores}"
    variantapp.leave(directory, recipe, (0.5, 0.6), (99, lap), sent=1e6 * lap, size=1,
                     changed={"seed": seed, **(changed or {})})
    record = run_directory.load(directory)
    host = record.host.model_copy(update={"cores": cores, "hostname": "a"})
    times = {"started": f"{day}T10:00:00Z", "ended": f"{day}T11:00:00Z"}
    file = checkout / evidence.RESULTS / recipe.name / f"{day}-host-{seed}-{cores}.json"
    record = type(record).model_validate(
        {**record.model_dump(mode="json"), "host": host.model_dump(), **times})
    verdict = report.write(directory)[1]
    file.parent.mkdir(parents=True, exist_ok=True)
    writing.write(directory, record, verdict, file)


@pytest.fixture
def boats(checkout: Path) -> Path:
    """Create a checkout with evidence of four recipes: the quickstart and three others.

    Two of them differ from the quickstart only in the variant. The third cannot be compared
    with it, because it also has another value of the option `crew`.
    """
    (variantapp.write(checkout) / "README.md").write_text(README)
    for seed, lap in ((1, 40), (2, 60)):
        publish(checkout, "cpu-quickstart", lap=lap, seed=seed, crew=3)
    publish(checkout, "cpu-2core-ketch-convergence", rig="ketch", masts=2, crew=3, lap=20)
    publish(checkout, "cpu-2core-crew-convergence", rig="yawl", crew=4)
    publish(checkout, "cpu-2core-full-smoke", rig="ketch", spinnaker=True, crew=3, lap=100)
    return checkout


def find() -> Found:
    found = variants.find(variantapp.APP, read())
    assert found is not None
    return found


def test_recipes_that_differ_only_in_the_variant_are_compared_in_the_order_of_the_card(
    boats: Path
) -> None:
    variantapp.recipe(boats, "cpu-2core-yawl-convergence", rig="yawl", crew=3)  # without a run
    found = find().variants
    assert [(one.name, one.group, one.times, one.speedup) for one in found.groups] == [
        ("sloop", "sailing/cpu-quickstart", [60, 40], 1),
        ("ketch", "sailing/cpu-2core-ketch-convergence", [20], 2.5),
        ("ketch, spinnaker", "sailing/cpu-2core-full-smoke", [100], 0.5),
    ]


def test_the_newest_run_counts_with_its_repeats_on_the_machine_of_the_quickstart(
    boats: Path
) -> None:
    publish(boats, "cpu-quickstart", day="2026-03-01", lap=30, crew=3, changed={"masts": 2})
    publish(boats, "cpu-2core-ketch-convergence", day="2026-03-01", rig="ketch", masts=2, crew=3,
            lap=5, cores=64)
    assert [one.times for one in find().variants.groups][:2] == [[60, 40], [20]]
    publish(boats, "cpu-2core-ketch-convergence", day="2026-03-01", rig="ketch", masts=2, crew=3,
            lap=25)
    assert find().variants.groups[1].times == [25, 20]
    path = boats / "recipes/sailing/cpu-2core-ketch-convergence.yaml"
    path.write_text(path.read_text() + "# A new wording.\n")
    assert find().variants.groups[1].times == [25, 20]


def test_an_app_without_variants_or_without_a_run_of_its_quickstart_has_no_comparison(
    checkout: Path
) -> None:
    folder = variantapp.write(checkout)
    (folder / "README.md").write_text(README)
    assert variants.find("resnet-imagenet", read()) is None
    assert variants.find(variantapp.APP, read()) is None
    variantapp.recipe(checkout)
    publish(checkout, "cpu-2core-ketch-convergence", rig="ketch")
    assert variants.find(variantapp.APP, read()) is None
    assert variants.adopted("text", "apps/r.md", "resnet-imagenet", read()) == ("text", [])
    new = README.replace("\nold\n", f"\n\n{variants.NOTHING}\n\n")
    assert variants.readme(variantapp.APP, variants.find(variantapp.APP, read())) == new
    assert variants.adopted(README, "apps/sailing.md", variantapp.APP, read()) == (new, [])


def test_one_variant_alone_is_no_comparison(checkout: Path) -> None:
    (variantapp.write(checkout) / "README.md").write_text(README)
    publish(checkout, "cpu-quickstart")
    assert variants.find(variantapp.APP, read()) is None
    publish(checkout, "cpu-2core-ketch-convergence", rig="ketch")
    assert variants.find(variantapp.APP, read()) is not None


def test_runs_with_another_image_do_not_count(boats: Path) -> None:
    place = boats / evidence.RESULTS / "sailing/cpu-2core-ketch-convergence"
    (file,) = place.glob("*.json")
    content = json.loads(file.read_text())
    digest = content["run"]["image"]["digest"]
    assert f"with the image {content['run']['image']['name']} {short(digest)}" in find().origin
    content["run"]["image"]["digest"] = digest[:-4] + "0000"
    file.write_text(json.dumps(sealed(content)))
    assert [one.name for one in find().variants.groups] == ["sloop", "ketch, spinnaker"]


def test_the_readme_gets_table_and_picture(boats: Path) -> None:
    variants.write(read())
    folder = boats / "apps/sailing"
    text = (folder / "README.md").read_text()
    assert "| `rig` | ranks | lap, s | speed-up | freight, MB | lines that differ |" in text
    assert "| `sloop` | 1 | 50.0 | 1.00 | 50.00 | 0 |" in text
    assert "| `ketch` | 1 | 20.0 | 2.50 | 20.00 | 3 |" in text
    assert "| score, %, after epoch | 1 | 2 |" in text
    assert "| `ketch, spinnaker` | 50.0 | 60.0 |" in text
    assert "- Recipes: `sailing/cpu-quickstart`, `sailing/cpu-2core-ketch-convergence`," in text
    assert "measured 2026-01-02 on 2 cores" in text
    assert "old" not in text
    assert text.startswith("# Boats\n")
    assert text.endswith("\n\nThe end.\n")
    assert f"]({variants.PICTURE})" in text
    picture = (folder / variants.PICTURE).read_text()
    assert picture.count("<path d=") > 0
    assert "ketch, spinnaker" in picture
    variants.write(read())
    assert (folder / "README.md").read_text() == text


def test_a_picture_without_values_is_removed(boats: Path) -> None:
    variants.write(read())
    for file in (boats / evidence.RESULTS).rglob("*.json"):
        file.unlink()
    variants.write(read())
    folder = boats / "apps/sailing"
    assert not (folder / variants.PICTURE).exists()
    text = (folder / "README.md").read_text()
    assert variants.NOTHING in text
    assert "sloop" not in text
    assert variants.PICTURE not in text


def test_the_page_has_plots_in_place_of_the_picture(boats: Path) -> None:
    variants.write(read())
    text = (boats / "apps/sailing/README.md").read_text()
    page, plots = variants.adopted(text, "apps/sailing.md", variantapp.APP, read())
    assert [plot.name for plot in plots] == [
        "variants-sailing-epochs", "variants-sailing-time", "variants-sailing-lap"]
    assert variants.PICTURE not in page
    assert all(f"assets/plots/{plot.name}.csv" in page for plot in plots)
    files: dict[str, Any] = {}
    for plot in plots:
        files |= plot.files()
    assert files["assets/plots/variants-sailing-epochs.csv"].splitlines()[:2] == [
        "rig,recipe,epoch,seconds,\"score, %\"", "sloop,sailing/cpu-quickstart,1,102.0,50.0"]
    assert files["assets/plots/variants-sailing-lap.csv"].splitlines()[1:3] == [
        "sloop,sailing/cpu-quickstart,60.0", "sloop,sailing/cpu-quickstart,40.0"]


def test_a_readme_without_the_place_of_the_comparison_is_refused(boats: Path) -> None:
    readme = boats / "apps/sailing/README.md"
    readme.write_text("# Boats\n")
    with refused("file-invalid", readme, variants.BEGIN, kind=UsageError) as caught:
        variants.write(read())
    assert "add both lines" in (caught.value.hint or "")
