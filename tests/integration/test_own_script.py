"""The scripts of the page "Your own script": two ranks train as one process does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import cluster
from inside import MPIRUN
from ownscripts import (
    EXACT,
    SCRIPTS,
    TORCHRUN,
    Trained,
    apptainer,
    assert_as_one,
    started,
    trained,
    write_data,
)
from showncommands import ROOT

pytestmark = [pytest.mark.trains, pytest.mark.timeout(1800)]  # images are built, the first time
@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "images.npz"
    write_data(path)
    return path


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a read-only copy of the folder `SCRIPTS`, the scripts of the tutorial for own code."""
    folder = tmp_path_factory.mktemp("own") / "scripts"
    folder.mkdir()
    for path in SCRIPTS.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)


class Host(NamedTuple):
    """A virtual environment for the apps of one framework; a call runs a script once per rank."""

    python: str
    place: Path
    data: Path
    variables: dict[str, str]

    def __call__(self, script: Path, *words: str, ranks: Sequence[Mapping[str, str]] = ({},)
                 ) -> Trained:
        argv = [self.python, *words, str(script), str(self.data)]
        each = [{**self.variables, **env} for env in ranks]
        return trained(started(each, argv, self.place / script.stem))


def host(framework: str, data: Path, place: Path, **variables: str) -> Host:
    return Host(str(ROOT / f".venv-apps-{framework}/bin/python"), place, data, variables)


@pytest.fixture(scope="module")
def torch(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Host:
    return host("torch", data, tmp_path_factory.mktemp("torch"))


@pytest.fixture(scope="module")
def tensorflow(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Host:
    packages = [str(ROOT / "apps" / name / "src") for name in ("shards", "trainkit")]
    return host("tensorflow", data, tmp_path_factory.mktemp("tensorflow"),
                TF_USE_LEGACY_KERAS="1", PYTHONPATH=os.pathsep.join(packages))


@pytest.fixture(scope="module")
def alone(torch: Host, scripts: Path) -> Trained:
    """Return the loss and the weights of a training with one process of PyTorch."""
    return torch(scripts / "torch_plain.py")


@pytest.mark.engine("apps-torch")
def test_two_ranks_of_ddp_train_as_one_process(
    torch: Host, scripts: Path, alone: Trained
) -> None:
    assert len(alone.checksums) == 1
    assert_as_one(torch(scripts / "torch_ddp.py", *TORCHRUN), alone)


@pytest.mark.engine("apps-torch")
@pytest.mark.parametrize(("right", "wrong", "equal_weights"), [
    ("replica(x", "model(x", False),  # gradients are not averaged
    ("BATCH // ranks", "BATCH", True),  # a larger batch of all ranks
    ("total / len(batches) / ranks", "total / len(batches)", True),  # a sum instead of a mean
    ("ranks, rank, seed=17", "1, 0, seed=17", True),  # every rank has the same images
    ("sampler.set_epoch(epoch)", "pass", True),  # the same order in each epoch
])
def test_the_checks_of_the_page_find_faults(
    right: str, wrong: str, equal_weights: bool, torch: Host, scripts: Path, alone: Trained,
    tmp_path: Path,
) -> None:
    text = (scripts / "torch_ddp.py").read_text()
    assert text.count(right) == 1
    script = tmp_path / "faulty.py"
    script.write_text(text.replace(right, wrong))
    ranks = torch(script, *TORCHRUN)
    assert (len(set(ranks.checksums)) == 1) == equal_weights
    with pytest.raises(AssertionError):
        assert_as_one(ranks, alone)


@pytest.mark.engine("apps-tensorflow")
def test_two_replicas_of_keras_train_as_one_process(tensorflow: Host, scripts: Path) -> None:
    alone = tensorflow(scripts / "keras_plain.py")
    mirrored = tensorflow(scripts / "keras_mirrored.py")
    assert mirrored.losses == pytest.approx(alone.losses, abs=EXACT)

    workers = ",".join(f"localhost:{port}" for port in cluster.free_ports(2))
    ranks = [{"WORKERS": workers, "SLURM_PROCID": str(rank)} for rank in range(2)]
    assert_as_one(tensorflow(scripts / "keras_multiworker.py", ranks=ranks), alone)

    [port] = cluster.free_ports(1)
    ranks = [{"MASTER_PORT": str(port), "OMPI_COMM_WORLD_RANK": str(rank),
              "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
              "OMPI_COMM_WORLD_LOCAL_SIZE": "2"} for rank in range(2)]
    assert_as_one(tensorflow(scripts / "keras_multiworker_trainkit.py", ranks=ranks), alone)


@pytest.mark.engine("apptainer")
@pytest.mark.usefixtures("user_cache")
@pytest.mark.parametrize(("image", "plain", "script", "verb", "words"), [
    ("tensorflow-cpu", "keras_plain.py", "keras_multiworker.py", "exec", MPIRUN),
    ("tensorflow-cpu", "keras_plain.py", "keras_horovod.py", "exec", MPIRUN),
    ("torch-cpu", "torch_plain.py", "torch_ddp.py", "run", TORCHRUN),
    ("torch-cpu", "torch_plain.py", "torch_horovod.py", "exec", MPIRUN),
])
def test_two_ranks_in_an_image_train_as_one_process(
    image: str, plain: str, script: str, verb: str, words: list[str], scripts: Path, data: Path,
    own_place: Path,
) -> None:
    first, second = cluster.free_ports(2)
    env = {"WORKERS": f"localhost:{first},localhost:{second}"}
    one = apptainer("run", image, str(scripts / plain), str(data))
    alone = trained(started([env], one, own_place / "plain"))
    two = apptainer(verb, image, *words, str(scripts / script), str(data))
    assert_as_one(trained(started([env], two, own_place / "ranks")), alone)
