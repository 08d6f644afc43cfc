"""Observation: what somebody who looks on may see of a running pipeline, beside its statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.trace import Trace

if TYPE_CHECKING:
    from pipeline.scheduler.engine import Engine

Observer = Callable[[Sequence[np.ndarray], FrameFuture], None]


class Observation:
    """Adds the calls to `Pipeline`."""

    _engine: Engine

    @property
    def trace(self) -> Trace | None:
        """Where events are noted, None if they are not."""
        return self._engine.trace

    def latencies(self) -> list[float]:
        """Return the newest durations from submission to delivery in seconds, in no order; at most 1024."""
        return self._engine.ledger.latency.values()

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Show each frame that comes in from now on to `observer`; return what ends that.

        Parameters
        ----------
        observer : callable
            Given the inputs in the plan's order and the frame's future, in the thread that submits.  It has to be
            quick, must not raise, and may read the arrays only until it returns.
        """
        engine = self._engine
        with engine.ledger.lock:
            engine.observers = (*engine.observers, observer)

        def end() -> None:
            with engine.ledger.lock:
                engine.observers = tuple(each for each in engine.observers if each is not observer)

        return end
