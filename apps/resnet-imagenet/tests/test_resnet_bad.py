"""Test `--max-bad-records`: bad records are reported and replaced, and nothing else changes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from written_shards import converted

from oddpictures import BAD as BAD_PICTURES
from oddpictures import GOOD as GOOD_PICTURES
from resnet_imagenet import data
from resnet_imagenet.data import Loader
from resnet_imagenet.pipelines import PipelineOptions
from trainkit import checkpoint
from trainkit.data.bad import BadRecords
from trainkit.data.dataset import open_dataset
from trainkit.exits import DataError
from trainkit.ranks import Ranks
from trainkit.testing.refusals import assert_reported, refused
from trainkit.torch.strategy import TorchStrategy

BAD = (17, 53, 54)
TAKEN_BY = {17: 18, 53: 55, 54: 55}


def damaged(source: Path, folder: Path, numbers=BAD, content: bytes = b"no image") -> Path:
    dataset, samples = open_dataset(source), {}
    for split in dataset.splits:
        records = dataset.records(split)
        images = [records.encoded(n).tobytes() for n in range(len(records))]
        for number in numbers if split == "train" else ():
            images[number] = content
        samples[split] = (images, [records.label(n) for n in range(len(records))])
    return converted(source, folder, "recordio", samples)


@pytest.fixture
def bad_folder(numbered: Path, tmp_path: Path) -> Path:
    """Return a copy of `numbered` with three damaged records, two of which are adjacent."""
    return damaged(numbered, tmp_path / "bad")


@pytest.fixture(autouse=True)
def two_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use two lanes, which are pipelines that make batches in turn; small images normally use one.

    With two lanes, bad records are harder to find.
    """
    monkeypatch.setattr(data, "lanes", lambda _, way: min(2, way.threads))


def loader(folder: Path, bad: BadRecords, *, rank=0, size=1, batch=16, training=True) -> Loader:
    dataset = open_dataset(folder)
    return Loader(
        dataset.records("train"),
        data.preprocessing(dataset, None),
        PipelineOptions(training, threads=2),
        batch_per_rank=batch,
        seed=1,
        strategy=TorchStrategy(Ranks(rank=rank, size=size)),
        bad=bad,
    )


def tolerant(limit: int = 3) -> BadRecords:
    bad = BadRecords(limit)
    bad.told = []
    bad.tell = bad.told.append
    return bad


def numbers(images: torch.Tensor) -> list[int]:
    return (images.amax(dim=(1, 2, 3)) * 0.25 + 0.5).mul(127.5).round().int().tolist()


