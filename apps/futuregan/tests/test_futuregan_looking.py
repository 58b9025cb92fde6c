"""Tests of `evaluate`, `predict` and `plot` with a trained generator, and with invalid inputs."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from PIL import Image
from written_sequences import moving, pack

from futuregan import pictures, restore, video_input
from futuregan.__main__ import main
from trainkit import atomic
from trainkit.exits import DataError
from trainkit.testing.refusals import refused

TRAINING = """
    --past 3 --future 2 --size 16 --first-size 16 --base-size 8 --width 4 --precision fp32
    --device cpu --transition-epochs 0 --stabilization-epochs 1 --batch-size-per-rank 2
    --stddev-group 2 --max-steps 2 --log-every 1 --threads 1
"""


@pytest.fixture(scope="session")
def run(sequences: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of two steps on grey 16x16 frames, which predicts two frames from three."""
    out = tmp_path_factory.mktemp("looking") / "run"
    assert main(["train", "--data", str(sequences), "--out", str(out), *TRAINING.split()]) == 0
    return out


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a video file with ten frames of 32x24 pixels."""
    file = tmp_path_factory.mktemp("video") / "street.mp4"
    shown = [Image.new("RGB", (32, 24), (25 * at, 60, 60)) for at in range(10)]
    with file.open("wb") as opened:
        pictures.write_mp4(shown, opened, 5)
    return file


def film(path: Path, codec: str, count: int) -> Path:
    """Write a video of `count` frames of 32x24 pixels, and return its path."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=5)
        stream.width, stream.height = 32, 24
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        container.start_encoding()  # there is a header even if no frame follows
        for at in range(count):
            image = Image.new("RGB", (32, 24), (20 * at, 60, 60))
            container.mux(stream.encode(av.VideoFrame.from_image(image)))
        container.mux(stream.encode())
    return path


