"""Test how `trimaran submit` prepares a run: settings of the cluster, and the job script.

A recipe is also loaded for another number of nodes than its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from refusals import refused
from trimaran.cluster import docker, submission
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import UsageError
from trimaran.recipes import library
from trimaran.run.request import Request
from trimaran.site_file import Cluster, Site

TWO_NODES, SERIES = "resnet-imagenet/cpu-2node-smoke", "resnet-imagenet/gtx1080ti-x4-scaling"


def request() -> Request:
    return Request(library.load(TWO_NODES), Apptainer("apptainer"), {}, queued=True)


def test_the_first_cluster_is_taken_or_the_one_that_is_named() -> None:
    site = Site(clusters={"a": Cluster(partition="x"), "b": Cluster(partition="y")})
    assert submission.choose(site, None) == ("a", site.clusters["a"])
    assert submission.choose(site, "b")[1].partition == "y"
    assert submission.choose(Site(), None) == ("slurm", Cluster())
    with refused("name-unknown", "'c'", "a, b", kind=UsageError):
        submission.choose(site, "c")


def test_a_clusters_data_are_taken_where_none_are_given(tmp_path: Path) -> None:
    (tmp_path / "fashion-mnist").mkdir()
    home = submission.at_home(request(), Cluster(data=tmp_path))
    assert home.folders == {"fashion-mnist": tmp_path / "fashion-mnist"}
    assert submission.at_home(request(), Cluster(data=tmp_path / "no")).folders == {}


STAGE = "resnet-imagenet/skx8160-2s-cyclic3-convergence"
FIRST = (
    "# first: a run of resnet-imagenet/skx8160-2s-cyclic2-convergence; then --initial"
    " RUN/checkpoints/step-00003750.npz, in place of /RUN/checkpoints\n"
)


def test_the_script_of_a_second_stage_is_shown_without_the_first() -> None:
    stage = Request(library.load(STAGE), Apptainer("apptainer"), {}, queued=True,
                    site=Site(registry="registry.example/x"))
    text = submission.preview(stage, Cluster())
    assert FIRST in text
    assert "/RUN/checkpoints/step-00003750.npz" in text.replace(FIRST, "")
    assert "--initial=/initial.npz" in text


def test_published_weights_are_in_the_script_that_is_shown() -> None:
    stage = Request(library.load("chexnet/cpu-quickstart"), Apptainer("apptainer"), {}, queued=True,
                    site=Site(registry="registry.example/x"))
    for text in (submission.preview(stage, Cluster()), docker.render(stage, Cluster())):
        assert "# first: weights mobilenetv2-imagenet: the run downloads them\n" in text
        assert "--initial=/initial.pth" in text


def test_runs_are_made_on_the_clusters_scratch(tmp_path: Path) -> None:
    out = submission.at_home(request(), Cluster(scratch=tmp_path)).out
    assert out is not None
    assert out.parent == tmp_path / "runs" / TWO_NODES
    assert submission.at_home(request(), Cluster()).out is None


def test_another_number_of_nodes_is_the_recipes_own_experiment_no_more() -> None:
    assert library.sized(TWO_NODES, 2).nodes is None
    four = library.sized(TWO_NODES, 4)
    assert (four.nodes, four.recipe.resources.nodes) == (4, 4)


def test_a_series_has_the_largest_point_of_so_many_nodes() -> None:
    assert library.sized(SERIES, 1).name == f"{SERIES}@4"
    assert library.sized(SERIES, 16).name == f"{SERIES}@64"
    with pytest.raises(UsageError, match=r"\b3 nodes"):
        library.sized(SERIES, 3)
