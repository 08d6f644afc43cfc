"""Update checks: trials of a bundle's new version after its start."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.errors import FrameDropped, PipelineClosed, describe_error

if TYPE_CHECKING:
    from pipeline.scheduler.frame import FrameFuture
    from pipeline.scheduler.pipeline import Pipeline

PAUSE_S = 0.01
"""Seconds between two looks at the frames that have ended."""


class UpdateOptions(NamedTuple):
    """Conditions for a new version."""

    shadow: int = 0
    """Live frames that pass it beside the version at work before it takes over; none may fail."""
    tolerance: float | None = None
    """The largest difference of outputs then, as a share of the largest one; by default any, since another version of a
    model may say something else."""
    guard: int = 50
    """Frames that are watched after it has taken over."""
    most_slower: float = 1.5
    """Upper bound on the slow-down of their median latency against that of the frames before."""
    patience_s: float = 10.0
    """Seconds that a frame may take beside the version at work, and all frames together after it has taken over,
    however fast the version before was."""
    opening_s: float = 300.0
    """Seconds for its devices to open."""
    grace_s: float = 5.0
    """Seconds for the frames of a version that is taken back to end."""


@contextlib.contextmanager
def observing(running: Pipeline, note: Callable[[Sequence[np.ndarray], FrameFuture], None]) -> Iterator[None]:
    """Show frames to `note` during the block."""
    end = running.observe(note)
    try:
        yield
    finally:
        end()


def check_going(running: Pipeline, ends: Callable[[], bool]) -> None:
    """Raise `PipelineClosed` if the stream ends."""
    if running.closed or ends():
        raise PipelineClosed("the stream ends")


def guard(running: Pipeline, earlier_s: Sequence[float], options: UpdateOptions, ends: Callable[[], bool]) -> str:
    """Watch the next frames and return an objection to their version, if any.

    Frames are judged while they run, against the latencies of those that passed the version before it: once all
    together have taken longer than as many of these may, those that have not ended cannot change the verdict. Raises
    `PipelineClosed` if it was given up, as `ends` signals.
    """
    window = _Window(options.guard)
    usual_s = statistics.median(earlier_s) if earlier_s else 0.0
    allowed_s = max(options.patience_s, options.guard * options.most_slower * usual_s)
    with observing(running, window.note):
        while not window.is_full and not window.failure:
            check_going(running, ends)
            if (spent_s := window.spent_s()) > allowed_s:
                return f"its first frames have taken {spent_s:.3g} s, where they may {allowed_s:.3g} s"
            time.sleep(PAUSE_S)
    if window.failure:
        return f"a frame failed: {window.failure}"
    if not usual_s or not window.latencies:
        return ""
    ratio = statistics.median(window.latencies) / usual_s
    is_slower = ratio > options.most_slower
    return f"its frames take {ratio:.2f} times as long as those before" if is_slower else ""


class _Window:
    """Latencies of the next frames up to a number, and first failure."""

    def __init__(self, size: int) -> None:
        self._size, self._noted, self._ended = size, 0, 0
        # When the frames that have not ended came in; submitting threads and workers change it, in single steps.
        self._begins: dict[FrameFuture, float] = {}
        self.latencies: list[float] = []
        self.failure = ""

    @property
    def is_full(self) -> bool:
        """True once all have ended."""
        return self._ended >= self._size

    def spent_s(self) -> float:
        """Seconds of the frames so far, including unfinished ones."""
        moment = time.monotonic()
        return sum(self.latencies) + sum(moment - begin for begin in list(self._begins.values()))

    def note(self, _: Any, future: FrameFuture) -> None:
        """Follow an incoming frame."""
        if self._noted >= self._size:
            return
        self._noted += 1
        self._begins[future] = time.monotonic()
        future.add_done_callback(lambda done: self._note_end(done, time.monotonic() - self._begins.pop(future)))

    def _note_end(self, future: Any, seconds: float) -> None:
        self._ended += 1
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.latencies.append(seconds)
        elif not self.failure and not isinstance(error, PipelineClosed | FrameDropped):
            # What is dropped at the entrance never met the new version.
            self.failure = describe_error(error, kind=False)
