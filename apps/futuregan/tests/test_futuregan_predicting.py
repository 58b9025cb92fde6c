"""Tests of predictions, scores and pictures of a generator that is a formula, against NumPy."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import plain_future
import plain_scores
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from written_sequences import coloured, pack

from futuregan import evaluate, pictures, predict, restore, scores, video_input
from futuregan.__main__ import main
from futuregan.pictures import GAP, HEAD, LABEL, PredictedClip
from futuregan.settings import EvaluateSettings

PAST, FUTURE = plain_future.PAST, plain_future.FUTURE
CPU = torch.device("cpu")
HELD = [coloured(13, 16, 16, 3), coloured(11, 16, 16, 4)]
"""The validation sequences of the fixture `colours`, (frames, H, W, C) each."""


def seen(frames: NDArray[Any]) -> NDArray[np.float64]:
    """Return clips (n, T, H, W, C) of 0..255 as (n, C, T, H, W) in -1..1."""
    return np.moveaxis(frames.astype(float), 4, 1) * 2 / 255 - 1


def windows(frames: int, every: int, stride: int | None = None) -> NDArray[np.float64]:
    """Return all validation clips, (n, C, T, H, W) in -1..1, computed in a plain loop."""
    span, found = (frames - 1) * every + 1, []
    for sequence in HELD:
        at = 0
        while at + span <= len(sequence):
            found.append(sequence[at : at + span : every])
            at += stride or frames * every
    return seen(np.stack(found))


@pytest.mark.parametrize("frames", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("fade", [0.25, 1.0])
def test_a_long_prediction_goes_on_from_the_frames_made_last(frames: int, fade: float) -> None:
    past = np.random.default_rng(1).uniform(-1, 1, (2, 3, PAST, 4, 4))
    found = plain_future.restored(fade=fade).predict(torch.from_numpy(past).float(), frames)
    expected = plain_future.predicted(past, frames, fade)
    assert found.shape == (2, 3, frames, 4, 4)
    assert found.numpy() == pytest.approx(expected, abs=1e-5)


@pytest.fixture
def formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the generator of each checkpoint by the formula in `plain_future`.

    The generator counts as trained on clips of every second frame of a sequence (`every=2`).
    """
    model = plain_future.restored(every=2)
    monkeypatch.setattr(restore, "open_generator", lambda *_: model)


