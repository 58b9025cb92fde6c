"""Videos as sequences: every frame once and in order; an error names file and frame."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path

import av
import pytest
import yaml
from PIL import Image

from refusals import refused
from shards import formats
from shards.description import Dataset
from shards.kinds import Kind
from trimaran.data import contracts, dataset_json
from trimaran.data.packing import image_folders, packer, plan, videos
from trimaran.data.packing.pictures import BadImage
from trimaran.data.packing.plan import Options
from trimaran.data.packing.video_reader import Videos
from trimaran.data.packing.videos import Clip
from trimaran.reporting import Silent

COUNT, SIZE = 12, (64, 48)
COMMITTED = Path(__file__).parents[3] / "recipes/data/traffic-camera.yaml"


def picture(number: int, size: tuple[int, int] = SIZE) -> Image.Image:
    """Return a grey frame whose brightness encodes its number."""
    return Image.new("RGB", size, (20 * number,) * 3)


def film(path: Path, codec: str = "mpeg4", count: int = COUNT) -> Path:
    """Write a video of `count` numbered frames."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height = SIZE
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        container.start_encoding()  # there is a header even if no frame follows
        for number in range(count):
            container.mux(stream.encode(av.VideoFrame.from_image(picture(number))))
        container.mux(stream.encode())
    return path


def numbers(path: Path, clip: Clip = Clip()) -> list[int]:  # noqa: B008 - a tuple
    """Return the numbers of the decoded frames, from their brightness."""
    return [round(image.getpixel((30, 20))[0] / 20) for image in videos.frames(path, clip)]


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.mp4", "mpeg4"), ("a.mov", "libx264"), ("a.avi", "mjpeg"), ("a.mkv", "libx264"),
     ("a.webm", "libvpx-vp9"), ("a.mpg", "mpeg2video")],
)
def test_every_frame_comes_once_and_in_order(name: str, codec: str, tmp_path: Path) -> None:
    path = film(tmp_path / name, codec)
    assert numbers(path) == list(range(COUNT))
    assert numbers(path, Clip(3, 7)) == [3, 4, 5, 6]
    (image, *_) = videos.frames(path, Clip(0, 1, (2, 4, 34, 44)))
    assert (image.mode, image.size) == ("RGB", (32, 40))


def pack(root: Path, out: Path, **options: object) -> Dataset:
    found = image_folders.listing_of(
        root, out, labels=None, in_sequences=True, untrained=False, workers=1, reporter=Silent()
    )
    return packer.pack(
        found, out, Options("films", "webdataset", **options), workers=1, skip_bad=False,  # type: ignore[arg-type]
        reporter=Silent(),
    )


def test_videos_and_folders_of_frames_are_packed_side_by_side(tmp_path: Path) -> None:
    root, out = tmp_path / "films", tmp_path / "out"
    film(root / "train/street.mp4")
    film(root / "val/yard.webm", "libvpx-vp9")
    (root / "train/frames").mkdir()
    for number in range(3):
        picture(number).save(root / f"train/frames/{number}.jpg")
    dataset = pack(root, out, resize=(16, 16))
    assert dataset.kind == Kind("none", "sequence")
    assert (dataset.image.height, dataset.image.width) == (16, 16)
    assert dataset.origin is not None
    assert dataset.origin.decoder == videos.decoder()
    assert {name: split.samples for name, split in dataset.splits.items()} == {"train": 2, "val": 1}
    assert dataset_json.verify_folder(None, out, records=True, reporter=Silent(), workers=1) == []
    lengths = []
    for shard in dataset.splits["train"].shards:
        index = out / str(shard.index)
        for record in formats.load("webdataset").scan(out / shard.file, index, dataset.kind):
            assert not isinstance(record, str)
            lengths.append(len(record.frames))
            assert {Image.open(io.BytesIO(one)).size for one in record.frames} == {(16, 16)}
    assert sorted(lengths) == [3, COUNT]
    pack(root, tmp_path / "again", resize=(16, 16))
    for path in out.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def cut(path: Path, kept: float) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    return path


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.mp4", "mpeg4"), ("a.mkv", "mpeg4"), ("a.webm", "libvpx-vp9"), ("a.avi", "mjpeg")],
)
def test_what_is_cut_off_is_a_fault_and_not_the_end(
    name: str, codec: str, tmp_path: Path
) -> None:
    with pytest.raises(BadImage, match=r"frame \d+"):
        numbers(cut(film(tmp_path / name, codec), 0.8))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(("ending", "codec"), [("mkv", "mpeg4"), ("webm", "libvpx-vp9")])
