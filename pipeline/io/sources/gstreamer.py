"""Pictures of a GStreamer pipeline, such as ``gst:libcamerasrc ! video/x-raw,width=640``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from pipeline.errors import InputError, SourceLost
from pipeline.io.gstreamer import OPENING_S, STEP_S, LaunchedPipeline, library
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource, SourceKind, SourceOptions
from pipeline.io.sources.camera import SILENCE, CaptureClock
from pipeline.io.uri import Uri
from pipeline.picture.pixels import Pixels

FORMATS = {
    "BGR": "bgr24", "BGRA": "bgra", "BGRx": "bgra", "GRAY8": "gray", "I420": "yuv420p", "NV12": "nv12", "RGB": "rgb24",
    "RGBA": "rgba", "RGBx": "rgba", "YUY2": "yuyv422",
}  # fmt: skip
"""FFmpeg's names of GStreamer's formats."""

ACCEPTED = (
    "video/x-raw, format={ BGR, BGRA, BGRx, GRAY8, RGB, RGBA, RGBx }; "
    "video/x-raw, format={ I420, NV12, YUY2 }, width=[ 2, 2147483646, 2 ], height=[ 4, 2147483644, 4 ]"
)
"""Pictures that preparation takes; the latter formats have few colours, see `cuts_colours`."""

COLOUR_SPACES = {2: 4, 3: 1, 4: 6, 5: 7, 6: 9}
"""FFmpeg's numbers of colour spaces by GStreamer's: FCC, BT.709, BT.601, SMPTE 240M, BT.2020."""

COLOUR_RANGES = {1: 2, 2: 1}
"""FFmpeg's numbers of colour ranges by GStreamer's: full, and limited."""

QUEUE = 4
"""Pictures of a recording decoded in advance."""


class GstSource(FrameSource):
    """Pictures out of a pipeline's appsink, which is added where the text has none.

    The text is as for ``gst-launch-1.0``. The source is live if the pipeline is. Of what is live the newest picture
    waits, and older ones are dropped. Raises `InputError`, with the bus's message, if the pipeline does not start;
    `MissingExtra` if there is no GStreamer for this Python.
    """

    owns_memory = True
    pixels: Pixels

    def __init__(self, text: str) -> None:
        # What the user has set at an appsink of theirs stays.
        is_ours = "appsink" not in text
        tail = " ! videoconvert ! appsink sync=false" if is_ours else ""
        self._pipeline, self._clock, self._count = LaunchedPipeline(text + tail, "appsink"), CaptureClock(), 0
        self._sink = self._pipeline.end
        try:
            sample = self._start(is_ours)
            self._caps = sample.get_caps()
            self.pixels = _read_pixels(self._caps)
            self._first = self._frame(sample)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the pictures."""
        yield self._first
        try:
            while (sample := self._pull()) is not None:
                yield self._frame(sample)
        except InputError as error:
            raise (SourceLost(f"{error}, after {self._count} frames") if self.live else error) from None
        if self.live:
            raise SourceLost(f"gst: the pipeline has ended after {self._count} frames")

    def close(self) -> None:
        """Stop the pipeline."""
        self._pipeline.close()

    def _start(self, is_ours: bool) -> Any:
        """Start the pipeline, and return its first sample."""
        if self._sink.get_property("caps") is None:
            self._sink.set_property("caps", library().Gst.Caps.from_string(ACCEPTED))
        self.live = self._pipeline.pause(wait=True)
        if is_ours:
            self._sink.set_property("max-buffers", 1 if self.live else QUEUE)
            self._sink.set_property("drop", self.live)
        self._pipeline.play()
        if (sample := self._pull(OPENING_S)) is None:
            raise InputError("gst: the pipeline has ended before its first picture")
        return sample

    def _pull(self, limit_s: float = SILENCE) -> Any:
        """Return the next sample; None at the end of the stream."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            sample = self._sink.try_pull_sample(round(STEP_S * SECOND))
            if sample is not None:
                self._pipeline.read_bus()
                return sample
            # In this order: an error ends the stream as well.
            self._pipeline.check()
            if self._sink.is_eos():
                return None
        raise InputError(f"gst: no picture for {limit_s:g} s")

    def _frame(self, sample: Any) -> SourceFrame:
        if not sample.get_caps().is_equal(self._caps) and _read_pixels(sample.get_caps()) != self.pixels:
            raise InputError(
                f"gst: the pictures have become {_read_pixels(sample.get_caps())} from {self.pixels}; end the pipeline "
                "in 'videoscale ! video/x-raw,width=...,height=...'"
            )
        gst = library().Gst
        stamp = sample.get_segment().to_running_time(gst.Format.TIME, sample.get_buffer().pts)
        name, array, has_time = f"{self._count:06d}", self._array(sample), stamp != gst.CLOCK_TIME_NONE
        self._count += 1
        if not self.live:
            return SourceFrame(name, array, stamp if has_time else self._count * SECOND // 30, pixels=self.pixels)
        moment = self._clock.capture_time(time.time() - self._pipeline.age(stamp) if has_time else None)
        return SourceFrame(name, array, round(moment * SECOND), moment, self.pixels)

    def _array(self, sample: Any) -> np.ndarray:
        buffer = sample.get_buffer()
        # A copy: what a camera's memory holds is overwritten.
        data = buffer.extract_dup(0, buffer.get_size())
        video = library().GstVideo
        # Devices lay rows and planes out as they like, and say so with each buffer.
        layout = video.buffer_get_video_meta(buffer) or video.VideoInfo.new_from_caps(sample.get_caps())
        parts = zip(_planes(self.pixels), layout.offset, layout.stride, strict=False)
        rows = [np.ndarray(shape, np.uint8, data, offset, (stride, 1)) for shape, offset, stride in parts]
        return np.concatenate([plane.reshape(-1) for plane in rows]).reshape(self.pixels.shape)


def _read_pixels(caps: Any) -> Pixels:
    name = caps.get_structure(0).get_string("format")
    if name not in FORMATS:
        raise InputError(
            f"gst: the appsink gets {caps.to_string()}; leave it out, or give it one of {', '.join(FORMATS)}"
        )
    info = library().GstVideo.VideoInfo.new_from_caps(caps)
    colours = info.colorimetry
    # RGB has neither for FFmpeg.
    space = COLOUR_SPACES.get(int(colours.matrix), 2) or 2
    extent = 0 if space == 2 else COLOUR_RANGES.get(int(colours.range), 0)
    return Pixels(FORMATS[name], info.width, info.height, space, extent)


def _planes(pixels: Pixels) -> list[tuple[int, int]]:
    """Return rows and bytes per row of each plane."""
    height, width = pixels.height, pixels.width
    colour = {"nv12": [(height // 2, width)], "yuv420p": [(height // 2, width // 2)] * 2}
    if pixels.format in colour:
        return [(height, width), *colour[pixels.format]]
    return [(height, int(np.prod(pixels.shape[1:])))]


def _open(uri: Uri, _: SourceOptions) -> GstSource:
    # Addresses in it may have question marks.
    return GstSource(uri.text.removeprefix("gst:"))


KINDS = (SourceKind(("gst",), _open, "gst:PIPELINE", live=True, is_command=True, options=None),)
