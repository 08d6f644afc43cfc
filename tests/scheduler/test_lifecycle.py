"""drain, flush, pause, resume; from anywhere, also during errors."""

import functools
import threading
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import FrameDropped, PipelineClosed, StageError
from pipeline.executor.bundle import Bundle
from pipeline.scheduler import Pipeline
from tests.scheduler.conftest import wait_until

X = np.arange(4, dtype=np.float32)


def test_drain_finishes_what_is_in_and_the_pipeline_goes_on(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(3, kind="simulated", seconds=0.002)) as running:
        running.drain()
        futures = [running.submit(X) for _ in range(9)]
        running.drain(timeout=30)
        assert all(future.done() for future in futures)
        running.submit(X).result(30)
        running.drain()


def test_drain_times_out(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    with Pipeline(chain(1), [gate], create=functions) as running:
        running.submit(X)
        with pytest.raises(TimeoutError, match=r"1 frames were not finished within 0\.01 s"):
            running.drain(timeout=0.01)
        gate.open.set()
        running.drain(timeout=30)


def test_flush_drops_what_no_stage_has(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    options: dict[str, Any] = {"admission": "drop-oldest", "waiting": 5}
    with Pipeline(chain(1, queue_depth=2), [gate], create=functions, **options) as running:
        futures = [running.submit(X)]
        gate.wait_entered()
        futures += [running.submit(X) for _ in range(6)]
        assert running.flush() == 6
        assert running.flush() == 0
        for number, future in enumerate(futures[1:], 1):
            error = future.exception(0)
            assert isinstance(error, FrameDropped)
            assert (error.frame, error.reason) == (number, "flushed")
        assert dict(running.statistics().dropped) == {"flushed": 6}
        gate.open.set()
        np.testing.assert_array_equal(futures[0].result(30), X)
        np.testing.assert_array_equal(running.submit(X).result(30), X)


def test_flush_frees_places_for_those_who_wait(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    with Pipeline(chain(1, queue_depth=1), [gate], create=functions) as running:
        running.submit(X)
        gate.wait_entered()
        queued_frame = running.submit(X)
        answers: list[Any] = []
        submitter = threading.Thread(target=lambda: answers.append(running.submit(X)))
        submitter.start()
        wait_until(lambda: running.statistics().blocked_callers)
        assert running.flush() == 1
        submitter.join(30)
        assert isinstance(queued_frame.exception(0), FrameDropped)
        gate.open.set()
        np.testing.assert_array_equal(answers[0].result(30), X)


def holds_up(running: Pipeline) -> bool:
    statistics = running.statistics()
    return statistics.blocked_callers + statistics.waiting > 0


def test_pause_starts_nothing_and_resume_goes_on(chain: Callable[..., Plan], functions: Any) -> None:
    for admission in ("block", "drop-oldest"):
        with Pipeline(chain(2), [lambda x: [x]] * 2, create=functions, admission=admission) as running:
            running.submit(X).result(30)
            running.pause()
            running.pause()
            answers: list[Any] = []
            submitter = threading.Thread(
                target=lambda answers=answers, running=running: answers.append(running.submit(X))
            )
            submitter.start()
            wait_until(functools.partial(holds_up, running))
            assert running.statistics().stages[0].frames_in == 1
            running.drain(timeout=30)
            running.resume()
            running.resume()
            submitter.join(30)
            np.testing.assert_array_equal(answers[0].result(30), X)


def test_close_resumes_a_paused_pipeline_to_finish_what_is_in(chain: Callable[..., Plan]) -> None:
    running = Pipeline(chain(1), admission="drop-oldest")
    running.pause()
    future = running.submit(X)
    running.close()
    np.testing.assert_array_equal(future.result(0), X)
    running.pause()
    running.resume()
    assert running.flush() == 0
    running.drain()


CALLS: dict[str, Callable[[Pipeline], object]] = {
    "drain": lambda running: running.drain(timeout=30),
    "flush": lambda running: running.flush(),
    "pause and resume": lambda running: [call() for call in (running.pause, running.resume)],
    "swap": lambda running: running.swap(_same(running)),
    "statistics": lambda running: running.statistics(),
    "close": lambda running: running.close(),
}


def _same(running: Pipeline) -> Any:
    return Bundle(running.plan, (None,) * len(running.plan.stages))


@pytest.mark.parametrize("call", CALLS)
def test_every_call_may_come_from_a_callback(chain: Callable[..., Plan], call: str) -> None:
    outcome: list[Any] = []
    finish = threading.Event()

    def callback(_: Any) -> None:
        try:
            CALLS[call](running)
            outcome.append(None)
        except TimeoutError as error:
            outcome.append(error)
        finish.set()

    running = Pipeline(chain(2))
    futures = [running.submit(X) for _ in range(3)]
    futures[1].add_done_callback(callback)
    assert finish.wait(30)
    running.close()
    assert not wait(futures, 30).not_done
    assert call == "drain" or outcome == [None]


@pytest.mark.parametrize("call", CALLS)
def test_every_call_may_come_from_many_threads_and_during_errors(
    chain: Callable[..., Plan], functions: Any, call: str
) -> None:
    def sometimes(x: np.ndarray) -> Any:
        if x[0] % 3 == 0:
            raise ValueError("now and then")
        return [x]

    running = Pipeline(chain(2), [sometimes] * 2, create=functions)
    errors: list[BaseException] = []

    def use() -> None:
        try:
            for number in range(20):
                running.submit(np.full(4, number, np.float32))
                CALLS[call](running)
        except PipelineClosed as error:
            if call != "close":
                errors.append(error)
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    running.close()
    assert not errors
    statistics = running.statistics()
    ends = statistics.delivered + statistics.failed + statistics.cancelled + sum(statistics.dropped.values())
    assert (statistics.submitted, statistics.in_flight) == (ends, 0)


def test_on_error_stop_finishes_what_is_before_and_ends_the_rest(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    """Frame 2 fails in the first stage while frame 1 is in the second."""

    def fail(x: np.ndarray) -> Any:
        if x[0] == 2:
            gate.wait_entered()
            gate.wait_entered()
            raise ValueError("too hot")
        return [x]

    def hold(x: np.ndarray) -> Any:
        return gate(x)

    plan = chain(2, replicas={"a": 1, "b": 2}, queue_depth=4)
    with Pipeline(plan, [fail, hold], create=functions, on_error="stop") as running:
        futures = [running.submit(np.full(4, number, np.float32)) for number in range(5)]
        futures[3].add_done_callback(lambda _: None)
        error = futures[2].exception(0) if futures[2].done() else None
        while running.error is None:
            threading.Event().wait(0.001)
        with pytest.raises(PipelineClosed, match="'test' has stopped: stage 'a' on device 'd' failed on frame 2"):
            running.submit(X)
        gate.open.set()
        assert [future.result(30)[0] for future in futures[:2]] == [0, 1]
        error = futures[2].exception(30)
        assert isinstance(error, StageError)
        assert running.error is error
        assert not wait(futures, 30).not_done
        for future in futures[3:]:
            assert future.cancelled() or isinstance(future.exception(), PipelineClosed)
    statistics = running.statistics()
    assert (statistics.delivered, statistics.in_flight) == (2, 0)
    assert statistics.failed + statistics.cancelled == 3


def test_on_error_stop_keeps_the_traceback_and_wakes_those_who_wait(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    def fail(x: np.ndarray) -> Any:
        gate(x)
        raise ValueError("too hot")

    with Pipeline(chain(1, queue_depth=1), [fail], create=functions, on_error="stop") as running:
        first, second = running.submit(X), running.submit(X)
        gate.wait_entered()
        raised_errors: list[BaseException] = []

        def submit() -> None:
            try:
                running.submit(X)
            except PipelineClosed as error:
                raised_errors.append(error)

        submitter = threading.Thread(target=submit)
        submitter.start()
        wait_until(lambda: running.statistics().blocked_callers)
        gate.open.set()
        submitter.join(30)
        assert raised_errors[0].__cause__ is first.exception(30) is running.error
        assert second.cancelled()
        cause = running.error.__cause__ if running.error else None
        assert cause is not None
        assert cause.__traceback__ is not None
