"""Streaming: frames from a source through a pipeline into a sink."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import islice
from queue import Queue

from pipeline.errors import FrameDropped, PipelineClosed, StageError
from pipeline.io.frame import Delivered, Frame
from pipeline.io.sink import Sink
from pipeline.io.source import Source
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.pipeline import Pipeline
from pipeline.scheduler.statistics import Durations, Percentiles

POLICIES = {True: "latest", False: "block"}
"""Whether a source is live -> the admission that suits it."""


@dataclass(frozen=True)
class Streamed:
    """What a stream has been, besides the pipeline's statistics.

    Attributes
    ----------
    latency_s : Percentiles
        From capture to the result; of a recording, from when a frame was read or its turn was.
    passed_over : int
        Frames of a live source that were not submitted, because the sink was behind.
    interrupted : bool
        Whether the user ended it.
    """

    latency_s: Percentiles
    passed_over: int = 0
    interrupted: bool = False


class Streaming:
    """One stream.  The source is read in the caller's thread, the sink works in one of its own.

    Nothing piles up: while the sink is behind, a recording waits, and frames of a live source are passed over.

    Parameters
    ----------
    running : Pipeline
        With the admission that suits the source; see `POLICIES`.
    source : Source
    sink : Sink
    skip_failed : bool
        Whether frames that fail are left out; else the first one ends the stream with its error.
    limit : int, optional
        How many frames are read.
    """

    def __init__(
        self, running: Pipeline, source: Source, sink: Sink, *, skip_failed: bool = False, limit: int | None = None
    ) -> None:
        self._running, self._source, self._sink = running, source, sink
        self._skip_failed, self._limit = skip_failed, limit
        self._outputs = [spec.name for spec in running.plan.outputs]
        # More than are inside, so that the pipeline never waits for its results to be taken.
        self._line: Queue[_Awaited | None] = Queue(2 * running.plan.frames_in_flight + 2)
        self._latencies, self._passed_over = Durations(), 0
        self._error: BaseException | None = None

    def run(self) -> Streamed:
        """Stream until the source ends, the limit is reached, or the user interrupts a live source.

        Raises
        ------
        PipelineError
            Of the source, of the first frame that failed, or of the sink.
        """
        taker = threading.Thread(target=self._take, name="sink", daemon=True)
        taker.start()
        interrupted, closed = False, None
        try:
            interrupted = self._read()
        except PipelineClosed as error:
            # Of its own accord only because a frame failed, which says more.
            closed = error
        except BaseException as error:
            self._error = self._error or error
            # Ends all frames at once, so that nobody waits for them.
            self._running.close(drain=False)
            raise
        finally:
            self._line.put(None)
            taker.join()
        if self._error or closed:
            raise self._error or closed or RuntimeError
        return Streamed(self._latencies.percentiles(), self._passed_over, interrupted)

    def _read(self) -> bool:
        """Submit the frames; return whether the user ended it."""
        try:
            for frame in islice(self._source, self._limit):
                if self._error is not None:
                    return False
                self._submit(frame)
        except KeyboardInterrupt:
            if not self._source.live:
                raise
            return True
        return False

    def _submit(self, frame: Frame) -> None:
        if self._source.live and self._line.full():
            self._passed_over += 1
            return
        awaited = _Awaited(
            frame,
            self._running.submit(frame.inputs, copy=not self._source.fresh, timestamp=frame.ready, metadata=frame),
        )
        awaited.future.add_done_callback(awaited.end)
        self._line.put(awaited)

    def _take(self) -> None:
        while (awaited := self._line.get()) is not None:
            if self._error is not None:
                awaited.future.cancel()
                continue
            try:
                self._deliver(awaited)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the stream's caller gets it
                self._error = error

    def _deliver(self, awaited: _Awaited) -> None:
        try:
            result = awaited.future.result()
        except (FrameDropped, CancelledError):
            return
        except StageError:
            if self._skip_failed:
                return
            raise
        seconds = (awaited.ended or time.time()) - awaited.frame.ready
        self._latencies.add(seconds)
        outputs = result if isinstance(result, dict) else {self._outputs[0]: result}
        self._sink.add(Delivered(awaited.frame, outputs, awaited.future.sequence, seconds))


class _Awaited:
    """A frame in the pipeline."""

    __slots__ = ("ended", "frame", "future")

    def __init__(self, frame: Frame, future: FrameFuture) -> None:
        self.frame, self.future, self.ended = frame, future, 0.0

    def end(self, _: object) -> None:
        """Note when it ended, which may be long before the sink takes it."""
        self.ended = time.time()