def test_every_file_that_is_cut_off_is_a_fault_even_if_they_are_cut_alike(
    ending: str, codec: str, count: int, tmp_path: Path
) -> None:
    """Every truncated file is a fault, even if several files are truncated at the same byte.

    FFmpeg may not repeat its message for such files.
    """
    for number in range(count):
        path = cut(film(tmp_path / f"{number}.{ending}", codec), 0.8)
        with pytest.raises(BadImage, match=r"is damaged after frame \d+: File ended prematurely"):
            numbers(path)
    assert numbers(film(tmp_path / f"whole.{ending}", codec)) == list(range(COUNT))


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("text.mp4", b"hello" * 100, "frame 0 cannot be decoded: Invalid data"),
        ("none.mp4", b"", "frame 0 cannot be decoded: Invalid data"),
        ("list.mp4", b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/hosts\n",
         "frame 0 cannot be decoded"),
    ],
)
def test_what_is_no_video_is_named(name: str, content: bytes, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "films/train" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with refused("image-undecodable", f"train/{name} {fault}"):
        pack(tmp_path / "films", tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "codec", "fault"),
    [
        ("none.avi", "mjpeg", "has 0 frames, 1 are required"),
        ("none.mkv", "mpeg4", "frame 0 cannot be decoded: End of file"),
        ("none.mp4", "libx264", "contains no video"),  # it lists no track that has no frames
    ],
)
def test_a_video_without_frames_is_named(
    name: str, codec: str, fault: str, tmp_path: Path
) -> None:
    film(tmp_path / "films/train" / name, codec, 0)
    with refused("image-undecodable", f"train/{name} {fault}"):
        pack(tmp_path / "films", tmp_path / "out")


def test_an_unknown_codec_and_a_clip_beyond_the_end_are_told(tmp_path: Path) -> None:
    path = film(tmp_path / "a.avi")
    with pytest.raises(BadImage, match="has 12 frames, 20 are required"):
        numbers(path, Clip(2, 20))
    with pytest.raises(BadImage, match="64x48 pixels"):
        numbers(path, Clip(0, 1, (0, 0, 65, 48)))
    path.write_bytes(path.read_bytes().replace(b"FMP4", b"ZZZZ"))
    with pytest.raises(BadImage, match="unknown codec"):
        numbers(path)


def test_another_resolution_is_named_by_its_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.avi"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=10)
        stream.width, stream.height = SIZE
        stream.pix_fmt = "yuvj420p"
        for number in range(4):
            buffer = io.BytesIO()
            picture(number, SIZE if number < 2 else (32, 32)).save(buffer, "JPEG")
            packet = av.Packet(buffer.getvalue())
            packet.stream, packet.pts, packet.dts = stream, number, number
            packet.time_base = Fraction(1, 10)
            container.mux(packet)
    with pytest.raises(BadImage, match="frame 2 has 32x32 pixels, the first frame 64x48"):
        numbers(path)


@pytest.mark.parametrize("text", ["0", "12x", "x12", "-3", "128x128x3", "a"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    assert plan.resize_of("480") == 480
    assert plan.resize_of("128x96") == (128, 96)
    with refused("argument-invalid", "--resize", repr(text)):
        plan.resize_of(text)


def traffic() -> Videos:
    contract = contracts.load("traffic-camera")
    assert isinstance(contract, Videos)
    return contract


@pytest.mark.parametrize("window", [1, 12, 40])
def test_no_window_over_a_sequence_crosses_the_split(window: int) -> None:
    found = traffic().listing(Path("raw"), Path("unpacked"), Silent())
    seen: dict[tuple[str, int], str] = {}
    for split, samples in found.splits.items():
        for sample in samples:
            assert sample.clip is not None
            assert sample.clip.stop is not None
            for start in range(sample.clip.start, sample.clip.stop - window + 1):
                for frame in range(start, start + window):
                    assert seen.setdefault((sample.file, frame), split) == split
    assert len(seen) == 350 + 795


@pytest.mark.parametrize(
    ("frames", "fault"),
    [([279, 350], "frame 279 of traffic_sequence.mp4 is also in train.junction"),
     ([300, 300], "frames 300 to 300 are")],
)
def test_a_faulty_split_by_time_is_named(frames: list[int], fault: str, checkout: Path) -> None:
    path = checkout / "recipes/data/traffic-camera.yaml"
    document = yaml.safe_load(COMMITTED.read_text())
    document["splits"]["val"]["sequences"]["junction"]["frames"] = frames
    path.write_text(yaml.safe_dump(document))
    with refused("file-invalid", fault):
        contracts.load("traffic-camera")
