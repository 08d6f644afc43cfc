"""Update checks: what a new version of a bundle has to stand before, and just after, it takes over."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.core.compare import compare_outputs, overall
from pipeline.errors import FrameDropped, PipelineClosed, PipelineError, describe_error

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.frame import FrameFuture
    from pipeline.scheduler.pipeline import Pipeline

_PAUSE_S = 0.01
"""Between two looks at the frames that have ended."""

_BACKLOG = 2
"""Frames that wait to be compared; others are left out, so that the stream does not wait for it."""


class UpdateOptions(NamedTuple):
    """What a new version has to stand.

    Attributes
    ----------
    shadow : int
        So many live frames pass it beside the version at work before it takes over; none may fail.
    tolerance : float, optional
        The largest difference of outputs then, as a share of the largest one; by default any, since another version of
        a model may say something else.
    guard : int
        So many frames are watched after it has taken over.
    most_slower : float
        By what their median latency may be longer than that of the frames before.
    """

    shadow: int = 0
    tolerance: float | None = None
    guard: int = 50
    most_slower: float = 1.5


def compare_live(
    running: Pipeline, current: Bundle, successor: Bundle, options: UpdateOptions, ends: Callable[[], bool]
) -> None:
    """Let some live frames pass a version beside the one at work.

    Parameters
    ----------
    running : Pipeline
    current, successor : Bundle
        What it runs, and the new version.
    options : UpdateOptions
    ends : callable
        Whether to give up.

    Raises
    ------
    PipelineError
        If something speaks against the new version.
    """
    # Before anything is opened; a swap says the same.
    for side in ("inputs", "outputs"):
        if getattr(successor.plan, side) != getattr(current.plan, side):
            raise PipelineError(f"it has other {side} than the version at work")
    if not options.shadow:
        return
    from pipeline.scheduler.pipeline import Pipeline

    frames: Queue[tuple[list[np.ndarray], FrameFuture]] = Queue(_BACKLOG)

    def note(inputs: Sequence[np.ndarray], future: FrameFuture) -> None:
        if not frames.full():
            with contextlib.suppress(Full):
                # Copies, since the caller may write over them.
                frames.put_nowait(([array.copy() for array in inputs], future))

    shadow = Pipeline(successor.plan, successor.codes, shapes=successor.shapes, more=successor.more)
    end = running.observe(note)
    try:
        compared = 0
        while compared < options.shadow and not ends() and not running.closed:
            with contextlib.suppress(Empty):
                compared += _compare_frame(shadow, *frames.get(timeout=_PAUSE_S), options.tolerance)
    finally:
        end()
        shadow.close(drain=False)


def _compare_frame(
    shadow: Pipeline, inputs: Sequence[np.ndarray], future: FrameFuture, tolerance: float | None
) -> bool:
    """Return whether a frame could be compared; raise if it fails, or its outputs differ too much."""
    names = [spec.name for spec in shadow.plan.inputs]
    outputs = shadow.submit(dict(zip(names, inputs, strict=True)), copy=False).outputs()
    try:
        expected = future.outputs()
    except BaseException:  # noqa: BLE001 - dropped, cancelled or failed: it is its caller's matter
        return False
    difference = overall(compare_outputs(outputs, expected, "the version at work").values())
    if tolerance is not None and not difference.within(tolerance):
        raise PipelineError(
            f"its outputs differ by {difference.relative:.3g} of the largest one from those of the version at work"
        )
    return True


def guard(running: Pipeline, before: Sequence[float], options: UpdateOptions, ends: Callable[[], bool]) -> str:
    """Watch the frames that follow, and return what speaks against the version that they pass; empty if nothing does.

    Parameters
    ----------
    running : Pipeline
    before : sequence of float
        Latencies of frames that passed the version before it, in seconds.
    options : UpdateOptions
    ends : callable
        Whether to give up.
    """
    window = _Window(options.guard)
    end = running.observe(window.note)
    try:
        while not window.is_full and not window.failure and not running.closed and not ends():
            time.sleep(_PAUSE_S)
    finally:
        end()
    if window.failure:
        return f"a frame failed: {window.failure}"
    if not before or not window.latencies:
        return ""
    ratio = statistics.median(window.latencies) / statistics.median(before)
    is_slower = ratio > options.most_slower
    return f"its frames take {ratio:.2f} times as long as those before" if is_slower else ""


class _Window:
    """Latencies of the frames that come in from now on, up to a number, and the first failure."""

    def __init__(self, size: int) -> None:
        self._size, self._noted, self._ended = size, 0, 0
        self.latencies: list[float] = []
        self.failure = ""

    @property
    def is_full(self) -> bool:
        """Whether all of them have ended."""
        return self._ended >= self._size

    def note(self, _: Any, future: FrameFuture) -> None:
        """Follow a frame that comes in."""
        if self._noted >= self._size:
            return
        self._noted += 1
        begin = time.monotonic()
        future.add_done_callback(lambda done: self._note_end(done, time.monotonic() - begin))

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
