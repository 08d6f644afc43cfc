from __future__ import annotations

import gc
import threading
from collections import deque

from pipeline.scheduler.trace import Trace, TraceEvent


def test_events_are_returned_by_start_whatever_the_order_in_which_they_were_noted() -> None:
    trace = Trace()
    trace.add("b", 0, "run", 3.0, 4.0, 1)
    trace.add("a", 0, "run", 1.0, 2.0)
    assert trace.events() == (TraceEvent("a", 0, "run", 1.0, 2.0, 0), TraceEvent("b", 0, "run", 3.0, 4.0, 1))
    trace.clear()
    assert (len(trace), trace.events()) == (0, ())


def test_the_oldest_events_make_room_for_the_newest() -> None:
    trace = Trace(limit=3)
    for number in range(5):
        assert trace.full == (number > 2)
        trace.add("a", number, "run", number, number + 1)
    assert [event.frame for event in trace.events()] == [2, 3, 4]


def test_events_may_be_read_while_others_are_noted() -> None:
    trace = Trace(limit=1000)
    finish = threading.Event()

    def note(stage: str) -> None:
        number = 0
        while not finish.is_set():
            trace.add(stage, number, "run", number, number + 1)
            number += 1

    threads = [threading.Thread(target=note, args=(stage,)) for stage in "ab"]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            assert all(event.end - event.start == 1 for event in trace.events())
    finally:
        finish.set()
        for thread in threads:
            thread.join(30)
    assert trace.full


def test_events_are_nothing_that_the_garbage_collector_goes_through() -> None:
    """Otherwise a long trace would make each full collection, and so single frames, slower and slower."""
    trace = Trace()
    for number in range(100):
        trace.add("a", number, "run", number + 0.5, number + 1.0)
    gc.collect()
    (stored,) = (value for value in vars(trace).values() if isinstance(value, deque))
    assert len(stored) == 100
    assert not any(gc.is_tracked(event) for event in stored)