def cut(path: Path, frame: int, more: int = 10) -> Path:
    """Truncate a video file `more` bytes after the start of frame `frame`, and return its path."""
    with av.open(str(path)) as container:
        at = [packet.pos for packet in container.demux(video=0) if packet.size][frame]
    path.write_bytes(path.read_bytes()[: at + more])
    return path


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run a command; return its exit code, its standard output and its standard error."""
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_scores_are_told_frame_by_frame(
    run: Path, sequences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "scores.png"
    words = ["--data", sequences, "--out", run, "--device", "cpu", "--plot", plot]
    code, out, _ = command(capsys, "evaluate", *words)
    assert code == 0
    assert out.startswith("val: 2 clips, 2 frames from 3, 16x16 pixels, step 2\n")
    for name in ("MSE", "PSNR, dB", "SSIM", "MS-SSIM (scales: 1)", "sharpness", "linear"):
        assert name in out
    with Image.open(plot) as picture:
        assert picture.width == 3 * 480
    code, out, _ = command(capsys, "evaluate", *words[:-2], "--json", "--long", 5)
    found = json.loads(out)
    assert (found["clips"], found["ms_ssim_scales"]) == (2, 1)
    assert len(found["scores"]["prediction"]["psnr"]["frames"]) == 5
    assert found["scores"]["copy_last"]["sharpness"]["mean"] == pytest.approx(1, abs=0.05)


def test_the_command_has_the_scores_of_the_training(
    run: Path, sequences: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", sequences, "--out", run, "--device", "cpu", "--json"]
    scores = json.loads(command(capsys, "evaluate", *words)[1])["scores"]
    result = json.loads((run / "result.json").read_text())["evaluation"]
    for key, method in (("psnr", "prediction"), ("psnr_linear", "linear")):
        assert result[key] == pytest.approx(scores[method]["psnr"]["mean"], abs=1e-5)
    assert result["ssim"] == pytest.approx(scores["prediction"]["ssim"]["mean"], abs=1e-5)
    assert result["psnr_margin"] == pytest.approx(result["psnr"] - max(
        result["psnr_linear"], result["psnr_copy_last"]))


def test_clips_become_a_sheet_and_what_moves(
    run: Path, sequences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("future.png", "future.gif", "future.mp4")]
    code, out, err = command(
        capsys, "predict", "--data", sequences, "--out", run, "--device", "cpu", "--clip", 0, 1,
        "--to", *files,
    )
    assert (code, out.splitlines()) == (0, [str(file) for file in files]), err
    with Image.open(files[0]) as sheet:  # 16 pixels, 8 times as large
        assert sheet.size == (pictures.LABEL + 3 * 132, pictures.HEAD + 8 * 132)
    with Image.open(files[1]) as moves:
        assert moves.n_frames == 5
    with av.open(str(files[2])) as container:
        assert container.streams.video[0].codec_context.name == "h264"
        assert sum(1 for _ in container.decode(video=0)) == 5
    again = command(capsys, "predict", "--data", sequences, "--out", run, "--to", files[0])
    assert again[0] == 2
    assert "exists, and nothing is overwritten" in again[2]


def test_what_follows_a_video_is_predicted_beyond_its_end(
    run: Path, video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", video, "--out", run, "--device", "cpu", "--to", tmp_path / "a.gif"]
    assert command(capsys, "predict", *words, "--clip", 7, "--long", 6)[0] == 0
    with Image.open(tmp_path / "a.gif") as moves:
        assert moves.n_frames == 3 + 6
    words[-1] = tmp_path / "b.gif"
    code, _, err = command(capsys, "predict", *words, "--clip", 8)
    assert (code, "has 10 frames; to predict from frame 8 on, it needs 11" in err) == (3, True)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.gif"]


@pytest.mark.parametrize(("frames", "there"), [(2, 5), (4, 7), (9, 11)])
def test_a_clip_begins_with_the_same_frame_however_long_it_is_gone_on_with(
    frames: int, there: int, run: Path, sequences: Path
) -> None:
    """The clip begins with the same frame for any number of predicted frames.

    It has fewer true future frames if the sequence ends earlier.
    """
    model = restore.open_generator(run, None, torch.device("cpu"))
    clip = video_input.open_video_input(sequences, "train", model, frames, 1).read(4)
    assert np.array_equal(clip[..., 0], moving(16, 16, 1)[5 : 5 + there])


def test_frames_of_a_folder_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for at in (0, 2, 10):
        Image.new("L", (8, 8), 20 * at).save(tmp_path / f"frame-{at}.png")
    (tmp_path / ".hidden.png").write_text("no picture")
    shades = [image.getpixel((0, 0)) for image in video_input.folder_frames(tmp_path)]
    assert shades == [(0, 0, 0), (40, 40, 40), (200, 200, 200)]


def test_files_of_a_folder_that_are_not_read_are_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = tmp_path / "frames"
    frames.mkdir()
    for at in range(8):
        Image.new("RGB", (16, 16), (20 * at, 0, 0)).save(frames / f"{at}.png")
    words = ["predict", "--data", frames, "--out", run, "--device", "cpu", "--to"]
    assert command(capsys, *words, tmp_path / "a.png")[::2] == (0, "")
    (frames / "notes.txt").write_text("notes")
    (frames / "more").mkdir()
    (frames / ".hidden").write_text("metadata")
    for at in range(5):
        (frames / f"z{at}.mp4").write_text("film")
    code, _, err = command(capsys, *words, tmp_path / "b.png")
    assert code == 0
    assert err.endswith(": more, notes.txt, z0.mp4, z1.mp4, z2.mp4 and 2 more\n")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def spoilt(kind: str, place: Path, video: Path) -> Path:
    """Return the path of an invalid input for `predict`: a video or a folder of images."""
    if "video" in kind:
        return spoilt_video(kind, place, video)
    folder = place / "frames"
    folder.mkdir()
    sizes = [(16, 16)] * 4
    if kind == "other size":
        sizes[2] = (16, 8)
    if kind != "empty":
        for at, size in enumerate(sizes):
            Image.new("L", size, 50 * at).save(folder / f"{at}.png")
    if kind == "damaged frame":
        (folder / "2.png").write_bytes((folder / "2.png").read_bytes()[:40])
    return folder


def spoilt_video(kind: str, place: Path, video: Path) -> Path:
    """Return the path of an invalid video; for the kind "no video", the file does not exist."""
    file = place / "street.mp4"
    if kind == "cut video":
        file.write_bytes(video.read_bytes()[:-400])
    if kind == "matroska video, cut":
        return cut(film(place / "street.mkv", "mpeg4", 12), 3)
    if kind == "video without frames":
        return film(place / "street.avi", "mjpeg", 0)
    if kind == "video of an unknown codec":
        file.write_bytes(video.read_bytes().replace(b"avc1", b"zzzz"))
    if kind == "words, no video":
        file.write_text("words")
    return file


@pytest.mark.parametrize(("kind", "said"), [
    ("other size", "frame 2 has 16x8 pixels, those before 16x16"),
    ("empty", "has no images, and no dataset.json either"),
    ("damaged frame", "2.png cannot be decoded"),
    ("cut video", "street.mp4: frame"),
    ("matroska video, cut", "street.mkv is damaged after frame 2: File ended prematurely"),
    ("video without frames", "street.avi has 0 frames; to predict from frame 0 on, it needs 3"),
    ("words, no video", "street.mp4: frame 0 cannot be decoded"),
    ("video of an unknown codec", "street.mp4: this FFmpeg does not know the codec of its video"),
    ("no video", "does not exist"),
])
def test_footage_that_cannot_be_used_is_named(
    kind: str, said: str, run: Path, video: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = spoilt(kind, tmp_path, video)
    words = ["--data", data, "--out", run, "--device", "cpu", "--to", tmp_path / "a.gif"]
    code, _, err = command(capsys, "predict", *words)
    assert (code, said in err) == (3, True), err
    assert "Traceback" not in err
    assert not (tmp_path / "a.gif").exists()


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(("ending", "codec"), [("mkv", "mpeg4"), ("webm", "libvpx-vp9")])
def test_every_video_that_is_cut_off_is_a_fault_even_if_they_are_cut_alike(
    ending: str, codec: str, count: int, tmp_path: Path
) -> None:
    """Each of several truncated videos is refused; the error names the first missing frame.

    FFmpeg logs the same messages for all files that are truncated at the same byte.
    """
    for number in range(count):
        path = cut(film(tmp_path / f"{number}.{ending}", codec, 12), 8)
        with refused(DataError, "image-undecodable", path, "frame 7: "):
            list(video_input.video_frames(path))
    assert len(list(video_input.video_frames(film(tmp_path / f"whole.{ending}", codec, 12)))) == 12


def test_a_video_with_fewer_frames_than_its_header_lists_is_a_fault(tmp_path: Path) -> None:
    path = cut(film(tmp_path / "street.avi", "mjpeg", 12), 8, 0)
    with refused(DataError, "data-damaged", path, "frame 8,", " 12"):
        list(video_input.video_frames(path))


ONE, LAST = 1 << 16, 1 << 30
"""The fixed-point number 1.0 in a video's display matrix: in columns 1 and 2, and in column 3."""


