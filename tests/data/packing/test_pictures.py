"""Images are packed unchanged or scaled as documented; damaged images cause an error."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from photos import jpeg, png
from trimaran.data.packing import pictures

TURNED = (0x112, 3, 1, b"\0\6")
"""The EXIF tag for orientation 6: rotate by 90 degrees."""


def exif(*tags: tuple[int, int, int, bytes]) -> bytes:
    """Return EXIF data with `tags`; each tag has number, type, count and four bytes of value."""
    entries = b"".join(struct.pack(">HHI4s", *tag) for tag in tags)
    return b"Exif\0\0MM\0*" + struct.pack(">IH", 8, len(tags)) + entries + bytes(4)


def with_exif(content: bytes, metadata: bytes) -> bytes:
    out = io.BytesIO()
    image = opened(content)
    image.save(out, image.format, exif=metadata)
    return out.getvalue()


def defect(content: bytes) -> str | None:
    """Return why `content` cannot be decoded, or None."""
    try:
        pictures.checked(content)
    except pictures.BadImage as error:
        return str(error)
    return None


def opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(8, 60))
def test_the_shorter_side_becomes_the_given_one_and_the_shape_stays(
    width: int, height: int, shorter: int
) -> None:
    source = jpeg(1, (max(width, 4), max(height, 4)))
    before, after = opened(source).size, opened(pictures.scaled(source, shorter, 95)).size
    if min(before) <= shorter:
        assert after == before
    else:
        assert min(after) == shorter
        assert abs(max(after) - max(before) * shorter / min(before)) <= 0.5


def test_small_jpegs_are_passed_on_unchanged() -> None:
    for mode in ("RGB", "L"):
        assert pictures.scaled(jpeg(1, mode=mode), 16, 95) == jpeg(1, mode=mode)
    assert pictures.checked(jpeg(1)) == jpeg(1)


@pytest.mark.parametrize("content", [png(1), jpeg(1, mode="CMYK"), jpeg(1, (70, 50), "CMYK")])
def test_anything_else_becomes_an_rgb_jpeg(content: bytes) -> None:
    image = opened(pictures.scaled(content, 40, 95))
    assert (image.format, image.mode) == ("JPEG", "RGB")


def test_grey_stays_grey() -> None:
    assert opened(pictures.scaled(jpeg(1, (70, 50), "L"), 20, 95)).mode == "L"


def test_an_image_is_turned_as_its_exif_says() -> None:
    """An image is rotated as its EXIF data demand, and packed without EXIF data.

    With EXIF data, DALI would rotate the packed image again.
    """
    source = with_exif(jpeg(1, (60, 40)), exif(TURNED))
    image = opened(pictures.scaled(source, 20, 95))
    assert image.size == (20, 30)
    assert not image.getexif()


@pytest.mark.parametrize("source", [jpeg(1, (60, 40)), png(1, (60, 40))])
@pytest.mark.parametrize(
    "odd",
    [
        (0x11A, 2, 3, b"72"),  # XResolution as text
        (0x100, 7, 4, b"\0\0\0\1"),  # ImageWidth as bytes of no kind
        (0x128, 2, 2, b"2"),  # ResolutionUnit as text
    ],
)
def test_odd_tags_of_exif_do_not_keep_an_image_from_being_turned(
    source: bytes, odd: tuple[int, int, int, bytes]
) -> None:
    content = with_exif(source, exif(TURNED, odd))
    assert opened(pictures.scaled(content, 20, 95)).size == (20, 30)


@pytest.mark.parametrize("source", [jpeg(1, (60, 40)), png(1, (60, 40))])
@pytest.mark.parametrize(
    "unreadable",
    [
        b"Exif\0\0no such thing",
        exif((0x112, 2, 2, b"6")),
        exif((0x128, 3, 1, b"\0\2"), (0x11A, 2, 2, b"7")),
    ],
)
def test_unreadable_exif_counts_as_none(source: bytes, unreadable: bytes) -> None:
    content = with_exif(source, unreadable)
    assert pictures.checked(content) == content
    assert opened(pictures.scaled(content, 20, 95)).size == (30, 20)


def test_grey_of_16_bits_is_scaled_to_8() -> None:
    out = io.BytesIO()
    values = [256 * value + 77 for value in range(0, 256, 4)]
    wide = Image.frombytes("I;16", (64, 9), struct.pack("<64H", *values) * 9)
    wide.save(out, "PNG")
    image = opened(pictures.scaled(out.getvalue(), 9, 95))
    assert image.mode == "L"
    assert [image.getpixel((at, 4)) for at in (0, 20, 40, 63)] == [
        pytest.approx(value, abs=3) for value in (0, 80, 160, 252)
    ]


@pytest.mark.parametrize("read", [pictures.checked, lambda one: pictures.scaled(one, 9, 95)])
def test_fewer_bits_than_the_file_has_are_refused(read: Callable[[bytes], bytes]) -> None:
    out = io.BytesIO()
    Image.frombytes("I;16", (2, 2), struct.pack("<4H", 0, 7, 900, 4095)).save(out, "PNG")
    with pytest.raises(pictures.BadImage, match="values end at 4095"):
        read(out.getvalue())


def test_quality_is_that_of_the_encoder() -> None:
    sizes = [len(pictures.scaled(jpeg(1, (200, 160)), 100, quality)) for quality in (30, 95)]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "not a JPEG, PNG or DICOM"),
        (b"GIF89a" + bytes(40), "begins with b'GIF89a"),
        (jpeg(1, (90, 90))[:-300], "(?i)truncated"),
        (png(1)[:-30], "cannot be decoded"),
        (jpeg(1)[:20], "cannot be decoded|not a JPEG"),
    ],
)
def test_a_bad_image_says_why(content: bytes, fault: str) -> None:
    for work in (pictures.checked, lambda one: pictures.scaled(one, 8, 95)):
        with pytest.raises(pictures.BadImage, match=fault):
            work(content)
    assert defect(content) is not None
    assert defect(jpeg(1)) is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_damage_is_survived(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from([jpeg(1), png(1)])))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    defect(bytes(content))
    defect(bytes(content[: data.draw(st.integers(0, len(content)))]))


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_an_exact_size_is_that_of_the_upright_image(orientation: int) -> None:
    exif, out = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    Image.new("RGB", (40, 30)).save(out, "JPEG", exif=exif)
    assert pictures.size(pictures.scaled(out.getvalue(), (16, 8), 95)) == (16, 8)
