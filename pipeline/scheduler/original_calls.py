"""Call sequence of the original proposal: set_input, run, get_output."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any

import numpy as np

from pipeline.errors import InputError, PipelineClosed
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.inputs import InputCheck
from pipeline.scheduler.waiting import SafeCondition
from pipeline.system.memory import snapshot


class OriginalCalls:
    """Inputs for the next run, and runs with unread outputs.

    `Pipeline` is called in this order:

    >>> pipeline.set_input("image", image)  # doctest: +SKIP
    >>> pipeline.run()  # doctest: +SKIP
    >>> (scores,) = pipeline.get_output(timeout=1.0)  # doctest: +SKIP
    >>> pipeline.stop()  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._values: dict[str, np.ndarray] = {}
        # Guarded by the condition, like the flag; never held while a frame is waited for, so that `run` may add others.
        self._runs: deque[FrameFuture] = deque()
        self._no_more_runs = False
        self._change = SafeCondition()

    def set_input(self, check: InputCheck, name: str, value: Any) -> None:
        """Set one input to a checked copy."""
        self._values[name] = snapshot(check.array(name, value))

    def inputs(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the inputs, or raise if one is missing."""
        for name in names:
            if name not in self._values:
                raise InputError(f"input {name!r} is not set; call set_input({name!r}, ...) before run()")
        return self._values

    def add(self, future: FrameFuture) -> None:
        """Note a run."""
        with self._change:
            self._runs.append(future)
            self._change.notify()

    def outputs(self, timeout: float | None) -> list[np.ndarray]:
        """Wait for the oldest run and return its outputs."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            oldest = self._oldest(deadline, timeout)
            if not oldest.wait(_seconds_until(deadline)):
                raise TimeoutError(f"frame {oldest.sequence} was not finished within {timeout} s")
            # Two threads may wait for the same frame: one gets it, and the other goes on to the next.
            if self._take(oldest):
                return list(oldest.outputs().values())

    def end(self) -> None:
        """Expect no more runs."""
        with self._change:
            self._no_more_runs = True
            self._change.notify_all()

    def after_fork(self) -> None:
        """Forget the runs in a forked process."""
        self._change = SafeCondition()  # a thread of the parent may hold its lock
        self.end()

    def _oldest(self, deadline: float | None, timeout: float | None) -> FrameFuture:
        """Wait for an unread run and return the oldest."""
        with self._change:
            # `run` may come from another thread later: without runs there is something to wait for until the pipeline
            # is closed.
            if not self._change.wait_for(lambda: self._runs or self._no_more_runs, _seconds_until(deadline)):
                raise TimeoutError(f"no output within {timeout} s")
            if not self._runs:
                raise PipelineClosed("the pipeline is closed and all outputs have been read")
            return self._runs[0]

    def _take(self, oldest: FrameFuture) -> bool:
        """Take a run; return False if another thread took it."""
        with self._change:
            if not self._runs or self._runs[0] is not oldest:
                return False
            self._runs.popleft()
            return True


def _seconds_until(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - monotonic())
