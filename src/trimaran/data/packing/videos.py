"""Videos: decoded by PyAV (FFmpeg) into frames, the same pixels on every machine.

FFmpeg hides what is wrong with a file where it can, because a player goes on. Here a frame that
is missing or made up would be data: decoders stop at errors (`err_detect`), what a container
complains of in its log is a fault, and so are fewer frames than its header lists.
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
"""No playlists and the like, which would have FFmpeg read other files."""

_EXACT = "bicubic+accurate_rnd+bitexact+full_chroma_int+full_chroma_inp"
"""How YUV becomes RGB: without `bitexact` it depends on the instructions that a processor has."""


class Clip(NamedTuple):
    """Which part of a video is a sequence.

    Attributes:
        start: its first frame, from 0.
        stop: the frame after its last (None: to the end).
        box: left, top, right and bottom in pixels of what is cut out (None: all).
    """

    start: int = 0
    stop: int | None = None
    box: tuple[int, int, int, int] | None = None


def decoder() -> str:
    """Return what decodes; versions of it may give other pixels."""
    import av

    return f"libavcodec {av.library_versions['libavcodec'][0]}"


def frames(path: Path, clip: Clip) -> Iterator[Image.Image]:
    """Yield the frames of `clip` of the video at `path`: RGB, upright, cut out.

    Raises:
        BadImage: the file cannot be decoded, ends before its end, has too few frames, frames of
            several sizes, or a display matrix that is no orientation; with the number of the frame.
    """
    import av
    import av.logging

    count = 0
    size: tuple[int, int] | None = None
    # Both for good: set back at the end of one video, they would be so for another one still open.
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)  # the same complaint about the next file is a fault, too
    with av.logging.Capture() as log:
        try:
            with av.open(f"file:{path}", options=_OPTIONS) as container:
                for frame in _decoded(container, clip.stop):
                    image = _upright(frame, count)
                    size = size or image.size
                    if image.size != size:
                        raise BadImage(f"frame {count} has {image.width}x{image.height} pixels,"
                                       f" the first one {size[0]}x{size[1]}")
                    if count >= clip.start:
                        yield _cut(image, clip, count)
                    count += 1
                _refuse_faults(log, container.format.name, count)
        except (av.error.FFmpegError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadImage(f"frame {count} cannot be decoded: {reason}") from error
    if count < (clip.stop or clip.start + 1):
        raise BadImage(f"has {count} frames, {clip.stop or clip.start + 1} are needed")


def _decoded(container: av.container.InputContainer, stop: int | None) -> Iterator[Any]:
    """Yield the decoded frames up to `stop`, those of RGB 8 bits a channel."""
    if not container.streams.video:
        raise BadImage("has no video in it")
    stream = container.streams.video[0]
    context = stream.codec_context
    if context is None:
        raise BadImage("has a codec that is unknown here")
    context.options = {"err_detect": "explode"}
    context.thread_count = 1  # the processes are as many as the cores
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
            assert graph is not None  # noqa: S101 - made with the first frame
            graph.push(frame)
            rgb = graph.pull()
            yield rgb
            count += 1
            if count == stop:
                return
    if packets < stream.frames:
        raise BadImage(f"ends at frame {packets}, its header lists {stream.frames}")


def _to_rgb(frame: Any) -> Any:
    """Return the graph that makes RGB of frames like this one."""
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
        raise BadImage(f"frame {number} has {image.width}x{image.height} pixels, of which"
                       f" {clip.box} cannot be cut out")
    return image.crop(clip.box)


def _refuse_faults(log: list[tuple[int, str, str]], container: str, count: int) -> None:
    """Refuse a file about which the container complains: it ends early, and FFmpeg goes on."""
    told = [text.strip() for _, name, text in log if name == container]
    if told:
        raise BadImage(f"is damaged after frame {count - 1}: {told[0]}")
