"""Whatever a callback raises ends that callback alone."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.scheduler import Pipeline
from tests.scheduler.conftest import LIMIT

X = np.arange(4, dtype=np.float32)


class Callbacks:
    """Two for each future: the first one leaves the program, the second one notes that it was called."""

    def __init__(self) -> None:
        self.called: list[Future[Any]] = []

    def add(self, future: Future[Any]) -> Future[Any]:
        future.add_done_callback(lambda _: sys.exit(3))
        future.add_done_callback(self.called.append)
        return future


def books_balance(running: Pipeline) -> bool:
    statistics = running.statistics()
    ends = statistics.delivered + statistics.failed + statistics.cancelled + sum(statistics.dropped.values())
    return statistics.in_flight == 0 and statistics.submitted == ends


def test_leaving_the_program_in_a_callback_loses_no_frame(
    chain: Callable[..., Plan], functions: Any, gate: Any, caplog: pytest.LogCaptureFixture
) -> None:
    callbacks = Callbacks()
    with caplog.at_level(logging.ERROR), Pipeline(chain(2), [gate, gate], create=functions) as running:
        futures = [callbacks.add(running.submit(X)) for _ in range(3)]
        gate.open.set()
        for future in futures:
            np.testing.assert_array_equal(future.result(LIMIT), X)
    assert books_balance(running)
    assert callbacks.called == futures
    assert "a callback of frame 1 raised SystemExit, which ended only the callback" in caplog.text


@pytest.mark.parametrize("end", ["cancel", "flush", "drop", "close", "abandon"])
def test_it_loses_none_that_is_taken_back_either(
    chain: Callable[..., Plan], functions: Any, gate: Any, end: str
) -> None:
    callbacks = Callbacks()
    running = Pipeline(chain(1, queue_depth=2), [gate], create=functions, admission="drop-oldest")
    running.submit(X)
    gate.wait_entered()
    futures = [callbacks.add(running.submit(X)) for _ in range(4)]
    if end == "cancel":
        for future in futures:
            future.cancel()
    elif end == "flush":
        assert running.flush() == len(futures)
    elif end == "drop":
        for _ in futures:
            running.submit(X)
    elif end == "close":
        threading.Timer(0.05, gate.open.set).start()
        running.close(drain=False)
    else:
        threading.Timer(0.05, gate.open.set).start()
        running.close(timeout=0)
    gate.open.set()
    running.close()
    assert not wait(futures, LIMIT).not_done
    assert books_balance(running)
    assert set(callbacks.called) == set(futures)


def test_a_callback_that_is_added_late_is_contained_too(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(1)) as running:
        future = running.submit(X)
        future.result(LIMIT)
        future.add_done_callback(lambda _: sys.exit(3))


def test_an_observer_that_raises_loses_no_frame(chain: Callable[..., Plan], caplog: pytest.LogCaptureFixture) -> None:
    def observe(*_: Any) -> None:
        sys.exit(3)

    with caplog.at_level(logging.ERROR), Pipeline(chain(1)) as running:
        end = running.observe(observe)
        np.testing.assert_array_equal(running.submit(X).result(LIMIT), X)
        end()
    assert "an observer of frame 0 failed" in caplog.text
