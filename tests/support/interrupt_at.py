"""Interrupts at a certain step, for tests of what Ctrl-C may cost."""

from __future__ import annotations

import linecache
import signal
import sys
from types import FrameType
from typing import Any

# Not in all there are: what interrupts a destructor is lost, in Python itself.
MODULES = ("/pipeline/scheduler/", "/pipeline/io/", "/queue.py", "/concurrent/futures/_base.py", "/threading.py")


class InterruptAt:
    """Sends this process a SIGINT in front of the n-th line that the calling thread runs in these modules."""

    def __init__(self, number: int) -> None:
        self._rest = number

    def __enter__(self) -> InterruptAt:  # noqa: PYI034 - Self is newer than the oldest Python
        self._previous_trace = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._previous_trace)

    @property
    def sent(self) -> bool:
        """True if there were as many lines."""
        return self._rest <= 0

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and _may_interrupt(frame):
            self._rest -= 1
            if self._rest == 0:
                signal.raise_signal(signal.SIGINT)
        return self._trace


def _may_interrupt(frame: FrameType) -> bool:
    # The line of a "with" is met again where the lock is released, and there Python serves no signal.
    name = frame.f_code.co_filename
    return any(part in name for part in MODULES) and not linecache.getline(name, frame.f_lineno).strip().startswith(
        "with "
    )
