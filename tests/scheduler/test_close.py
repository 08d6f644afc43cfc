"""The end of a pipeline."""

import itertools
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import PipelineClosed
from pipeline.scheduler import Pipeline, Trace
from tests.scheduler.conftest import LIMIT, Gate
from tests.support.at_step import AtStep

X = np.arange(4, dtype=np.float32)


def test_leaving_the_block_finishes_what_is_in(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(3, kind="simulated", seconds=0.002)) as running:
        futures = [running.submit(X) for _ in range(9)]
        while_running = running.closed
    assert not while_running
    assert running.closed
    for future in futures:
        np.testing.assert_array_equal(future.result(0), X)


def test_leaving_it_by_an_error_gives_up_what_is_in(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    with pytest.raises(RuntimeError, match="mine"), Pipeline(chain(2), [gate, gate], create=functions) as running:
        futures = [running.submit(X) for _ in range(3)]
        gate.wait_entered()
        futures[0].add_done_callback(lambda _: gate.open.set())
        raise RuntimeError("mine")
    assert wait(futures, 30).not_done == set()
    with pytest.raises(PipelineClosed, match="'test' was closed before this frame was finished"):
        futures[0].result(0)
    for future in futures[1:]:
        with pytest.raises(CancelledError):
            future.result(0)
    statistics = running.statistics()
    assert (statistics.submitted, statistics.failed, statistics.cancelled, statistics.in_flight) == (3, 1, 2, 0)


def test_a_stuck_device_does_not_hold_up_the_end(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    running = Pipeline(chain(2), [gate, gate], create=functions)
    future = running.submit(X)
    gate.wait_entered()
    with pytest.warns(ResourceWarning, match="still busy in their device: 'a'; their threads end when"):
        running.close(drain=False)
    assert isinstance(future.exception(0), PipelineClosed)


def test_close_waits_for_frames_no_longer_than_told(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    running = Pipeline(chain(1), [gate], create=functions)
    futures = [running.submit(X), running.submit(X)]
    gate.wait_entered()
    with pytest.warns(ResourceWarning):
        running.close(timeout=0.05)
    assert isinstance(futures[0].exception(0), PipelineClosed)
    assert futures[1].cancelled()


def test_close_may_be_called_again_from_anywhere(chain: Callable[..., Plan]) -> None:
    running = Pipeline(chain(2))
    running.submit(X)
    threads = [threading.Thread(target=running.close, kwargs={"drain": bool(number % 2)}) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    running.close()
    running.stop()
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("drain", [True, False])
def test_a_callback_may_close_its_pipeline(chain: Callable[..., Plan], drain: bool) -> None:
    running = Pipeline(chain(3))
    futures = [running.submit(X) for _ in range(4)]
    closing = running.submit(X)
    closing.add_done_callback(lambda _: running.close(drain=drain))
    later_futures: list[Future[Any]] = []
    try:
        while True:
            later_futures.append(running.submit(X))
    except PipelineClosed:
        pass
    assert wait([*futures, closing, *later_futures], 30).not_done == set()
    running.close()
    statistics = running.statistics()
    assert statistics.submitted == 5 + len(later_futures)
    assert statistics.submitted == statistics.delivered + statistics.cancelled + statistics.failed
    assert not drain or statistics.delivered == statistics.submitted


def test_a_closed_pipeline_takes_no_frames(chain: Callable[..., Plan]) -> None:
    running = Pipeline(chain(1))
    running.close()
    with pytest.raises(PipelineClosed, match="it takes no more frames"):
        running.submit(X)
    with pytest.raises(PipelineClosed):
        next(running.map([X]))
    assert running.statistics().submitted == 0
    assert "closed" in repr(running)


@pytest.mark.parametrize("drain", [True, False])
def test_close_wakes_those_who_wait_at_the_entrance(
    chain: Callable[..., Plan], functions: Any, gate: Any, drain: bool
) -> None:
    running = Pipeline(chain(1, queue_depth=1), [gate], create=functions)
    errors: list[BaseException] = []

    def submit() -> None:
        try:
            running.submit(X)
        except PipelineClosed as error:
            errors.append(error)

    futures = [running.submit(X)]
    gate.wait_entered()
    futures.append(running.submit(X))
    threads = [threading.Thread(target=submit) for _ in range(3)]
    for thread in threads:
        thread.start()
    closer = threading.Thread(target=running.close, kwargs={"drain": drain})
    closer.start()
    for thread in threads:
        thread.join(30)
    gate.open.set()
    closer.join(30)
    assert len(errors) == 3
    assert wait(futures, 30).not_done == set()
    assert running.statistics().submitted == 2


def test_a_waiting_frame_can_be_cancelled_and_one_at_work_cannot(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    with Pipeline(chain(1), [gate], create=functions) as running:
        first, second = running.submit(X), running.submit(X)
        gate.wait_entered()
        assert not first.cancel()
        assert second.cancel()
        gate.open.set()
        third = running.submit(X)
        np.testing.assert_array_equal(first.result(30), X)
        np.testing.assert_array_equal(third.result(30), X)
    statistics = running.statistics()
    assert (statistics.submitted, statistics.delivered, statistics.cancelled) == (3, 2, 1)
    assert wait([second], 30).not_done == set()


def test_devices_are_opened_and_closed_in_their_thread(chain: Callable[..., Plan], functions: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Pipeline(chain(3), [lambda x: [x]] * 3, create=functions) as running:
            running.submit(X).result(30)
    names = [what for what, _ in functions.log]
    assert names.count("open") == names.count("close") == 3


class BrokenTrace(Trace):
    """Breaks the workers of a stage, whose books are no part of what a frame may fail on."""

    def add(self, stage: str, *_: Any) -> None:
        if stage == "b":
            raise ZeroDivisionError


def test_a_worker_that_breaks_ends_the_pipeline_and_tells(chain: Callable[..., Plan]) -> None:
    """No such fault is known; should there be one, nobody waits for ever."""
    with Pipeline(chain(2), trace=BrokenTrace()) as running:
        error = running.submit(X).exception(30)
        assert "a worker of the pipeline 'test' broke: ZeroDivisionError" in str(error)
        with pytest.raises(PipelineClosed):
            running.submit(X)


def pause_during_close(plan: Plan, functions: Any, step: int) -> bool:
    """Pause a pipeline that is closed at a step of that; return whether there is such a step."""
    gate = Gate()
    running = Pipeline(plan, [gate], create=functions, admission="drop-oldest", waiting=4)
    futures = [running.submit(X) for _ in range(6)]
    gate.wait_entered()
    closer = threading.Thread(target=running.close)

    def close_meanwhile() -> None:
        closer.start()
        # It may have to wait for the pause; if it does not, it has begun the end by then.
        closer.join(0.05)

    with AtStep("pause", step, close_meanwhile) as at_step:
        running.pause()
    gate.open.set()
    if at_step.has_called:
        assert not wait(futures, LIMIT).not_done
    running.close(drain=False)
    return at_step.has_called


def test_a_pause_does_not_undo_a_close_at_the_same_moment(chain: Callable[..., Plan], functions: Any) -> None:
    """Frames that waited never started, and the close waited for them."""
    steps = itertools.takewhile(
        lambda step: pause_during_close(chain(1, queue_depth=1), functions, step), itertools.count(1)
    )
    assert len(list(steps)) > 1
