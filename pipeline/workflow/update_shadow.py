"""Update shadow: live frames through a new version beside the current."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING

import numpy as np

from pipeline.comparison.compare import compare_outputs, overall
from pipeline.errors import PipelineClosed, PipelineError
from pipeline.system.threads import call_in_time
from pipeline.workflow.update_checks import PAUSE_S, UpdateOptions, check_going, observing

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.frame import FrameFuture
    from pipeline.scheduler.pipeline import Pipeline

_BACKLOG = 2
"""Most frames waiting for comparison; others are left out, so that the stream does not wait for it."""


def compare_live(
    running: Pipeline, current: Bundle, successor: Bundle, options: UpdateOptions, ends: Callable[[], bool]
) -> None:
    """Pass some live frames through a version beside the current one.

    Raises `PipelineClosed` if it was given up, as `ends` signals; `PipelineError` if something speaks against the new
    version.
    """
    # Before anything is opened; a swap says the same.
    for side in ("inputs", "outputs"):
        if getattr(successor.plan, side) != getattr(current.plan, side):
            raise PipelineError(f"it has other {side} than the version at work")
    if not options.shadow:
        return
    frames: Queue[tuple[list[np.ndarray], FrameFuture]] = Queue(_BACKLOG)

    def note(inputs: Sequence[np.ndarray], future: FrameFuture) -> None:
        if not frames.full():
            with contextlib.suppress(Full):
                # Copies, since the caller may write over them.
                frames.put_nowait(([array.copy() for array in inputs], future))

    with _shadow(successor, options, ends) as shadow, observing(running, note):
        compared = 0
        while compared < options.shadow:
            check_going(running, ends)
            with contextlib.suppress(Empty):
                compared += _compare_frame(shadow, *frames.get(timeout=PAUSE_S), options, ends)


@contextlib.contextmanager
def _shadow(bundle: Bundle, options: UpdateOptions, ends: Callable[[], bool]) -> Iterator[Pipeline]:
    """Run a version beside the current one, even with hanging devices."""
    from pipeline.scheduler.pipeline import Pipeline

    try:
        shadow = call_in_time(
            lambda: Pipeline(bundle),
            "opening its devices",
            limit_s=options.opening_s,
            ends=ends,
            discard=lambda late: late.close(drain=False),
        )
    except TimeoutError as error:
        raise (PipelineClosed("the stream ends") if ends() else PipelineError(str(error))) from None
    try:
        yield shadow
    finally:
        shadow.close(drain=False)


def _compare_frame(
    shadow: Pipeline,
    inputs: Sequence[np.ndarray],
    future: FrameFuture,
    options: UpdateOptions,
    ends: Callable[[], bool],
) -> bool:
    """Compare a frame if possible; raise on failure, hang or difference."""
    names = [spec.name for spec in shadow.plan.inputs]
    shadow_future = shadow.submit(dict(zip(names, inputs, strict=True)), copy=False)
    if not _wait(shadow_future, options.patience_s, ends):
        raise PipelineError(f"a frame takes more than {options.patience_s:g} s")
    outputs = shadow_future.outputs()
    # As long again: behind a frame that hangs, the version at work has no result to compare with.
    if not _wait(future, options.patience_s, ends):
        return False
    try:
        expected = future.outputs()
    except BaseException:  # noqa: BLE001 - dropped, cancelled or failed: it is its caller's matter
        return False
    difference = overall(compare_outputs(outputs, expected, "the version at work").values())
    if options.tolerance is not None and not difference.within(options.tolerance):
        raise PipelineError(
            f"its outputs differ by {difference.relative:.3g} of the largest one from those of the version at work"
        )
    return True


def _wait(future: FrameFuture, limit_s: float, ends: Callable[[], bool]) -> bool:
    """Wait for a frame's end, returning success; raise `PipelineClosed` at the stream's end."""
    deadline = time.monotonic() + limit_s
    while not future.wait(PAUSE_S):
        if ends():
            raise PipelineClosed("the stream ends")
        if time.monotonic() > deadline:
            return False
    return True