@pytest.mark.usefixtures("formula")
@pytest.mark.parametrize(("words", "frames", "every", "stride"), [
    ("", 2, 2, None), ("--every 1", 2, 1, None), ("--long 3", 3, 2, None),
    ("--stride 1 --batch-size 3", 2, 2, 1), ("--batch-size 1 --every 1 --split val", 2, 1, None),
])
def test_the_command_has_the_scores_of_numpy(
    words: str, frames: int, every: int, stride: int | None, colours: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = ["evaluate", "--data", str(colours), "--out", ".", "--device", "cpu", *words.split()]
    past, truth = np.split(windows(PAST + frames, every, stride), [PAST], 2)
    expected = plain_scores.table(plain_future.predicted(past, frames), past, truth)
    assert main([*data, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["split"], found["clips"], found["step"]) == ("val", len(past), 7)
    for method, rows in expected.items():
        for measure, values in rows.items():
            one, near = found["scores"][method][measure], 5e-3 if measure == "psnr" else 2e-4
            assert one["frames"] == pytest.approx(values, abs=near), (method, measure)
            assert one["mean"] == pytest.approx(np.mean(values), abs=near)


@pytest.mark.usefixtures("formula")
def test_other_splits_are_evaluated_where_they_are_asked_for(
    colours: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", "--data", str(colours), "--out", ".", "--split", "train", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["split"], found["clips"]) == ("train", 2)  # 17 and 14 frames, 10 of which each


def test_batches_of_clips_have_them_as_they_lie_in_the_data() -> None:
    class Source:
        def __len__(self) -> int:
            return len(clips)

        def read(self, number: int) -> NDArray[np.uint8]:
            return clips[number]

    clips = np.random.default_rng(2).integers(0, 256, (5, 4, 8, 8, 3), np.uint8)
    found = list(evaluate.clip_batches(Source(), 2, CPU))
    assert [len(one) for one in found] == [2, 2, 1]
    assert torch.cat(found).numpy() == pytest.approx(seen(clips), abs=1e-6)


def some_scores(frames: int) -> scores.Scores:
    """Return scores of `frames` future frames, in which all values differ."""
    number = iter(range(1, 1000))
    return scores.Scores(4, 16, {
        method: {measure: [next(number) / 100 for _ in range(frames)]
                 for measure in ("mse", "psnr", "ssim", "ms_ssim", "sharpness")}
        for method in scores.METHODS
    })


@pytest.mark.parametrize("frames", [3, 30])
def test_the_table_has_each_mean_and_the_frames_that_it_names(frames: int) -> None:
    found, units = some_scores(frames), {"MSE,": 1000}
    method, factor = {"prediction": "prediction", "last": "copy_last", "linear": "linear"}, 1.0
    measures = iter(("mse", "psnr", "ssim", "ms_ssim", "sharpness"))
    for line in filter(None, evaluate.table(found)):
        words = line.split()
        if words[0] not in method:
            measure, factor = next(measures), units.get(words[0], 1)
            shown = [int(word) - 1 for word in words[words.index("mean") + 1 :]]
            assert (shown[0], shown[-1], len(shown)) == (0, frames - 1, min(frames, 12))
            continue
        values = found.frames[method[words[0]]][measure]
        told = [float(word) for word in words if word.replace(".", "").isdigit()]
        right = [np.mean(values), *(values[at] for at in shown)]
        assert told == pytest.approx([factor * value for value in right], abs=6e-3)
    assert next(measures, None) is None


def test_the_figure_has_each_measure_over_the_frames() -> None:
    found = some_scores(5)
    figure = evaluate.draw(found, plain_future.restored())
    for axes, measure in zip(figure.axes, ("psnr", "ssim", "sharpness"), strict=True):
        lines = [line for line in axes.lines if len(line.get_xdata()) == 5]
        for line, name in zip(lines, scores.METHODS, strict=True):
            assert list(line.get_xdata()) == [1, 2, 3, 4, 5]
            assert list(line.get_ydata()) == found.frames[name][measure]


def test_settings_of_the_command_are_those_of_clips_that_do_not_overlap() -> None:
    settings = EvaluateSettings()
    assert (settings.stride, settings.every, settings.long, settings.split) == (None,) * 4


def test_predicted_levels_are_rounded_and_stand_where_they_were_made() -> None:
    clip = coloured(PAST + 2, 16, 16, 5)
    found = predict.predict_clip(plain_future.restored(), clip, 5, CPU)
    made = plain_future.predicted(seen(clip[None, :PAST]), 5)[0]
    levels = np.moveaxis((made + 1) / 2 * 255, 0, 3)
    assert found.prediction.dtype == np.uint8
    sure = np.abs(levels % 1 - 0.5) > 0.01  # there rounding says nothing
    assert sure.mean() > 0.9
    assert np.array_equal(found.prediction[sure], np.rint(levels)[sure])
    assert (np.rint(levels) != np.floor(levels)).mean() > 0.3
    assert np.array_equal(found.past, clip[:PAST])
    assert np.array_equal(found.truth, clip[PAST:])


@pytest.mark.usefixtures("formula")
@pytest.mark.parametrize(("words", "frames", "every", "begins"), [
    ("--long 4 --clip 1 0", 4, 2, [(1, 0), (0, 0)]), ("", 2, 2, [(0, 0)]),
    ("--long 4 --every 1 --clip 1 2", 4, 1, [(0, 5), (1, 0)]),
    ("--split train --every 1 --clip 4", 2, 1, [(2, 5)]),
])
def test_the_command_predicts_what_follows_the_clips_asked_for(
    words: str, frames: int, every: int, begins: list[tuple[int, int]], colours: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    sequences = [*HELD, coloured(14, 16, 16, 2)]  # the second one to learn from, after 17 frames
    drawn: list[Any] = []
    monkeypatch.setattr(predict, "write", lambda _, clips, *more: drawn.extend([clips, *more]))
    data = ["predict", "--data", str(colours), "--out", ".", "--device", "cpu"]
    assert main([*data, "--to", str(tmp_path / "a.png"), *words.split()]) == 0
    clips, scale, fps = drawn
    assert (scale, fps) == (8, 5)
    for clip, (sequence, first) in zip(clips, begins, strict=True):
        real = sequences[sequence][first::every]
        assert np.array_equal(clip.past, real[:PAST])
        assert np.array_equal(clip.truth, real[PAST : PAST + frames])
        made = plain_future.predicted(seen(real[None, :PAST]), frames)[0]
        levels = np.rint((np.moveaxis(made, 0, 3) + 1) / 2 * 255)
        assert np.abs(clip.prediction - levels).max() <= 1


@pytest.mark.parametrize(
    ("number", "every", "frames"), [(0, 1, 2), (3, 1, 4), (2, 2, 3), (5, 3, 2)]
)
def test_a_clip_of_a_folder_begins_with_the_frame_asked_for(
    number: int, every: int, frames: int, tmp_path: Path
) -> None:
    images = coloured(12, 16, 16, 6)
    for at, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{at}.png")  # 10 comes after 9, not after 1
    model = plain_future.restored()
    found = video_input.open_video_input(tmp_path, None, model, frames, every).read(number)
    assert np.array_equal(found, images[number::every][: PAST + frames])


def shown(known: int, channels: int = 3) -> PredictedClip:
    """Return a clip with two input frames, three predicted frames and `known` true frames."""
    frames = np.random.default_rng(9).integers(0, 256, (8, 4, 4, channels), np.uint8)
    return PredictedClip(frames[:2], frames[2:5], frames[5 : 5 + known])


def enlarged(frame: NDArray[Any], scale: int) -> NDArray[Any]:
    """Return a frame in three channels, in which each pixel is a square of side `scale`."""
    colours = np.broadcast_to(frame, (*frame.shape[:2], 3))
    return colours.repeat(scale, 0).repeat(scale, 1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("known", [0, 2, 3])
def test_a_sheet_has_input_truth_prediction_and_error_below_each_other(
    known: int, channels: int
) -> None:
    clips = [shown(known, channels), shown(known, channels)]
    sheet = np.asarray(pictures.sheet(clips, 3))
    side, row = 4 * 3 + GAP, 0
    for clip in clips:
        made, truth = clip.prediction.astype(int), clip.truth.astype(int)
        error = np.minimum(255, 4 * np.abs(made[:known] - truth))
        for frames in filter(len, (clip.past, truth, made, error)):
            for column, frame in enumerate(frames):
                top, left = HEAD + row * side, LABEL + column * side
                found = sheet[top : top + 12, left : left + 12]
                assert np.array_equal(found, enlarged(frame, 3)), (row, column)
            row += 1
    assert sheet.shape == (HEAD + row * side, LABEL + 3 * side, 3)


@pytest.mark.parametrize("known", [0, 2, 3])
def test_what_moves_has_the_truth_beside_the_prediction(known: int) -> None:
    clip = shown(known)
    moving = [np.asarray(one) for one in pictures.animation_frames([clip, clip], 3)]
    side = 4 * 3 + 2 * GAP
    real, made = [*clip.past, *clip.truth], [*clip.past, *clip.prediction]
    assert len(moving) == 5
    for at, picture in enumerate(moving):
        for row in range(2):
            top, left = HEAD + row * side + GAP, side + GAP
            if at < len(real):
                found = picture[top : top + 12, GAP : GAP + 12]
                assert np.array_equal(found, enlarged(real[at], 3))
            found = picture[top : top + 12, left : left + 12]
            assert np.array_equal(found, enlarged(made[at], 3))
            edge = tuple(picture[top - GAP + 1, side + 1].tolist())
            assert edge == (pictures.MADE if at >= 2 else pictures.PAPER)


def test_what_moves_does_so_at_the_rate_asked_for(tmp_path: Path) -> None:
    moving = pictures.animation_frames([shown(3)], 3)
    with (tmp_path / "a.gif").open("wb") as file:
        pictures.write_gif(moving, file, 8)
    with Image.open(tmp_path / "a.gif") as moves:
        assert (moves.n_frames, moves.info["duration"], moves.info["loop"]) == (5, 120, 0)
        for at, right in enumerate(moving):
            moves.seek(at)
            apart = np.asarray(moves.convert("RGB")).astype(int) - np.asarray(right)
            assert np.abs(apart).mean() < 4


def test_a_video_is_read_in_the_order_in_which_it_was_written(tmp_path: Path) -> None:
    reds = [10, 200, 60, 240, 120]
    with (tmp_path / "a.mp4").open("wb") as file:
        pictures.write_mp4([Image.new("RGB", (32, 16), (red, 30, 90)) for red in reds], file, 5)
    frames = video_input.video_frames(tmp_path / "a.mp4")
    found = [np.asarray(image).mean((0, 1)) for image in frames]
    assert np.array(found) == pytest.approx(np.array([(red, 30, 90) for red in reds]), abs=8)


@pytest.mark.parametrize("parts", ["average generator", "generator"])
def test_a_checkpoint_is_opened_as_it_says(
    parts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are the moving average if it exists; all sizes come from the checkpoint."""
    shape = {"size": 16, "past": 3, "future": 2, "channels": 3, "width": 2, "residual": False,
             "base": 4, "skip": 0}
    about = {"shape": shape, "size": 8, "fade": 0.375, "every": 5}
    weights = {}
    for number, name in enumerate(("average", "generator")):
        torch.manual_seed(number)
        network = restore.Generator(restore.Shape(**shape))
        weights[name] = {key: one.numpy() for key, one in network.state_dict().items()}
    state = {"about": about, "step": 70, "parts": {name: weights[name] for name in parts.split()}}
    monkeypatch.setattr(restore, "outputs", SimpleNamespace(load_trained=lambda *_: state))
    found = restore.open_generator(tmp_path, None, CPU)
    assert (found.fade, found.past, found.future, found.size, found.channels, found.every,
            found.step) == (0.375, 3, 2, 8, 3, 5, 70)
    right = weights[parts.split()[0]]
    for key, one in found.generator.state_dict().items():
        assert np.array_equal(one.numpy(), right[key])
    past = torch.rand(1, 3, 3, 8, 8)
    expected = found.generator(past, 0.375).clamp(-1, 1)
    assert torch.equal(found.predict(past, 2), expected)


def test_frames_that_are_not_square_are_cut_to_their_centre(tmp_path: Path) -> None:
    """The expected frame is the central square, scaled with Pillow's Lanczos filter."""
    wide = coloured(6, 16, 24, 7)
    folder = pack(tmp_path / "wide", {"train": [wide], "val": [wide]})
    model = plain_future.restored(size=8)
    found = video_input.open_video_input(folder, None, model, 3, 1).read(0)
    for frame, right in zip(found, wide, strict=True):
        middle = Image.fromarray(right[:, 4:20]).resize((8, 8), Image.Resampling.LANCZOS)
        apart = np.abs(frame.astype(int) - np.asarray(middle))
        assert apart[:, 3:5].max() <= 1
        assert apart.max() <= 20  # at the sides the filter sees pixels beyond the square
