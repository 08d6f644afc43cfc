"""Frames that find no room."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import FrameDropped
from pipeline.scheduler import Admission, FrameFuture, Pipeline, Statistics


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


def adds_up(statistics: Statistics) -> bool:
    ends = statistics.delivered + statistics.failed + statistics.cancelled + sum(statistics.dropped.values())
    return statistics.submitted == ends + statistics.in_flight


def reasons(futures: list[FrameFuture]) -> list[str | None]:
    """For each frame why it was dropped, None if it was delivered."""
    errors = [future.exception(30) for future in futures]
    assert all(error is None or isinstance(error, FrameDropped) for error in errors)
    return [error.reason if isinstance(error, FrameDropped) else None for error in errors]


def overfill(
    plan: Plan, gate: Any, functions: Any, count: int, **options: Any
) -> tuple[Pipeline, list[FrameFuture], Statistics]:
    """Submit one frame that the only stage holds, one that waits in front of it, and `count` more."""
    running = Pipeline(plan, [gate], create=functions, **options)
    futures = [running.submit(frame(0))]
    gate.wait_entered()
    futures += [running.submit(frame(number + 1)) for number in range(count + 1)]
    statistics = running.statistics()
    gate.open.set()
    running.close()
    return running, futures, statistics


def test_latest_keeps_the_newest(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    running, futures, statistics = overfill(chain(1, queue_depth=1), gate, functions, 5, admission="latest")
    assert reasons(futures) == [None, None, "replaced", "replaced", "replaced", "replaced", None]
    assert [future.sequence for future in futures] == list(range(7))
    assert (statistics.submitted, statistics.in_flight, statistics.waiting) == (7, 3, 1)
    final_statistics = running.statistics()
    assert (final_statistics.submitted, final_statistics.delivered) == (7, 3)
    assert final_statistics.dropped == {"replaced": 4}
    error = futures[2].exception()
    assert isinstance(error, FrameDropped)
    assert (error.frame, str(error)) == (2, "frame 2 was dropped before it started: replaced")


def test_drop_oldest_keeps_a_line(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    running, futures, statistics = overfill(
        chain(1, queue_depth=1), gate, functions, 5, admission="drop-oldest", waiting=3
    )
    assert reasons(futures) == [None, None, "full", "full", None, None, None]
    assert statistics.waiting == 3
    assert dict(running.statistics().dropped) == {"full": 2}


def test_deadline_does_not_start_a_frame_that_would_be_late(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    with Pipeline(chain(1), [gate], create=functions, admission="deadline", deadline=1000.0) as running:
        gate.open.set()
        now_s = time.time()
        futures = [running.submit(frame(0), timestamp=now_s), running.submit(frame(1), timestamp=now_s - 2000)]
        assert reasons(futures) == [None, "late"]


def test_the_deadline_counts_planned_times_until_there_are_measured_ones(
    graph: Callable[..., Plan], functions: Any
) -> None:
    """The longest path takes 3 + 5 s by the plan; what was measured is next to nothing."""
    plan = graph(
        {"a": ["x"], "b": ["a"], "c": ["a"], "d": ["b", "c"]},
        outputs=["d"],
        seconds={"a": 1.0, "b": 2.0, "c": 5.0, "d": 2.0},
    )
    codes = [lambda x: [x], lambda x: [x], lambda x: [x], lambda x, y: [x]]
    with Pipeline(plan, codes, create=functions, admission="deadline", deadline=1000.0) as running:
        assert running.statistics().forecast_s == 8.0
        running.submit(frame(0)).result(30)
        assert running.statistics().forecast_s < 1.0


def test_the_forecast_counts_frames_that_are_in_the_way(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    plan = chain(2, seconds={"a": 0.0, "b": 10.0}, queue_depth=5)
    with Pipeline(plan, [lambda x: [x], gate], create=functions) as running:
        assert running.statistics().forecast_s == 10.0
        futures = [running.submit(frame(number)) for number in range(4)]
        gate.wait_entered()
        assert running.statistics().forecast_s == 50.0
        assert [future.cancel() for future in futures] == [False] * 4 or not all(each.running() for each in futures)
        gate.open.set()


@pytest.mark.parametrize("policy", ["latest", "drop-oldest", "deadline"])
def test_submit_returns_at_once_and_the_thread_that_makes_room_starts_what_waits(
    chain: Callable[..., Plan], functions: Any, gate: Any, policy: str
) -> None:
    deadline = 1000.0 if policy == "deadline" else math.inf
    plan = chain(1, queue_depth=1, in_flight=1)
    with Pipeline(plan, [gate], create=functions, admission=policy, deadline=deadline) as running:
        futures = [running.submit(frame(0)), running.submit(frame(1))]
        gate.wait_entered()
        assert running.statistics().waiting == 1
        gate.open.set()
        assert [future.result(30)[0] for future in futures] == [0, 1]


def test_a_cancelled_frame_leaves_the_line_at_once(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    with Pipeline(chain(1, queue_depth=1), [gate], create=functions, admission="drop-oldest", waiting=2) as running:
        held_frame = running.submit(frame(0))
        gate.wait_entered()
        queued_frame, *waiting_frames = [running.submit(frame(number)) for number in range(1, 4)]
        assert waiting_frames[0].cancel()
        assert not wait(waiting_frames, 0).not_done & {waiting_frames[0]}
        further = running.submit(frame(4))
        statistics = running.statistics()
        assert (statistics.waiting, statistics.cancelled, dict(statistics.dropped)) == (2, 1, {})
        gate.open.set()
        assert [each.result(30)[0] for each in (held_frame, queued_frame, waiting_frames[1], further)] == [0, 1, 3, 4]


def test_cancelling_frees_the_place_at_once(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    """In front of the first stage too: so a caller that cancels does not fill the pipeline."""
    with Pipeline(chain(1, queue_depth=2), [gate], create=functions) as running:
        running.submit(frame(0))
        gate.wait_entered()
        for number in range(100):
            future = running.submit(frame(number), timeout=0)
            assert future.cancel()
            assert wait([future], 0).done
        assert running.statistics().in_flight == 1
        gate.open.set()
    assert running.statistics().cancelled == 100


def test_dropped_frames_do_not_pile_up(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    with Pipeline(chain(1, queue_depth=1), [gate], create=functions, admission="latest") as running:
        futures = [running.submit(frame(number)) for number in range(1000)]
        statistics = running.statistics()
        assert statistics.in_flight - statistics.waiting <= 2
        assert sum(future.done() for future in futures) >= 997
        gate.open.set()


def test_map_leaves_dropped_frames_out(chain: Callable[..., Plan]) -> None:
    plan = chain(1, kind="simulated", seconds=0.002)
    with Pipeline(plan, admission="latest") as running:
        results = [result[0] for result in running.map(frame(number) for number in range(50))]
        statistics = running.statistics()
    assert results == sorted(results)
    assert len(results) == statistics.delivered == 50 - sum(statistics.dropped.values())


def test_books_add_up_at_every_moment(chain: Callable[..., Plan]) -> None:
    finish = threading.Event()
    mismatches: list[Statistics] = []

    def read() -> None:
        while not finish.is_set():
            if not adds_up(snapshot := running.statistics()):
                mismatches.append(snapshot)

    with Pipeline(chain(2), admission="latest") as running:
        reader = threading.Thread(target=read)
        reader.start()
        for number in range(2000):
            future = running.submit(frame(number), copy=False)
            if number % 7 == 0:
                future.cancel()
        finish.set()
        reader.join(30)
    assert not mismatches
    assert adds_up(running.statistics())
    assert running.statistics().in_flight == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "newest"}, "admission is 'newest'; it must be one of 'block', 'latest'"),
        ({"policy": "block", "waiting": 2}, "waiting is 2"),
        ({"policy": "latest", "waiting": -1}, "waiting is -1"),
        ({"policy": "deadline"}, "needs deadline=seconds"),
        ({"policy": "latest", "deadline": 1.0}, "nothing else does"),
        ({"policy": "deadline", "deadline": 0.0}, "above 0"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Admission(**options)


@pytest.mark.parametrize("drain", [True, False])
def test_waiting_frames_are_finished_by_close_and_cancelled_by_an_abrupt_one(
    chain: Callable[..., Plan], functions: Any, gate: Any, drain: bool
) -> None:
    running = Pipeline(chain(1, queue_depth=1), [gate], create=functions, admission="drop-oldest", waiting=3)
    futures = [running.submit(frame(0))]
    gate.wait_entered()
    futures += [running.submit(frame(number)) for number in range(1, 5)]
    futures[0].add_done_callback(lambda _: gate.open.set())
    if drain:
        gate.open.set()
    running.close(drain=drain)
    statistics = running.statistics()
    assert adds_up(statistics)
    assert (statistics.delivered, statistics.cancelled) == ((5, 0) if drain else (0, 4))
    assert all(future.done() for future in futures)


def test_async_submit_does_not_wait_with_a_dropping_policy(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    async def run() -> list[Any]:
        futures = [await running.submit_async(frame(number)) for number in range(6)]
        gate.open.set()
        return await asyncio.gather(*futures, return_exceptions=True)

    with Pipeline(chain(1, queue_depth=1), [gate], create=functions, admission="latest") as running:
        results = asyncio.run(run())
    assert [isinstance(result, FrameDropped) for result in results].count(True) >= 2
