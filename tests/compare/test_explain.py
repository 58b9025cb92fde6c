"""Test how a comparison of runs is shown: as sentences, as tables and as a page."""

from __future__ import annotations

import pytest

from comparable import Make, noise
from trimaran.compare import explain
from trimaran.compare.comparison import compare


def test_each_difference_is_a_sentence_in_the_unit_of_the_metric(make: Make) -> None:
    found, _ = compare([make("a", (0.9,), noise(1, 1000)), make("b", (0.92,), noise(2, 1200))])
    said = explain.sentences(found)
    assert said[0] == (
        f"val_top1: B is 2.00 points higher than A, {explain._OUTCOMES['not known']}."
    )
    assert said[1] == "val_top5: no difference between B and A."
    outcome = explain._OUTCOMES["more than noise within the runs"]
    assert said[2] == f"throughput: B is 199 img/s (19.9 %) higher than A, {outcome}."


def test_groups_that_are_not_judged_share_a_sentence(make: Make) -> None:
    found, _ = compare([make("a", (0.9,)), make("b", (0.92,), epochs=2),
                        make("c", (0.87,), epochs=3)])
    [said] = [line for line in explain.sentences(found) if line.startswith("val_top1")]
    assert said.startswith("val_top1: B, C differ from A by at most 3.00 points")
    assert "B differs from A in: arguments epochs=2 instead of the recipe's." in (
        explain.sentences(found)
    )


def test_every_table_is_whole(make: Make) -> None:
    found, _ = compare([make("a", (0.5, 0.9), size=1), make("b", (0.9,), size=2, cores=9),
                        make("c", (0.91,), size=2, cores=9, seed=4)])
    tables = explain.tables(found)
    assert [table.title.partition(":")[0] for table in tables] == [
        "groups", "runs", "metrics", "first evaluation that reached it", "scaling"
    ]
    for table in tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    metrics = tables[2]
    assert metrics.columns[3:5] == ["less A", "95 % interval"]
    assert metrics.rows[1][1:3] == ["B", "90.50 %, deviation 0.71, 2 runs"]
    assert metrics.rows[1][4].endswith(" points")


@pytest.mark.parametrize("name", ["run", "<b>run</b>"])
def test_the_page_has_words_tables_and_curves_and_is_but_text(make: Make, name: str) -> None:
    found, groups = compare([make("a", (0.5, 0.9)), make("b", (0.6, 0.7), seed=2)])
    found.runs[0].source = name
    text = explain.render(found, groups)
    for line in (*explain.sentences(found), *found.notes):
        assert line.replace("'", "&#39;") in text
    assert "<b>run" not in text
    assert text.count('<figure class="chart by-steps"') == 3
    assert text.count('<figure class="chart by-time"') == 3
    assert text.count("<script>") == 1
