import gc
import logging
import traceback
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import Plan
from pipeline.errors import BoardError, PipelineError, PlanError, StageError
from pipeline.scheduler import Pipeline
from pipeline.scheduler.frame import Frame
from tests.support.alive import collect

X = np.arange(4, dtype=np.float32)


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


def fail_on(*numbers: int, error: BaseException) -> Callable[[np.ndarray], Sequence[np.ndarray]]:
    def run(x: np.ndarray) -> Sequence[np.ndarray]:
        if x[0] in numbers:
            raise error
        return [x]

    return run


def keep(x: np.ndarray) -> Sequence[np.ndarray]:
    return [x]


@pytest.mark.parametrize("error", [ValueError("too hot"), SystemExit(3), KeyboardInterrupt(), MemoryError()], ids=repr)
def test_fault_3_an_error_reaches_its_frame_and_later_frames_go_on(
    chain: Callable[..., Plan], functions: Any, error: BaseException
) -> None:
    with Pipeline(chain(3), [keep, fail_on(2, 5, error=error), keep], create=functions) as running:
        futures = [running.submit(frame(number)) for number in range(8)]
        for number, future in enumerate(futures):
            if number not in {2, 5}:
                np.testing.assert_array_equal(future.result(30), frame(number))
                continue
            raised_errors = future.exception(30)
            assert isinstance(raised_errors, StageError)
            assert (raised_errors.stage, raised_errors.device, raised_errors.frame) == ("b", "d", number)
            assert raised_errors.__cause__ is error
            assert f"stage 'b' on device 'd' failed on frame {number}: {type(error).__name__}" in str(raised_errors)
        statistics = running.statistics()
    assert (statistics.submitted, statistics.delivered, statistics.failed) == (8, 6, 2)
    assert [stage.failed for stage in statistics.stages] == [0, 2, 0]
    assert [stage.skipped for stage in statistics.stages] == [0, 0, 2]


def test_the_traceback_of_the_device_is_kept(chain: Callable[..., Plan], functions: Any) -> None:
    with Pipeline(chain(1), [fail_on(0, error=ValueError("too hot"))], create=functions) as running:
        error = running.submit(frame(0)).exception(30)
    assert error is not None
    cause = error.__cause__
    assert cause is not None
    assert traceback.extract_tb(cause.__traceback__)[-1].line == "raise error"


def test_the_first_error_of_a_frame_wins_where_branches_fail_together(
    graph: Callable[..., Plan], functions: Any
) -> None:
    plan = graph({"a": ["x"], "b": ["x"], "c": ["a", "b"]}, outputs=["c"])
    codes = [fail_on(1, error=ValueError("a")), fail_on(1, error=ValueError("b")), lambda a, b: [a + b]]
    with Pipeline(plan, codes, create=functions) as running:
        futures = [running.submit(frame(number)) for number in range(3)]
        assert isinstance(futures[1].exception(30), StageError)
        np.testing.assert_array_equal(futures[2].result(30), 2 * frame(2))
        assert running.statistics().failed == 1


@pytest.mark.parametrize("copy", ["copy_in", "copy_out"])
def test_a_failing_copy_is_the_error_of_its_stage(chain: Callable[..., Plan], functions: Any, copy: str) -> None:
    def create(device: Device) -> Any:
        runtime = functions(device)
        setattr(runtime, copy, lambda _: (_ for _ in ()).throw(OSError("bus")))
        return runtime

    with Pipeline(chain(1), [keep], create=create) as running:
        for number in range(2):
            with pytest.raises(StageError, match=f"stage 'a' on device 'd' failed on frame {number}: OSError: bus"):
                running.submit(X).result(30)


def test_callbacks_cannot_break_a_worker(
    chain: Callable[..., Plan], functions: Any, gate: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def callback(error: BaseException) -> Callable[[Future[Any]], None]:
        def call(future: Future[Any]) -> None:
            raise error

        return call

    plan = chain(2, queue_depth=4)
    with caplog.at_level(logging.ERROR), Pipeline(plan, [gate, keep], create=functions) as running:
        for error in (ValueError("careless"), SystemExit(1), KeyboardInterrupt()):
            running.submit(X).add_done_callback(callback(error))
        # Not before: added to a future that is done, a callback runs in this thread, and may interrupt it.
        gate.open.set()
        np.testing.assert_array_equal(running.submit(X).result(30), X)
        assert running.statistics().delivered == 4


def test_a_callback_may_submit_but_not_wait_for_its_own_pipeline(chain: Callable[..., Plan]) -> None:
    second_try: list[Any] = []

    def resubmit(future: Future[Any]) -> None:
        try:
            second_try.append(running.submit(X))
            second_try.append(running.submit(X))
        except TimeoutError as error:
            second_try.append(error)

    with Pipeline(chain(1, in_flight=1)) as running:
        running.submit(X).add_done_callback(resubmit)
        running.submit(X)
    assert any("a callback must not wait for its own pipeline" in str(each) for each in second_try)


@pytest.mark.parametrize("broken_stage", [0, 1, 2])
def test_a_stage_that_cannot_be_loaded_is_told_by_the_constructor(
    chain: Callable[..., Plan], functions: Any, broken_stage: int
) -> None:
    codes: list[Any] = [keep] * 3
    codes[broken_stage] = OSError("no such library")
    with pytest.raises(PipelineError, match="on device 'd' cannot start: OSError: no such library") as raised_errors:
        Pipeline(chain(3), codes, create=functions)
    assert raised_errors.value.__cause__ is codes[broken_stage]
    openings = [what for what, _ in functions.log]
    assert openings.count("open") == openings.count("close") == broken_stage + 1, "what was opened was closed"


def test_our_own_errors_pass_unchanged(chain: Callable[..., Plan], functions: Any) -> None:
    error = BoardError("no such accelerator")
    with pytest.raises(BoardError) as raised_errors:
        Pipeline(chain(1), [error], create=functions)
    assert raised_errors.value is error
    with pytest.raises(BoardError, match="did you mean 'null'"):
        Pipeline(chain(1, kind="nul"))
    with pytest.raises(PlanError, match="2 codes were given for 1 stages"):
        Pipeline(chain(1), [None, None])


def test_a_device_that_cannot_be_closed_harms_nobody(
    chain: Callable[..., Plan], functions: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def create(device: Device) -> Any:
        runtime = functions(device)
        runtime.close = lambda: (_ for _ in ()).throw(OSError("stuck"))
        return runtime

    with Pipeline(chain(1), [keep], create=create) as running:
        running.submit(X).result(30)
    assert "device 'd' of stage 'a' could not be closed" in caplog.text


def test_failed_frames_free_their_tensors_without_the_garbage_collector(
    chain: Callable[..., Plan], functions: Any
) -> None:
    class Watched(np.ndarray):
        pass

    inputs: list[weakref.ref[Any]] = []

    def fail(x: np.ndarray) -> Sequence[np.ndarray]:
        product = x.view(Watched)
        inputs.append(weakref.ref(product))
        raise ValueError("too hot")

    collect()
    gc.disable()
    frame_count = sum(type(each) is Frame for each in gc.get_objects())
    try:
        with Pipeline(chain(1), [fail], create=functions) as running:
            for _ in range(3):
                assert isinstance(running.submit(X).exception(30), StageError)
        assert [reference() for reference in inputs] == [None] * 3
        assert sum(type(each) is Frame for each in gc.get_objects()) == frame_count
    finally:
        gc.enable()
