"""Effect of a thread that is busy in pure Python on the pipeline beside it, and the remedy.

Two stages of native code that takes 1 ms, on a core each.  A stage that comes back from it needs the interpreter; a
busy thread keeps it for the switch interval.  The remedy is ``Pipeline(..., switch_interval=...)``, which commands
choose by themselves.

latency_ms_*        from submit to the result, one frame at a time; 2 ms is what the stages take
frames_per_s        in a stream
interpreter_share   of the first stage's time, for which it waited for the interpreter, by its statistics
busy_share          work that the busy thread got done, over what it does alone with the standard interval
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
from report import Row, parser, percentile, report, usable_cores

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.devices.null import NullRuntime
from pipeline.scheduler import Pipeline

STAGE_S = 1e-3
# Seconds.  Python's own interval first.
INTERVALS = (5e-3, 0.5e-3, 0.1e-3)


class HashingRuntime(NullRuntime):
    """A device whose native code computes in the worker's thread, without the interpreter."""

    occupies_cores = True

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        trial = bytes(1 << 20)
        self.work = bytes(int(STAGE_S / min(time_hash(trial) for _ in range(20)) * len(trial)))

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Hash as many bytes as take a stage's time."""
        hashlib.sha256(self.work)
        return super().run(program, inputs)


def time_hash(content: bytes) -> float:
    """Return the seconds of hashing."""
    begin_s = perf_counter()
    hashlib.sha256(content)
    return perf_counter() - begin_s


def plan() -> Plan:
    """Return two stages, on a core each."""
    specs = [TensorSpec(name, (4,)) for name in "xab"]
    stages = [
        StagePlan(out.name, "null", (into,), (out,), seconds=STAGE_S, cores=(core,))
        for into, out, core in zip(specs, specs[1:], (usable_cores() * 2)[:2], strict=False)
    ]
    board = Board("busy", (Device("null", "null"),))
    return Plan("busy", "", board, (specs[0],), (specs[-1],), tuple(stages))


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
    frames = 100 if options.quick else 1000
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
    with Pipeline(plan(), create=HashingRuntime, switch_interval=interval) as running:
        for _ in running.map([frame] * 20):
            pass

        def measure_latency() -> float:
            begin_s = perf_counter()
            running.submit(frame).result()
            return perf_counter() - begin_s

        def measure_rate() -> float:
            begin_s = perf_counter()
            for _ in running.map([frame] * frames):
                pass
            return frames / (perf_counter() - begin_s)

        if interval is None:
            latencies, rate = [measure_latency() for _ in range(frames)], measure_rate()
            share = None
        else:
            with Busy().run() as busy:
                begin, turns = perf_counter(), busy.turns
                latencies, rate = [measure_latency() for _ in range(frames)], measure_rate()
                share = (busy.turns - turns) / (perf_counter() - begin) / undisturbed_rate
        stage = running.statistics().stages[0]
    return {
        "busy_thread": interval is not None,
        "switch_interval_ms": (interval or sys.getswitchinterval()) * 1e3,
        "latency_ms_p50": percentile(latencies, 0.5) * 1e3,
        "latency_ms_p99": percentile(latencies, 0.99) * 1e3,
        "frames_per_s": rate,
        "interpreter_share": stage.interpreter_share,
        "busy_share": share,
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    }


if __name__ == "__main__":
    main()
