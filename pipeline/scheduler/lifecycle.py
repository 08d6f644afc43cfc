"""Life cycle of a pipeline: drain, flush, pause, resume, close."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import TYPE_CHECKING

from pipeline.scheduler.forgotten import unwatch

if TYPE_CHECKING:
    from typing_extensions import Self

    from pipeline.plans import Plan
    from pipeline.scheduler.engine import Engine
    from pipeline.scheduler.interpreter import Interval
    from pipeline.scheduler.newcomers import Newcomers

GRACE = 0.5
"""Seconds that an abrupt end waits for devices that are in the middle of something."""


class LifeCycle:
    """Adds the calls to `Pipeline`.  All may be called again, from any thread, from callbacks and after errors."""

    _engine: Engine
    _newcomers: Newcomers
    _interval: Interval

    if TYPE_CHECKING:

        @property
        def plan(self) -> Plan:
            """What runs."""

        def _end_of_runs(self) -> None:
            """Tell the original calls."""

    @property
    def closed(self) -> bool:
        """Whether no more frames are accepted."""
        return self._engine.closing

    @property
    def error(self) -> BaseException | None:
        """What has ended the pipeline before it was closed, None if nothing has."""
        return self._engine.error

    def drain(self, *, timeout: float | None = None) -> None:
        """Wait until the frames submitted so far have ended; more may be submitted meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait.

        Raises
        ------
        TimeoutError
            If they had not ended in time, or the caller is a callback, which must not wait for its own pipeline.
        """
        self._engine.drain(self._newcomers.wait(timeout))

    def flush(self) -> int:
        """Drop the frames that no stage has taken up, with the reason ``"flushed"``, and return how many there were."""
        return self._engine.flush()

    def pause(self) -> None:
        """Start no more frames; those that have started are finished, those submitted wait or are dropped."""
        self._engine.entrance.paused = not self._engine.closing

    def resume(self) -> None:
        """Start frames again."""
        self._engine.entrance.paused = False
        self._engine.entrance.settle()

    def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Take no more frames and end the workers.

        Called from a callback it only begins the end, since a worker cannot wait for itself.

        Parameters
        ----------
        drain : bool
            Finish the frames that are in, also those that wait.  With False those that no stage has taken up are
            cancelled, and the others fail with `PipelineClosed`.
        timeout : float, optional
            Seconds to wait for frames to finish; those left are given up.
        """
        unwatch(self)
        engine = self._engine
        if drain:
            timeout = self._newcomers.wait(timeout)
        engine.close()
        self._newcomers.cancel()
        self._end_of_runs()
        self._interval.end()
        if engine.inside():
            if not drain:
                engine.abandon(engine.closed_before())
            return
        ended = False
        try:
            ended = drain and engine.join(timeout)
        finally:
            # Also when Ctrl-C ends the wait.
            if not ended:
                engine.abandon(engine.closed_before())
            self._say_goodbye()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(drain=kind is None)

    def _say_goodbye(self) -> None:
        if busy := self._engine.flows.busy(GRACE):
            names = ", ".join(repr(name) for name in busy)
            warnings.warn(
                f"stages that are still busy in their device: {names}; their threads end when the device returns",
                ResourceWarning,
                stacklevel=3,
            )