def with_matrix(place: Path, *matrix: float) -> Path:
    """Write a video of three equal frames with the display matrix (a, b, c, d); return its path.

    The quarters of a frame are red and green at the top, blue and white at the bottom.
    """
    file = place / "turned.mp4"
    corners = Image.new("RGB", (2, 2))
    corners.putdata([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)])
    frame = corners.resize((64, 48), Image.Resampling.NEAREST)
    with file.open("wb") as opened:
        pictures.write_mp4([frame] * 3, opened, 5)
    a, b, c, d = (round(part * ONE) for part in matrix)
    old = struct.pack(">9i", ONE, 0, 0, 0, ONE, 0, 0, 0, LAST)
    content = file.read_bytes()
    at = content.index(old, content.index(b"tkhd"))
    new = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, LAST)
    file.write_bytes(content[:at] + new + content[at + len(new):])
    return file


@pytest.mark.parametrize(("matrix", "seen"), [
    ((1, 0, 0, 1), "rgbw"), ((-1, 0, 0, 1), "grwb"), ((-1, 0, 0, -1), "wbgr"),
    ((1, 0, 0, -1), "bwrg"), ((0, 1, 1, 0), "rbgw"), ((0, 1, -1, 0), "brwg"),
    ((0, -1, -1, 0), "wgbr"), ((0, -1, 1, 0), "gwrb"), ((0, 0, 0, 0), "rgbw"),
])
def test_a_video_is_seen_as_a_player_shows_it(
    matrix: tuple[int, ...], seen: str, tmp_path: Path
) -> None:
    """Frames are turned and mirrored as the display matrix in the video file requires.

    Some programs write a matrix of zeros, which has no effect.
    """
    for image in video_input.video_frames(with_matrix(tmp_path, *matrix)):
        assert image.size == ((48, 64) if seen[:2] in ("rb", "br", "wg", "gw") else (64, 48))
        quarters = [image.getpixel((image.width * x // 4, image.height * y // 4))
                    for y in (1, 3) for x in (1, 3)]
        lit = ["".join("rgb"[at] for at in range(3) if one[at] > 128) for one in quarters]
        assert [one.replace("rgb", "w") for one in lit] == list(seen)


@pytest.mark.parametrize("matrix", [
    (1, 0, 0.5, 1), (2, 0, 0, 2), (2, 0, 0, 1), (0.7071, 0.7071, -0.7071, 0.7071),
    (1, 0, 0, 0.001),
])
def test_a_display_matrix_that_is_no_orientation_is_named(
    matrix: tuple[float, ...], run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", with_matrix(tmp_path, *matrix), "--out", run, "--device", "cpu"]
    code, _, err = command(capsys, "predict", *words, "--to", tmp_path / "a.gif")
    assert (code, "turned.mp4: frame 0 has a display matrix that scales" in err) == (3, True), err
    assert not (tmp_path / "a.gif").exists()


def test_a_clip_that_is_not_there_and_sequences_that_are_too_short(
    run: Path, sequences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", sequences, "--out", run, "--device", "cpu"]
    code, _, err = command(capsys, "predict", *words, "--clip", 9, "--to", tmp_path / "a.png")
    assert (code, "the split 'val' has 2 clips, 0 to 1" in err) == (3, True)
    code, _, err = command(capsys, "evaluate", *words, "--long", 9)
    assert (code, "a sequence of 8 frames, and a clip has 12" in err) == (3, True)


def test_a_video_that_cannot_be_written_leaves_nothing(
    run: Path, sequences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "gone" / "a.mp4"
    code, _, err = command(capsys, "predict", "--data", sequences, "--out", run, "--to", there)
    assert (code, "is not a folder" in err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_pictures_that_are_too_large_for_their_form_are_refused(
    run: Path, sequences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", sequences, "--out", run, "--scale", 32, "--clip", *[0] * 40]
    code, _, err = command(capsys, "predict", *words, "--to", tmp_path / "a.mp4")
    assert code == 2
    assert "the picture would have 1040x20820 pixels, and .mp4 allows sides of at most 16384" in err
    assert list(tmp_path.iterdir()) == []


class Full(io.BytesIO):
    """A file on a disk that becomes full after 300 bytes."""

    def write(self, content: Any) -> int:
        if self.tell() + len(content) > 300:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "gif", "mp4"])
def test_a_disk_that_is_full_in_the_middle_of_a_picture_leaves_nothing(
    ending: str, run: Path, sequences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there, real = tmp_path / f"a.{ending}", atomic.replacing

    @contextlib.contextmanager
    def replacing(path: Path) -> Iterator[Full]:
        with real(path) as file:
            yield Full()
            file.write(b"what is half-written")

    monkeypatch.setattr(atomic, "replacing", replacing)
    code, _, err = command(capsys, "predict", "--data", sequences, "--out", run, "--to", there)
    assert (code, "No space left on device" in err) == (74, True), err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_curves_are_drawn(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "plot", "--out", run)
    assert (code, out) == (0, f"{run / 'plot.png'}\n")
    with Image.open(run / "plot.png") as picture:
        assert picture.size == (1920, 816)


def test_colours_are_predicted_too(
    tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A generator of 16x16 frames is evaluated on larger frames, and RGB clips are drawn in RGB.

    The frames of the evaluated data set have 24x24 pixels.
    """
    data = pack(tmp_path / "own", {"train": [moving(8, 24, 0)], "val": [moving(8, 24, 1)]})
    words = ["--data", data, "--out", run, "--device", "cpu", "--json"]
    assert json.loads(command(capsys, "evaluate", *words)[1])["size"] == 16
    shown = pictures.PredictedClip(*(np.zeros((2, 4, 4, 3), np.uint8) for _ in range(3)))
    assert pictures.sheet([shown], 2).mode == "RGB"
    shutil.rmtree(data)