def same(one, two) -> bool:
    pairs = list(zip(one, two, strict=True))
    return all(torch.equal(a, b) and torch.equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.slow
def test_bad_records_are_named_once_and_their_neighbours_stand_in(
    bad_folder: Path, numbered: Path
) -> None:
    bad = tolerant()
    batches = loader(bad_folder, bad)
    for epoch in (0, 1):
        seen = [n for images, _ in batches.epoch(epoch) for n in numbers(images)]
        plan = batches.plan.order(epoch).tolist()
        assert seen == [TAKEN_BY.get(n, n) for n in plan]
    assert bad.told == bad.found
    places = sorted(text.split("train-")[1].partition(" (")[0] for text in bad.found)
    assert places == ["00000.rec: record 17", "00001.rec: record 13", "00001.rec: record 14"]
    assert all("cannot be decoded as an image (8 bytes, beg" in text for text in bad.found)


def test_evaluation_stays_in_order(bad_folder: Path) -> None:
    batches = loader(bad_folder, tolerant(), training=False)
    seen = [n for images, _ in batches.epoch(0) for n in numbers(images)]
    assert seen == [TAKEN_BY.get(n, n) for n in range(100)]


@pytest.mark.slow
def test_ranks_and_resumed_runs_see_the_same_batches(bad_folder: Path) -> None:
    alone = list(loader(bad_folder, tolerant()).epoch(1))
    parts = [
        list(loader(bad_folder, tolerant(), rank=r, size=4, batch=4).epoch(1)) for r in range(4)
    ]
    together = [
        tuple(torch.cat([part[step][i] for part in parts]) for i in (0, 1)) for step in range(7)
    ]
    assert same(alone, together)
    for first in (1, 4):
        assert same(alone[first:], list(loader(bad_folder, tolerant()).epoch(1, first)))


def test_all_other_samples_are_as_without_bad_records(bad_folder: Path, numbered: Path) -> None:
    whole = loader(numbered, BadRecords())
    order = whole.plan.order(0).tolist()
    rows = torch.tensor([n not in BAD for n in order])
    good, found = (
        torch.cat([images for images, _ in batches.epoch(0)])[rows]
        for batches in (whole, loader(bad_folder, tolerant()))
    )
    assert torch.equal(good, found)


def test_one_too_many_lists_all(bad_folder: Path) -> None:
    bad = tolerant(2)
    with refused(DataError, "image-undecodable", "3 records", "--max-bad-records 2:") as caught:
        list(loader(bad_folder, bad).epoch(0))
    text = str(caught.value)
    assert text.count("\n  ") == text.count(".rec: record ") == 3
    assert len(bad.told) == 2


def test_without_the_option_the_first_is_the_error(bad_folder: Path) -> None:
    with refused(DataError, "image-undecodable", ".rec: record ", "; --max-bad-records N"):
        list(loader(bad_folder, BadRecords()).epoch(0))


def test_a_truncated_photograph_counts_as_bad(photographs: Path, tmp_path: Path) -> None:
    jpeg = (Path(__file__).parent / "data" / "gradient-160x120.jpg").read_bytes()
    folder = damaged(photographs, tmp_path / "cut", (3,), jpeg[:200])
    bad = tolerant(1)
    batches = list(loader(folder, bad, batch=4).epoch(0))
    assert [len(labels) for _, labels in batches] == [4, 4]
    assert len(bad.found) == 1


@pytest.mark.slow
def test_a_defect_of_the_pipeline_is_no_bad_record(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(draws: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("resnet_imagenet.crop_windows.mirrored", broken)
    bad = tolerant()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(loader(numbered, bad).epoch(0))
    assert bad.found == []


@pytest.mark.slow
def test_the_training_names_them_in_metrics_and_on_the_console(
    bad_folder: Path, tmp_path: Path, train, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert (
        train(bad_folder, out, "--epochs", "1", "--eval-every", "0", "--max-bad-records", "3") == 0
    )
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    values = [line["value"] for line in lines if line["key"] == "bad_record"]
    assert len(values) == 3
    said = capsys.readouterr().out
    assert all(f"warning: {value}; " in said for value in values)
    assert train(bad_folder, tmp_path / "strict", "--epochs", "1", "--max-bad-records", "2") == 3


@pytest.mark.slow
def test_a_run_that_goes_on_knows_those_it_met(bad_folder: Path, tmp_path: Path, train) -> None:
    out, more = tmp_path / "run", ["--eval-every", "0", "--max-bad-records", "3"]
    assert train(bad_folder, out, *more, "--max-steps", "7") == 0
    (state,) = (checkpoint.load(path) for path in (out / "checkpoints").glob("*7.npz"))
    assert len(state["bad_records"]) == 3
    (out / "result.json").unlink()
    assert train(bad_folder, out, *more, "--resume", "auto") == 0  # none counts twice
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len([line for line in lines if line["key"] == "bad_record"]) == 3


@pytest.mark.slow
@pytest.mark.long
def test_the_limit_holds_for_all_ranks_together(bad_folder: Path, tmp_path: Path) -> None:
    words = [
        *["train", "--data", str(bad_folder), "--out", str(tmp_path / "run"), "--strategy", "ddp"],
        *["--model", "resnet20", "--epochs", "2", "--batch-size-per-rank", "10"],
        *["--warmup-epochs", "0", "--eval-every", "0", "--max-bad-records", "2", "--seed", "1"],
    ]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "-m", "resnet_imagenet", *words],
        capture_output=True, text=True, timeout=240, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode != 0
    assert_reported(done.stderr, "image-undecodable", "3 records", "--max-bad-records 2")


def test_a_bad_picture_of_a_plain_folder_is_named_and_replaced(tmp_path: Path) -> None:
    """The picture stores 12 bits in a 16-bit file; DALI itself would read it almost black."""
    place = tmp_path / "train/cat"
    place.mkdir(parents=True)
    for at in range(4):
        content = BAD_PICTURES["png of 12 bits in 16"] if at == 2 else GOOD_PICTURES["png"]
        (place / f"{at}.png").write_bytes(content.content)
    (tmp_path / "val").mkdir()
    bad = tolerant(1)
    images = [batch for batch, _ in loader(tmp_path, bad, batch=4).epoch(0)]
    assert [len(batch) for batch in images] == [4]
    assert len(bad.found) == 1
    assert "2.png is a picture of 16 bits whose values end at" in bad.found[0]
