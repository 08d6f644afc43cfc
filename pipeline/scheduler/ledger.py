"""Ledger: numbers frames and ends every one exactly once."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from time import perf_counter
from types import MappingProxyType
from typing import NamedTuple

from pipeline.errors import FrameDropped
from pipeline.scheduler.frame import Frame, FrameResult
from pipeline.scheduler.interrupts import uninterrupted
from pipeline.scheduler.statistics import Durations
from pipeline.scheduler.stream_states import Streams
from pipeline.system.forks import keep

logger = logging.getLogger(__name__)


class FrameCounts(NamedTuple):
    """Frames of a pipeline at one moment, with the fields of `Statistics`."""

    submitted: int
    delivered: int
    failed: int
    cancelled: int
    dropped: Mapping[str, int]
    in_flight: int
    elapsed_s: float


class Ledger:
    """Frames in flight, in order, and the counts of all so far.

    Frames that have started end in the thread that finds the next one finished, one at a time and in the order of
    submission. Frames that never start (dropped, or cancelled before a stage took them up) end at once. No lock is held
    when a future ends, so that its callbacks may call back into the pipeline. When a frame has left, `on_departure` is
    called, under `lock`; before the futures end, `on_room`, without it.

    Attributes
    ----------
    lock : RLock
        Guards all that is here, and what else decides who may start.
        Reentrant, because a signal handler may close a pipeline at any place.
    submitted, delivered, failed, cancelled : int
        Frames accepted, and how they ended.
    dropped : Counter
        Frames that never started, by reason.
    latency : Durations
        Time from start to delivery.
    first, last : float
        `time.perf_counter` at the first submission and the newest end.
    deliverer : int
        Identifier of the thread in which frames end just now, 0 if there is none.
    callers : set of int
        Identifiers of the threads that are in callbacks of frames just now.
    """

    def __init__(self, on_departure: Callable[[], None]) -> None:
        self._on_departure, self.on_room = on_departure, _do_nothing
        self.lock = threading.RLock()
        # A dict keeps the order of insertion, which is that of the numbers: the first entry is the frame whose turn it
        # is.
        self._frames: dict[int, Frame] = {}
        # Also those that wait to start, and those that have left but whose futures have not ended yet.
        self._open_frames: dict[int, Frame] = {}
        self.submitted = self.delivered = self.failed = self.cancelled = 0
        self.dropped: Counter[str] = Counter()
        self.latency = Durations()
        self.first = self.last = 0.0
        self.deliverer = 0
        self.callers: set[int] = set()
        self.streams = Streams()

    def __len__(self) -> int:
        return len(self._frames)

    def __contains__(self, frame: Frame) -> bool:
        return frame.number in self._frames

    def number(self, frame: Frame) -> None:
        """Give a frame its number and book it. The caller holds `lock`."""
        self._open_frames[self.submitted] = frame
        # In one step: an interrupt between the two would give the number to two frames.
        frame.number, self.submitted = self.submitted, self.submitted + 1
        frame.future.sequence = frame.number
        if frame.deployment.keeps_state:
            frame.turn = self.streams.follow(frame.future.stream, frame.number, frame.deployment)

    def forget_stream(self, stream: str | None) -> None:
        """Let a stream, or all with None, begin anew with its next frame."""
        with self.lock:
            self.streams.forget(stream)

    def start(self, frame: Frame) -> None:
        """Mark a frame in flight, before anybody can finish it. The caller holds `lock`."""
        if frame.number < 0:
            self.number(frame)
        # Rates begin with the first frame, not with the pipeline: loading it may be long ago.
        self.first = self.first or perf_counter()
        self._frames[frame.number] = frame

    def frames(self, last_kept: int = -1) -> list[Frame]:
        """Return the frames in flight with numbers above `last_kept`."""
        with self.lock:
            return [frame for number, frame in self._frames.items() if number > last_kept]

    def counts(self) -> FrameCounts:
        """Return consistent counts. The caller holds `lock`."""
        # In flight is what is left over, and not a count of its own: so the sum always holds.
        end_count = self.delivered + self.failed + self.cancelled + sum(self.dropped.values())
        in_flight = self.submitted - end_count
        elapsed_s = ((perf_counter() if in_flight else self.last) - self.first) if self.first else 0.0
        drops = MappingProxyType(dict(self.dropped))
        return FrameCounts(self.submitted, self.delivered, self.failed, self.cancelled, drops, in_flight, elapsed_s)

    def after_fork(self, error: BaseException) -> None:
        """Fail unfinished frames in a forked process."""
        # Another thread of the parent may have held the lock, or been the deliverer; neither is in this process.
        self.lock, self.deliverer, self.last = threading.RLock(), 0, perf_counter()
        # Some may be in the books as ended already: another thread was about to end their futures.
        self.failed = self.submitted - self.delivered - self.cancelled - sum(self.dropped.values())
        frames = list(self._open_frames.values())
        keep(frames)
        self._frames, self._open_frames = {}, {}
        for frame in frames:
            frame.future.after_fork(error)

    def finish(self, frame: Frame) -> None:
        """Mark a frame complete, and deliver all frames next in order."""
        frame.is_finished = True
        self._deliver()

    @uninterrupted
    def abandon(self, reason: BaseException, frames: Iterable[Frame]) -> None:
        """Fail frames in flight, even with a busy device."""
        for frame in frames:
            # Finished, it has its result, and only waits for its turn.
            if not frame.is_finished:
                frame.abandon(reason)
        self._deliver()

    @uninterrupted
    def end_withdrawn(self, frame: Frame) -> None:
        """End a frame before its first stage, out of order."""
        self._end(frame)
        self._deliver()  # those after it may have waited for it only

    def _deliver(self) -> None:
        me = threading.get_ident()
        while (frame := self._next(me)) is not None:
            self._end(frame)
            me = 0

    def _next(self, newcomer: int = 0) -> Frame | None:
        with self.lock:
            # One thread at a time, without the lock in its hands: the order is kept, and callbacks may call the
            # pipeline.  Whoever it is sees what has been noted by now.
            if newcomer and self.deliverer:
                return None
            for frame in self._frames.values():
                if not frame.is_finished:
                    break
                self.deliverer = self.deliverer or newcomer
                return frame
            # In the same step as the look at the next frame: whoever finishes one after that finds no deliverer, and
            # becomes it.
            self.deliverer = 0
            return None

    def _end(self, frame: Frame) -> None:
        result, error = _outcome(frame)
        with self.lock:
            # Out of the frames in flight and into the counts in one step, so that no snapshot sees it in both or in
            # neither.
            self._frames.pop(frame.number, None)
            self._count(frame, error)
            self._on_departure()
        # Before callbacks run, which may take long: the next frame is on its way meanwhile.
        self.on_room()
        try:
            _complete(frame, result, error)
        except BaseException:  # somebody else has ended the future, and this thread must survive it
            logger.exception("the future of frame %d could not be ended", frame.number)
        # Only now: a fork while callbacks run must still find the frame, whose future may not have ended.
        self._open_frames.pop(frame.number, None)
        frame.end()

    def _count(self, frame: Frame, error: BaseException | None) -> None:
        self.last = perf_counter()
        if error is None:
            self.delivered += 1
            self.latency.add(self.last - frame.entry_s)
        elif isinstance(error, CancelledError):
            self.cancelled += 1
        elif isinstance(error, FrameDropped):
            self.dropped[error.reason] += 1
        else:
            self.failed += 1


def _do_nothing() -> None:
    pass


def _outcome(frame: Frame) -> tuple[FrameResult | None, BaseException | None]:
    if frame.error is not None:
        return None, frame.error
    try:
        # Cropping or copying outputs can fail, for want of memory say: the error is the frame's.
        return frame.deployment.result(frame), None
    except BaseException as error:  # noqa: BLE001 - it is the frame's end
        return None, error


def _complete(frame: Frame, result: FrameResult | None, error: BaseException | None) -> None:
    if error is None:
        frame.future.set_result(result)
    elif isinstance(error, CancelledError):
        frame.announce_cancellation()
    else:
        frame.future.set_exception(error)
