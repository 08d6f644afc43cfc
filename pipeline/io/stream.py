"""Streaming: frames from a source through a pipeline into a sink."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from pipeline.errors import PipelineError, StageError
from pipeline.io.result_reader import ResultReader
from pipeline.io.sinks.base import Sink
from pipeline.io.source_frame import SourceFrame, StreamFrame
from pipeline.io.sources.base import FrameSource
from pipeline.io.stream_loop import Outputs, StreamLoop, SubmittedFrame
from pipeline.picture.geometry import Geometry
from pipeline.scheduler.pipeline import Pipeline
from pipeline.scheduler.statistics import Durations, Percentiles

POLICIES = {True: "latest", False: "block"}
"""Admission policy for live and recorded sources."""


@dataclass(frozen=True)
class StreamSummary:
    """Summary of a stream, besides the pipeline's statistics."""

    latency_s: Percentiles
    """Seconds from capture to the result; of a recording, from when a frame was read or its turn was."""
    passed_over: int = 0
    """Frames of a live source that were not submitted, because the sink was behind."""
    interrupted: bool = False
    """True if the user ended it."""
    nan_inputs: int = 0
    nan_outputs: int = 0
    """Frames with values that are no numbers."""


class FrameStream:
    """A stream: the source runs in the caller's thread, the sink apart.

    The pipeline has the admission that suits the source; see `POLICIES`. Nothing piles up: while the sink is behind, a
    recording waits, and frames of a live source are passed over. With `skip_failed` frames that fail are left out; else
    the first one ends the stream with its error. The reader decodes the outputs, by the position of the source's
    pictures in the model's input.
    """

    def __init__(  # noqa: PLR0913 - all but the first three by keyword
        self,
        running: Pipeline,
        source: FrameSource,
        sink: Sink,
        *,
        skip_failed: bool = False,
        limit: int | None = None,
        reader: ResultReader | None = None,
        geometry: Geometry | None = None,
    ) -> None:
        self._running, self._source, self._sink = running, source, sink
        self._skip_failed, self._limit = skip_failed, limit
        self._reader, self._geometry = reader if sink.reads_results else None, geometry
        self._loop = StreamLoop(running, self._deliver, self._fail, "sink")
        self._latencies, self._passed_over = Durations(), 0
        self._nan_inputs, self._nan_outputs = NanCount("input"), NanCount("output")

    def run(self) -> StreamSummary:
        """Stream until the source's end, the limit, or an interrupt.

        The sink gets all frames that a source yielded before it failed.  No call of the sink runs any more when this
        returns or raises. Raises `PipelineError` if the source, a frame or the sink failed; of frames, the first error
        counts.
        """
        source_error, was_interrupted = None, False
        try:
            try:
                was_interrupted = self._read()
            except Exception as error:  # noqa: BLE001 - it is raised below, unless a frame failed, which says more
                source_error = error
            # Waits for the results of all frames, also after an error of the source.
            self._loop.close()
        except BaseException as error:
            self._end_early(error)
            raise
        # The failure of a frame says more than that of the source, which may follow from it.
        if failure := self._loop.error or source_error:
            raise failure
        return StreamSummary(
            self._latencies.percentiles(),
            self._passed_over,
            was_interrupted,
            self._nan_inputs.frames,
            self._nan_outputs.frames,
        )

    def _end_early(self, error: BaseException) -> None:
        self._loop.abandon(error)
        try:
            # Ends all frames at once, so that nobody waits for them.
            self._running.close(drain=False)
        finally:
            self._loop.close()

    def _read(self) -> bool:
        """Submit the frames; return True after the user's interrupt."""
        try:
            for frame in islice(self._source, self._limit):
                # Looked at before each frame, so that a full disk ends a recording at once.
                if self._loop.error is not None:
                    return False
                self._submit(frame)
        except KeyboardInterrupt:
            # A recording has an end of its own: to interrupt it is to give it up.
            if not self._source.live:
                raise
            return True
        return False

    def _submit(self, frame: SourceFrame) -> None:
        # Waiting here would let the driver drop frames, and these would be old ones when they come.
        if self._source.live and self._loop.full:
            self._passed_over += 1
            return
        self._nan_inputs.note(frame.name, frame.inputs)
        self._loop.submit(frame.inputs, copy=not self._source.owns_memory, timestamp=frame.ready, metadata=frame)

    def _deliver(self, submission: SubmittedFrame, outputs: Outputs) -> None:
        frame: SourceFrame = submission.future.metadata
        # Zero where the result is handed over before the end is noted.
        seconds = (submission.end_time or time.time()) - frame.ready
        self._latencies.add(seconds)
        self._nan_outputs.note(frame.name, outputs)
        quantization = self._running.plan.quantization
        result = None if self._reader is None else self._reader.read_frame(frame, outputs, self._geometry)
        self._sink.add(StreamFrame(frame, outputs, submission.future.sequence, seconds, quantization, result))

    def _fail(self, error: PipelineError) -> None:
        if not (self._skip_failed and isinstance(error, StageError)):
            raise error


logger = logging.getLogger(__name__)


class NanCount:
    """Counts frames with NaN in inputs or outputs, warning once.

    Kernels such as a ReLU or an argmax make numbers of NaN, so that results do not show it.
    """

    def __init__(self, side: str) -> None:
        self._side, self.frames = side, 0

    def note(self, frame: str, arrays: Any) -> None:
        """Inspect a frame's arrays, by name, or its only one."""
        named_arrays = arrays if isinstance(arrays, Mapping) else {"": arrays}
        names = [name for name, array in named_arrays.items() if _has_nan(array)]
        if names and not self.frames:
            title = f"{self._side} {names[0]!r}" if names[0] else self._side
            logger.warning("the %s of frame %r has NaN: what is made of it means nothing", title, frame)
        self.frames += bool(names)


def _has_nan(array: Any) -> bool:
    # The least of them is NaN if any is: one pass, and no array of flags.
    return isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.size > 0 and bool(np.isnan(array.min()))
