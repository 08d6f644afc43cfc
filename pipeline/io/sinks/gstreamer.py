"""Annotated pictures into a GStreamer pipeline, such as ``gst:x264enc ! mp4mux ! filesink location=out.mp4``."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from pipeline.errors import InputError
from pipeline.io.gstreamer import STEP_S, LaunchedPipeline, library
from pipeline.io.sinks.annotation import OPTIONS, Annotator, make_annotator
from pipeline.io.sinks.base import Sink, SinkKind, SinkOptions
from pipeline.io.source_frame import SECOND, StreamFrame
from pipeline.io.uri import Uri

PATIENCE_S = 30.0
"""Seconds that a pipeline has for a picture, or to end; encoders look many pictures ahead."""

QUEUE = 4
"""Pictures that wait in front of the pipeline."""


class GstSink(Sink):
    """Pushes RGB pictures with their own times into an appsrc, which is put in front of a text without one.

    By default results are those of the model's decoder. Raises `InputError` if the pipeline cannot be started;
    `MissingExtra` if there is no GStreamer for this Python.
    """

    def __init__(self, text: str, annotator: Annotator | None = None) -> None:
        self._annotator, self._gst = annotator or Annotator(), library().Gst
        self._pipeline = LaunchedPipeline(text if "appsrc" in text else f"appsrc ! videoconvert ! {text}", "appsrc")
        self._source, self._shape = self._pipeline.end, tuple[int, ...]()
        self._first = self._last = 0
        self._source.set_property("format", self._gst.Format.TIME)
        # How many may wait is for `add`: an appsrc that blocks holds its caller for ever if the pipeline fails.
        self._source.set_property("max-bytes", 0)
        try:
            # Where nothing can be written is known before the first frame.
            self._pipeline.pause(wait=False)
        except BaseException:
            self._pipeline.close()
            raise

    def add(self, result: StreamFrame) -> None:
        """Push one picture; wait while the pipeline has enough of them."""
        picture = self._annotator.rgb(result)
        if not self._shape:
            self._begin(picture, result.frame.stamp)
        elif picture.shape != self._shape:
            raise InputError(
                f"gst: the pictures have become {picture.shape} from {self._shape}, and a pipeline has one"
            )
        # GStreamer's rows are multiples of four bytes.
        rows = np.pad(picture.reshape(len(picture), -1), ((0, 0), (0, -picture.shape[1] * 3 % 4)))
        self._wait(lambda: self._source.get_current_level_bytes() < QUEUE * rows.nbytes)
        buffer = self._gst.Buffer.new_wrapped(rows.tobytes())
        # Clocks of cameras stand still or step back, which muxers refuse.
        buffer.pts = max(result.frame.stamp - self._first, self._last + 1)
        buffer.duration = buffer.pts - self._last if buffer.pts else SECOND // 30
        self._last = buffer.pts
        self._source.push_buffer(buffer)

    def finish(self) -> None:
        """Let the pipeline end, and stop it."""
        try:
            if not self._shape:
                raise InputError("gst: there is no picture for the pipeline: no frame was delivered")
            self._source.end_of_stream()
            self._wait(lambda: self._pipeline.ended)
        finally:
            self._pipeline.close()

    def finish_early(self) -> None:
        """Let it end, or stop it without pictures or after a failure."""
        if self._shape and not self._pipeline.error:
            self.finish()
        else:
            self._pipeline.close()

    def _begin(self, picture: np.ndarray, stamp: int) -> None:
        self._shape, self._first, self._last = picture.shape, stamp, -1
        # Of varying rate: frames may be dropped.
        caps = f"video/x-raw, format=RGB, width={picture.shape[1]}, height={len(picture)}, framerate=0/1"
        self._source.set_property("caps", self._gst.Caps.from_string(caps))
        self._pipeline.play()

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        self._pipeline.check()
        while not condition():
            if time.monotonic() > deadline:
                raise InputError(f"gst: the pipeline has taken no picture for {PATIENCE_S:g} s")
            time.sleep(STEP_S / 20)
            self._pipeline.check()


def _open(uri: Uri, sink_options: SinkOptions) -> GstSink:
    if uri.options.keys() <= set(OPTIONS):
        return GstSink(uri.location, make_annotator(uri.options, sink_options))
    # The end of an address in it, which looks like options.
    return GstSink(uri.text.removeprefix("gst:"), make_annotator({}, sink_options))


KINDS = (SinkKind("gst", _open, "gst:PIPELINE", is_file=False, is_command=True, options=None),)
