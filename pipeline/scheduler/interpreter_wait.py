"""InterpreterWait: seconds that a worker's runs waited for the interpreter.

A stage that computes in its worker's own thread has a core, or waits for one; Linux counts the seconds of both for each
thread.  The rest of a run is the wait for the interpreter behind its native code.  So frames pay for no clock: whoever
asks reads the system's counts.
"""

from __future__ import annotations

import math
import threading
from pathlib import Path


class InterpreterWait:
    """Waiting seconds of a worker and of those before it in its place."""

    __slots__ = ("_base_s", "_earlier_s", "_thread")

    def __init__(self) -> None:
        self._thread, self._base_s, self._earlier_s = 0, 0.0, 0.0

    def begin(self, busy_s: float) -> None:
        """Count from now on, for the calling thread, busy for `busy_s` so far."""
        thread = threading.get_native_id()
        if not math.isnan(scheduled_s := _scheduled_s(thread)):
            self._thread, self._base_s = thread, busy_s - scheduled_s

    def end(self, busy_s: float) -> None:
        """Keep the count of the calling thread, which ends."""
        self._thread, self._earlier_s = 0, self.seconds(busy_s)

    def absorb(self, wait: InterpreterWait, busy_s: float) -> None:
        """Add the count of another worker, which has ended."""
        self._earlier_s += wait.seconds(busy_s)

    def seconds(self, busy_s: float) -> float:
        """Return the seconds waited, at least: work between runs counts against them."""
        # Read once: the worker may end meanwhile.
        if not (thread := self._thread) or math.isnan(scheduled_s := _scheduled_s(thread)):
            return self._earlier_s
        return self._earlier_s + max(0.0, busy_s - scheduled_s - self._base_s)


def _scheduled_s(thread: int) -> float:
    """Return the seconds for which a thread had a core or waited for one; NaN if unknown."""
    try:
        running_ns, waiting_ns, _ = Path(f"/proc/self/task/{thread}/schedstat").read_text("ascii").split()
    except (OSError, ValueError):  # another system, a kernel without these counts, or the thread has ended
        return math.nan
    return (int(running_ns) + int(waiting_ns)) * 1e-9
