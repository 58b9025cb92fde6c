"""Test `predict` with files, folders and photographs, and with files that cannot be read."""

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from oddpictures import BAD, CASES, OTHERS, Case
from resnet_imagenet import predict
from resnet_imagenet.__main__ import main
from resnet_imagenet.pipelines import Preprocessing
from trainkit.console import Counter
from trainkit.testing.refusals import assert_reported


@pytest.fixture
def pictures(tmp_path: Path, tiny: Path) -> Path:
    """Return a folder with three images of the test split, and one file that is no image."""
    from trainkit.data.dataset import open_dataset

    folder = tmp_path / "pictures"
    folder.mkdir()
    records = open_dataset(tiny).records("test")
    for number in range(3):
        name = f"{number}-class-{records.label(number)}.png"
        (folder / name).write_bytes(records.encoded(number).tobytes())
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_predict_names_classes_with_probabilities(
    run: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "--data", str(pictures), "--out", str(run), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert len(answers) == 3
    for answer in answers:
        wanted = f"class {answer['file'][-5]}"
        best, other = answer["classes"]
        assert best["class"] == wanted
        assert best["probability"] > other["probability"]
        assert best["probability"] + other["probability"] == pytest.approx(1)


def test_predict_shows_a_table_for_one_file(
    run: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = sorted(pictures.iterdir())[0]
    assert main(["predict", "--data", str(file), "--out", str(run), "--top", "1"]) == 0
    name, line = capsys.readouterr().out.splitlines()
    assert name == str(file)
    assert line.split()[0].endswith("%")


@pytest.mark.parametrize("batch", ["1", "32"])
def test_predict_names_what_it_cannot_read_and_does_the_rest(
    run: Path, pictures: Path, batch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (pictures / "broken.png").write_bytes(b"no picture at all")
    (pictures / "missing.png").symlink_to("nowhere.png")
    arguments = ["--data", str(pictures), "--out", str(run), "--batch-size", batch, "--json"]
    assert main(["predict", *arguments]) == 3
    said = capsys.readouterr()
    assert_reported(said.err, "image-undecodable", "2 of 5 images")
    for name, cause in ("broken.png", "decoded"), ("missing.png", os.strerror(errno.ENOENT)):
        assert any(name in line and cause in line for line in said.err.splitlines())
    assert len(json.loads(said.out)) == 3


def test_a_folder_of_unreadable_images_gives_an_empty_array(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture at all")
    assert main(["predict", "--data", str(tmp_path), "--out", str(run), "--json"]) == 3
    assert json.loads(capsys.readouterr().out) == []


def test_predict_refuses_what_has_no_images(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "--data", str(tmp_path / "gone.png"), "--out", str(run)]) == 3
    assert_reported(capsys.readouterr().err, "data-missing", "gone.png")
    (tmp_path / "empty").mkdir()
    assert main(["predict", "--data", str(tmp_path / "empty"), "--out", str(run)]) == 3
    assert_reported(capsys.readouterr().err, "data-missing", tmp_path / "empty")


def test_predict_looks_into_folders_and_not_at_hidden_files(
    run: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, _ = sorted(pictures.glob("*.png"))
    (pictures / "a" / "b").mkdir(parents=True)
    shutil.move(first, pictures / "a" / "b" / "deep.PNG")
    second.rename(pictures / "a" / "._copied.png")
    assert main(["predict", "--data", str(pictures), "--out", str(run), "--json"]) == 0
    names = [Path(answer["file"]).name for answer in json.loads(capsys.readouterr().out)]
    assert names[0].startswith("2-class")
    assert names[1:] == ["deep.PNG"]


def test_predict_says_how_far_it_is(
    run: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Counter, "EVERY", 0.0)
    arguments = ["--data", str(pictures), "--out", str(run), "--batch-size", "2"]
    assert main(["predict", *arguments]) == 0
    lines = capsys.readouterr().err.splitlines()
    said = [line.split(",")[0] for line in lines]
    assert said == ["predicting: 2 of 3 images", "predicting: 3 of 3 images"]


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_it_quietly(run: Path, pictures: Path) -> None:
    arguments = ["predict", "--data", str(pictures), "--out", str(run)]
    code = "import sys; from resnet_imagenet.__main__ import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as stderr:
        assert stderr.read() == b""
    assert process.wait() == 0


@pytest.mark.slow
def test_photographs_get_five_classes_in_order(
    imagenet: list[Path], photograph_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = imagenet[0].parent
    arguments = ["--data", str(folder), "--out", str(photograph_run), "--batch-size", "16"]
    assert main(["predict", *arguments, "--json"]) == 0
    answers = {Path(a["file"]): a["classes"] for a in json.loads(capsys.readouterr().out)}
    assert set(imagenet) <= set(answers)
    for file in imagenet:
        found = [(c["probability"], c["class"]) for c in answers[file]]
        assert len({name for _, name in found}) == 5
        assert found == sorted(found, key=lambda pair: -pair[0])


def test_the_network_sees_the_centre_of_a_photograph(imagenet: list[Path]) -> None:
    """Pillow computes the expected values: shorter side 256, centre 224, ImageNet statistics."""
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    files = [str(file) for file in imagenet[:8]]
    to = Preprocessing(3, 224, mean, std, None)
    good, images, reasons = predict.read_images(files, to, threads=1)
    assert (good, reasons) == (files, [])
    assert images is not None
    assert images.shape == (8, 3, 224, 224)
    for file, image in zip(files, images, strict=True):
        with Image.open(file) as picture:
            factor = 256 / min(picture.size)
            size = (round(picture.width * factor), round(picture.height * factor))
            small = picture.convert("RGB").resize(size, Image.Resampling.BILINEAR)
        left, top = (size[0] - 224) // 2, (size[1] - 224) // 2
        pixels = np.asarray(small.crop((left, top, left + 224, top + 224)), np.float32) / 255
        wanted = torch.from_numpy((pixels - mean) / std).permute(2, 0, 1)
        difference = (image - wanted).abs() * torch.tensor(std)[:, None, None] * 255
        assert difference.mean() < 2  # of 255: half a pixel of shift on odd sizes, rounding


def upright(case: Case) -> bytes:
    """Return a PNG file with the expected pixels of a picture, stored upright."""
    out = io.BytesIO()
    Image.fromarray(case.pixels).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_seen_as_by_the_packer(channels: int, tmp_path: Path) -> None:
    """A network must see the pixels that the packer stores.

    DALI alone ignores some tags, crashes at two of them, and rounds 16-bit values.
    """
    cases = {name: case for name, case in {**CASES, **OTHERS}.items() if case.pixels is not None}
    to = Preprocessing(channels, 24, (0.0,) * channels, (1 / 255,) * channels, None)
    files = {"odd": [], "plain": []}
    for at, case in enumerate(cases.values()):
        for kind, content in (("odd", case.content), ("plain", upright(case))):
            files[kind].append(str(tmp_path / f"{at}-{kind}.png"))
            Path(files[kind][-1]).write_bytes(content)
    odd, plain = (predict.read_images(files[kind], to, 1) for kind in ("odd", "plain"))
    assert (odd[2], plain[2]) == ([], [])
    off = (odd[1] - plain[1]).abs().amax(dim=(1, 2, 3)).tolist()
    for (name, case), most in zip(cases.items(), off, strict=True):
        assert most <= case.near + 2, name


def test_pictures_that_no_packer_takes_are_named(tmp_path: Path) -> None:
    to = Preprocessing(1, 24, (0.0,), (1.0,), None)
    files = [str(tmp_path / f"{at}.png") for at in range(len(BAD))]
    for file, case in zip(files, BAD.values(), strict=True):
        Path(file).write_bytes(case.content)
    found, images, reasons = predict.read_images(files, to, 1)
    assert (found, images, len(reasons)) == ([], None, len(BAD))
    named = {reason.partition(" ")[0]: reason for reason in reasons}
    for file, case in zip(files, BAD.values(), strict=True):  # or DALI finds that it is cut off
        assert re.search(f"{case.says}|cannot be decoded as an image", named[file]), named[file]
