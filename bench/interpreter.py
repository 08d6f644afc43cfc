"""Effect of a thread that is busy in pure Python on the pipeline beside it, and the remedy.

Two simulated stages of 1 ms, one frame at a time.  A stage that comes back from its device needs the interpreter; a
busy thread keeps it for the switch interval.  The remedy is ``Pipeline(..., switch_interval=...)``.

latency_ms_*   from submit to the result; 2 ms is what the stages take
busy_share     work that the busy thread got done, over what it does alone with the standard interval
"""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import numpy as np
from efficiency import plan
from report import Row, parser, percentile, report

from pipeline.scheduler import Pipeline

GRAPH = {"a": (1, ["x"]), "b": (1, ["a"])}
# Seconds.  Python's own interval first.
INTERVALS = (5e-3, 0.5e-3, 0.1e-3)


class Busy:
    """A thread in a loop of pure Python."""

    def __init__(self) -> None:
        self.turns, self._end = 0, False
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._end:
            self.turns += 1

    @contextmanager
    def run(self) -> Iterator[Busy]:
        """Run meanwhile."""
        self._thread.start()
        try:
            yield self
        finally:
            self._end = True
            self._thread.join()


def main() -> None:
    options = parser(__doc__).parse_args()
    frames = 200 if options.quick else 1000
    undisturbed_rate = pace_alone(0.5 if options.quick else 2.0)
    rows = [measure(frames, None, 0.0), *(measure(frames, interval, undisturbed_rate) for interval in INTERVALS)]
    report("A busy Python thread beside the pipeline", rows, __doc__ or "", options.json)


def pace_alone(seconds: float) -> float:
    """Return the turns per second of the busy thread, nothing else running."""
    with Busy().run() as busy:
        threading.Event().wait(seconds)
        return busy.turns / seconds


def measure(frames: int, interval: float | None, undisturbed_rate: float) -> Row:
    """Return the latencies with a busy thread beside, and without if there is no `interval`."""
    latencies = []
    frame = np.zeros(4, np.float32)
    with Pipeline(plan(GRAPH), switch_interval=interval) as running:
        for _ in running.map([frame] * 20):
            pass

        def measure_latency() -> float:
            begin_s = perf_counter()
            running.submit(frame).result()
            return perf_counter() - begin_s

        if interval is None:
            latencies = [measure_latency() for _ in range(frames)]
            share = None
        else:
            with Busy().run() as busy:
                begin, turns = perf_counter(), busy.turns
                latencies = [measure_latency() for _ in range(frames)]
                share = (busy.turns - turns) / (perf_counter() - begin) / undisturbed_rate
    return {
        "busy_thread": interval is not None,
        "switch_interval_ms": (interval or sys.getswitchinterval()) * 1e3,
        "latency_ms_p50": percentile(latencies, 0.5) * 1e3,
        "latency_ms_p99": percentile(latencies, 0.99) * 1e3,
        "busy_share": share,
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    }


if __name__ == "__main__":
    main()
