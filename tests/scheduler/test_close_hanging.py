"""close() returns, whatever hangs, and wherever it is called from."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import FrameDropped, PipelineClosed, StageError, StageTimeout
from pipeline.scheduler import Pipeline

PATIENCE = 10.0
"""Seconds after which a call counts as hanging; nothing is measured by it."""


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


def returns(call: Callable[[], object]) -> bool:
    """Check that a call returns, made in a thread of its own: should it hang, the test does not."""
    ends = threading.Event()

    def run() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            call()
        ends.set()

    threading.Thread(target=run, daemon=True).start()
    return ends.wait(PATIENCE)


@pytest.fixture(autouse=True)
def busy_devices_are_no_news() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


@pytest.mark.parametrize("options", [{"timeout": 0.05}, {"drain": False}, {"timeout": 0}])
def test_a_second_close_does_not_wait_for_what_the_first_gave_up(
    chain: Callable[..., Plan], functions: Any, gate: Any, options: dict[str, Any]
) -> None:
    def use() -> None:
        with Pipeline(chain(2), [gate, gate], create=functions) as running:
            futures.append(running.submit(frame(0)))
            gate.wait_entered()
            running.close(**options)

    futures: list[Any] = []
    assert returns(use)
    assert isinstance(futures[0].exception(0), PipelineClosed)


def test_a_close_that_waits_ends_when_another_gives_up(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    running = Pipeline(chain(1), [gate], create=functions)
    running.submit(frame(0))
    gate.wait_entered()
    patient = threading.Thread(target=running.close)
    patient.start()
    running.close(timeout=0.05)
    patient.join(PATIENCE)
    assert not patient.is_alive()


def test_two_stages_that_hang_one_after_the_other_end_a_pipeline_that_shall_fail(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    """The watchdog ended with the first of them, and nobody gave up the other one."""

    def second(x: np.ndarray) -> Sequence[np.ndarray]:
        if x[0] == 0:
            held_frame.wait(PATIENCE)
            return gate(x)  # type: ignore[no-any-return]
        return [x]

    held_frame = threading.Event()
    codes = [lambda x: gate(x) if x[0] == 1 else [x], second]
    running = Pipeline(chain(2), codes, create=functions, stage_timeout=0.1, on_timeout="fail-pipeline")
    futures = [running.submit(frame(number)) for number in range(2)]
    threading.Timer(0.05, held_frame.set).start()
    for future in futures:
        assert isinstance(future.exception(PATIENCE), (StageTimeout, PipelineClosed))
    assert returns(running.close)


def test_a_failed_frame_that_stops_the_pipeline_does_not_wait_for_one_that_hangs_behind_it(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    def fail(x: np.ndarray) -> Sequence[np.ndarray]:
        gate.wait_entered()
        raise RuntimeError("no luck")

    codes = [lambda x: gate(x) if x[0] == 1 else [x], fail]
    running = Pipeline(chain(2), codes, create=functions, on_error="stop")
    futures = [running.submit(frame(number)) for number in range(3)]
    assert isinstance(futures[0].exception(PATIENCE), StageError)
    assert isinstance(futures[1].exception(PATIENCE), PipelineClosed)
    with pytest.raises(CancelledError):
        futures[2].result(PATIENCE)
    assert returns(running.close)


@pytest.mark.parametrize("drain", [True, False])
def test_the_callback_of_a_dropped_frame_may_close(
    chain: Callable[..., Plan], functions: Any, gate: Any, drain: bool
) -> None:
    running = Pipeline(chain(1, queue_depth=1), [gate], create=functions, admission="latest")
    running.submit(frame(0))
    gate.wait_entered()
    running.submit(frame(1))
    waiting_frame = running.submit(frame(2))
    waiting_frame.add_done_callback(lambda _: running.close(drain=drain))
    # Drops the one that waits, in this thread.
    assert returns(lambda: running.submit(frame(3)))
    assert isinstance(waiting_frame.exception(0), FrameDropped)
    gate.open.set()
    assert returns(running.close)
    statistics = running.statistics()
    assert statistics.in_flight == 0
    assert statistics.submitted == 4


@pytest.mark.parametrize("call", ["flush", "cancel"])
def test_the_callback_of_a_frame_that_is_taken_back_may_close(
    chain: Callable[..., Plan], functions: Any, gate: Any, call: str
) -> None:
    running = Pipeline(chain(1), [gate], create=functions)
    running.submit(frame(0))
    gate.wait_entered()
    waiting_frame = running.submit(frame(1))
    waiting_frame.add_done_callback(lambda _: running.close())
    assert returns(running.flush if call == "flush" else waiting_frame.cancel)
    gate.open.set()
    assert returns(running.close)
    assert running.statistics().in_flight == 0


def test_the_callback_of_a_frame_that_took_too_long_may_close(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    """It runs in the watchdog's thread, which nobody may wait for there."""
    running = Pipeline(chain(1), [gate], create=functions, stage_timeout=0.05, on_timeout="fail-pipeline")
    first = running.submit(frame(0))
    second = running.submit(frame(1))
    closings = threading.Event()

    def close(_: Any) -> None:
        running.close()
        closings.set()

    second.add_done_callback(close)
    assert isinstance(first.exception(PATIENCE), StageTimeout)
    assert closings.wait(PATIENCE)
    assert returns(running.close)


def test_a_stage_that_takes_too_long_ends_a_pipeline_that_stops_at_errors_too(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    """The frame that it was at was taken for one that is still to be finished."""
    options: dict[str, Any] = {"on_error": "stop", "on_timeout": "fail-pipeline", "stage_timeout": 0.05}
    running = Pipeline(chain(2), [gate, gate], create=functions, **options)
    futures = [running.submit(frame(number)) for number in range(2)]
    assert isinstance(futures[0].exception(PATIENCE), StageTimeout)
    assert futures[1].wait(PATIENCE)
    assert returns(running.close)


def test_a_device_that_cannot_be_opened_again_ends_a_pipeline_that_has_stopped(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    """Frames in front of the one that stopped it are still to be finished, until their worker breaks."""

    def create(device: Any) -> Any:
        if openings:
            raise OSError("no such device")
        return functions(device)

    def run(x: np.ndarray) -> Sequence[np.ndarray]:
        if x[0] == 0:
            return gate(x)  # type: ignore[no-any-return]
        gate.wait_entered()
        raise RuntimeError("no luck")

    openings: list[bool] = []
    running = Pipeline(chain(1, replicas=2), [run], create=create, on_error="stop", stage_timeout=0.2)
    openings.append(True)
    futures = [running.submit(frame(number)) for number in range(2)]
    assert isinstance(futures[0].exception(PATIENCE), StageTimeout)
    assert isinstance(futures[1].exception(PATIENCE), StageError)
    assert returns(running.close)
