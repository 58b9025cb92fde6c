"""Decode videos with PyAV (FFmpeg) into frames that are the same on every machine.

FFmpeg conceals errors in a file, so that a player can continue. A missing or interpolated frame
would be wrong training data. Therefore, decoders stop at errors (`err_detect`). It is also an error
if FFmpeg's demuxer logs a message, or if there are fewer frames than the header lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from shards import display
from trimaran.data.packing.pictures import BadImage

if TYPE_CHECKING:
    import av.container

ENDINGS = frozenset({".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm"})
_OPTIONS = {"format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,m4v"}
"""Options that limit FFmpeg to video formats, because a playlist could refer to other files."""

_EXACT = "bicubic+accurate_rnd+bitexact+full_chroma_int+full_chroma_inp"
"""Flags for the conversion from YUV to RGB; `bitexact` gives the same result on any processor."""


class Clip(NamedTuple):
    """The part of a video that is a sequence.

    Attributes:
        start: the first frame, counted from 0.
        stop: the frame after the last frame; None if the part extends to the end of the video.
        box: left, top, right and bottom, in pixels, of the area to which each frame is cropped;
            None for no cropping.
    """

    start: int = 0
    stop: int | None = None
    box: tuple[int, int, int, int] | None = None


def decoder() -> str:
    """Return the name and version of the decoder; the pixels may depend on the version."""
    import av

    return f"libavcodec {av.library_versions['libavcodec'][0]}"


def frames(path: Path, clip: Clip) -> Iterator[Image.Image]:
    """Yield the frames of `clip` of the video at `path` as RGB, upright and cropped.

    Raises:
        BadImage: the file cannot be decoded, is truncated, has too few frames, frames of different
            sizes, or a display matrix that is not a rotation or reflection; the message contains
            the number of the frame.
    """
    import av
    import av.logging

    count = 0
    size: tuple[int, int] | None = None
    # These settings are global and stay: resetting them would affect other open videos.
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)  # a repeated message may be about another file
    with av.logging.Capture() as log:
        try:
            with av.open(f"file:{path}", options=_OPTIONS) as container:
                for frame in _decoded(container, clip.stop):
                    image = _upright(frame, count)
                    size = size or image.size
                    if image.size != size:
                        raise BadImage(f"frame {count} has {image.width}x{image.height} pixels,"
                                       f" the first frame {size[0]}x{size[1]}")
                    if count >= clip.start:
                        yield _cut(image, clip, count)
                    count += 1
                _refuse_faults(log, container.format.name, count)
        except (av.error.FFmpegError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadImage(f"frame {count} cannot be decoded: {reason}") from error
    if count < (clip.stop or clip.start + 1):
        raise BadImage(f"has {count} frames, {clip.stop or clip.start + 1} are required")


def _decoded(container: av.container.InputContainer, stop: int | None) -> Iterator[Any]:
    """Yield the decoded frames before frame `stop`, as RGB with 8 bits per channel."""
    if not container.streams.video:
        raise BadImage("contains no video")
    stream = container.streams.video[0]
    context = stream.codec_context
    if context is None:
        raise BadImage("has an unknown codec")
    context.options = {"err_detect": "explode"}
    context.thread_count = 1  # each core already has a process
    count = packets = 0
    graph: av.filter.Graph | None = None
    shape: tuple[int, int, str] | None = None
    for packet in container.demux(stream):
        packets += packet.size > 0
        for frame in packet.decode():
            if frame.is_corrupt:
                raise BadImage(f"frame {count} is damaged")
            if shape != (frame.width, frame.height, frame.format.name):
                shape, graph = (frame.width, frame.height, frame.format.name), _to_rgb(frame)
            assert graph is not None  # noqa: S101 - the first frame creates it
            graph.push(frame)
            rgb = graph.pull()
            yield rgb
            count += 1
            if count == stop:
                return
    if packets < stream.frames:
        raise BadImage(f"ends at frame {packets}, its header lists {stream.frames}")


def _to_rgb(frame: Any) -> Any:
    """Return the filter graph that converts frames of this size and format to RGB."""
    import av

    graph = av.filter.Graph()
    graph.link_nodes(
        graph.add_buffer(width=frame.width, height=frame.height, format=frame.format,
                         time_base=frame.time_base),
        graph.add("scale", f"flags={_EXACT}"), graph.add("format", "rgb24"),
        graph.add("buffersink"),
    ).configure()
    return graph


def _upright(frame: Any, number: int) -> Image.Image:
    try:
        return display.upright(frame.to_image(), frame)
    except ValueError as error:
        raise BadImage(f"frame {number} {error}") from error


def _cut(image: Image.Image, clip: Clip, number: int) -> Image.Image:
    if clip.box is None:
        return image
    if clip.box[2] > image.width or clip.box[3] > image.height:
        raise BadImage(f"frame {number} has {image.width}x{image.height} pixels, which do not"
                       f" contain the box {clip.box}")
    return image.crop(clip.box)


def _refuse_faults(log: list[tuple[int, str, str]], container: str, count: int) -> None:
    """Raise BadImage if FFmpeg's demuxer logged a message, for example about a truncated file."""
    messages = [text.strip() for _, name, text in log if name == container]
    if messages:
        raise BadImage(f"is damaged after frame {count - 1}: {messages[0]}")
