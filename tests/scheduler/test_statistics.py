import dataclasses
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_plan import StagePlan
from pipeline.scheduler import Percentiles, Pipeline, Trace
from pipeline.scheduler.statistics import RECENT, Durations, StageCounters, percentiles, summarise_stage

X = np.arange(4, dtype=np.float32)


def test_fault_19_statistics_are_immutable_snapshots(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    with Pipeline(chain(2), [lambda x: [x], gate], create=functions) as running:
        futures = [running.submit(X) for _ in range(3)]
        gate.wait_entered()
        earlier_statistics = running.statistics()
        gate.open.set()
        for future in futures:
            future.result(30)
        later_statistics = running.statistics()
    assert (earlier_statistics.submitted, earlier_statistics.delivered, earlier_statistics.in_flight) == (3, 0, 3)
    assert (later_statistics.submitted, later_statistics.delivered, later_statistics.in_flight) == (3, 3, 0)
    assert not later_statistics.dropped
    with pytest.raises(dataclasses.FrozenInstanceError):
        later_statistics.delivered = 0  # type: ignore[misc]
    with pytest.raises(TypeError):
        later_statistics.dropped["full"] = 1  # type: ignore[index]


def test_statistics_of_a_new_pipeline_are_zero(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(1)) as running:
        statistics = running.statistics()
    assert statistics.submitted == statistics.in_flight == 0
    assert statistics.elapsed_s == statistics.frames_per_s == 0.0
    assert statistics.latency_s == Percentiles()
    assert statistics.stages[0].busy == 0.0


def test_stages_are_counted_apart(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(3, kind="simulated", seconds={"a": 0.001, "b": 0.004, "c": 0.0})) as running:
        for _ in running.map([X] * 20):
            pass
        statistics = running.statistics()
    a, b, c = statistics.stages
    assert [stage.name for stage in statistics.stages] == ["a", "b", "c"]
    assert [(stage.frames_in, stage.frames_out, stage.queue_length) for stage in (a, b, c)] == [(20, 20, 0)] * 3
    assert 1 >= b.busy > a.busy > c.busy >= 0
    assert b.run_s.p50 > a.run_s.p50 > c.run_s.p50
    assert b.run_s.p50 <= b.run_s.p95 <= b.run_s.p99
    assert b.wait_s.p50 > c.wait_s.p50, "frames pile up in front of the slowest"
    assert statistics.latency_s.p50 >= b.run_s.p50
    assert statistics.frames_per_s == pytest.approx(20 / statistics.elapsed_s)


def test_statistics_are_read_while_frames_run(chain: Callable[..., Plan]) -> None:
    finish = threading.Event()
    mismatches: list[Any] = []

    def read() -> None:
        while not finish.is_set():
            snapshot = running.statistics()
            ends = snapshot.delivered + snapshot.failed + snapshot.cancelled + sum(snapshot.dropped.values())
            if snapshot.submitted != ends + snapshot.in_flight or snapshot.in_flight < 0:
                mismatches.append(snapshot)

    with Pipeline(chain(2)) as running:
        reader = threading.Thread(target=read)
        reader.start()
        for _ in running.map([X] * 2000, copy=False):
            pass
        finish.set()
        reader.join(30)
    assert not mismatches
    assert running.statistics().delivered == 2000


def test_percentiles_are_durations_that_occurred() -> None:
    assert percentiles([]) == Percentiles(0.0, 0.0, 0.0)
    assert percentiles([2.0]) == Percentiles(2.0, 2.0, 2.0)
    assert percentiles([float(number) for number in range(100, 0, -1)]) == Percentiles(50.0, 95.0, 99.0)


@pytest.mark.parametrize(
    ("seconds", "elapsed_s", "busy"),
    [
        ([4.0], 8.0, 0.5),
        ([8.0], 8.0, 1.0),
        # The mean of replicas.
        ([4.0, 4.0], 8.0, 0.5),
        ([8.0, 0.0], 8.0, 0.5),
        ([8.0, 4.0, 0.0, 0.0], 8.0, 0.375),
        ([8.0, 8.0], 8.0, 1.0),
        # The clock is read a little earlier than the counters.
        ([9.0], 8.0, 1.0),
        ([4.0, 4.0], 0.0, 0.0),
        ([0.0], 8.0, 0.0),
    ],
)
def test_busy_is_a_share_of_all_replicas(seconds: list[float], elapsed_s: float, busy: float) -> None:
    counters = [StageCounters() for _ in seconds]
    for worker, busy_s in zip(counters, seconds, strict=True):
        worker.count_run(wait=100.0, copy=busy_s / 4, run=busy_s * 3 / 4)
    stage = StagePlan("s", "d", (), (), replicas=len(seconds))
    statistics = summarise_stage(stage, counters, 0, elapsed_s)
    assert (statistics.busy, statistics.busy_s, statistics.replicas) == (busy, sum(seconds), len(seconds))


def test_durations_keep_the_newest() -> None:
    durations = Durations()
    for number in range(RECENT + 10):
        durations.add(float(number))
    assert durations.percentiles() == percentiles([float(number) for number in range(10, RECENT + 10)])


def test_trace_follows_each_frame_over_all_stages(chain: Callable[..., Plan]) -> None:
    trace = Trace()
    with Pipeline(chain(3), trace=trace) as running:
        for _ in range(2):
            running.submit(X).result(30)
    events = trace.events()
    assert len(events) == len(trace)
    for number in range(2):
        mine = [(event.stage, event.kind) for event in events if event.frame == number]
        assert mine == [
            *[("a", "queue"), ("a", "copy"), ("a", "run"), ("a", "copy")],
            *[("b", "queue"), ("b", "run")],
            *[("c", "queue"), ("c", "copy"), ("c", "run"), ("c", "copy")],
        ]
    assert all(event.start <= event.end <= time.perf_counter() for event in events)
    assert [event.start for event in events] == sorted(event.start for event in events)
    trace.clear()
    assert not trace.events()


def test_trace_is_bounded(chain: Callable[..., Plan]) -> None:
    trace = Trace(limit=10)
    with Pipeline(chain(2), trace=trace) as running:
        for _ in running.map([X] * 50):
            pass
    assert len(trace) == 10
    assert {event.frame for event in trace.events()} <= {47, 48, 49}


def test_fault_8_waiting_uses_no_processor(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    """Starved, stalled and full: who spins or polls uses a second of processor time in a second of waiting."""
    with Pipeline(chain(3, in_flight=4), [lambda x: [x], gate, lambda x: [x]], create=functions) as running:
        for _ in range(4):
            running.submit(X)
        gate.wait_entered()
        begin_s = time.process_time()
        with pytest.raises(TimeoutError):
            running.submit(X, timeout=1.0)
        processor_s = time.process_time() - begin_s
        gate.open.set()
    # Who polls or spins uses nearly all of the second; the rest leaves room for a loaded machine.
    assert processor_s < 0.4


# The limit is less than one array of NumPy's per frame.
@pytest.mark.parametrize(
    ("frames", "limit"), [(25_000, 2e6), pytest.param(100_000, 5e6, marks=pytest.mark.slow)], ids=["fast", "slow"]
)
def test_fault_5_memory_is_flat_over_many_frames(chain: Callable[..., Plan], frames: int, limit: float) -> None:
    """And threads and file handles are what they were."""
    process = psutil.Process(os.getpid())
    threads, handles = threading.active_count(), process.num_fds()
    with Pipeline(chain(3)) as running:
        for _ in running.map(itertools_repeat(1000), copy=False):
            pass
        begin_s = process.memory_info().rss
        for _ in running.map(itertools_repeat(frames), copy=False):
            pass
        growth = process.memory_info().rss - begin_s
        assert running.statistics().delivered == 1000 + frames
    assert growth < limit
    assert (threading.active_count(), process.num_fds()) == (threads, handles)


def itertools_repeat(times: int) -> Any:
    return (X for _ in range(times))


def test_fault_5_tensors_are_dropped_as_soon_as_nobody_reads_them(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    """One frame through three stages: when the last runs, only its own input is left."""
    import weakref

    class Watched(np.ndarray):
        pass

    alive: list[weakref.ref[Any]] = []

    def make(x: np.ndarray) -> Any:
        product = (x + 1).view(Watched)
        alive.append(weakref.ref(product))
        return [product]

    def last(x: np.ndarray) -> Any:
        departures.append([reference() is not None for reference in alive])
        return [x * 2]

    departures: list[list[bool]] = []
    with Pipeline(chain(3), [make, make, last], create=functions) as running:
        running.submit(X).result(30)
        running.submit(X).result(30)
        assert departures == [[False, True], [False, False, False, True]]
        deadline = time.monotonic() + 30
        while any(reference() is not None for reference in alive) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert not any(reference() is not None for reference in alive), "an idle worker keeps nothing"
