"""map, and the calls of the original proposal."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import InputError, PipelineClosed, StageError
from pipeline.scheduler import Pipeline

X = np.arange(4, dtype=np.float32)


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


def test_map_is_ordered(chain: Callable[..., Plan], functions: Any) -> None:
    with Pipeline(chain(3), [lambda x: [x + 1]] * 3, create=functions) as running:
        results = list(running.map(frame(number) for number in range(200)))
    assert [result[0] for result in results] == [number + 3 for number in range(200)]


def test_map_of_nothing(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(1)) as running:
        assert list(running.map([])) == []


def test_map_takes_frames_only_as_there_are_places(chain: Callable[..., Plan]) -> None:
    taken_frames = itertools.count()

    def frames() -> Iterator[np.ndarray]:
        while True:
            next(taken_frames)
            yield X

    with Pipeline(chain(2, in_flight=5)) as running:
        results = running.map(frames())
        for number in range(100):
            next(results)
            assert next(taken_frames) <= (number + 1) + 5 + number + 1  # each look counts too
        results.close()


def test_closing_map_early_cancels_what_waits(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    def hold(x: np.ndarray) -> Any:
        return gate(x) if x[0] else [x]

    with Pipeline(chain(1, in_flight=3), [hold], create=functions) as running:
        results = running.map(frame(number) for number in range(100))
        np.testing.assert_array_equal(next(results), frame(0))
        gate.wait_entered()
        results.close()
        gate.open.set()
    statistics = running.statistics()
    assert statistics.submitted < 6
    assert statistics.cancelled == statistics.submitted - 2
    assert statistics.delivered == 2


def test_map_ends_with_the_first_error(chain: Callable[..., Plan], functions: Any) -> None:
    def fail(x: np.ndarray) -> Any:
        if x[0] == 3:
            raise ValueError("too hot")
        return [x]

    with Pipeline(chain(1), [fail], create=functions) as running:
        answers = []
        with pytest.raises(StageError, match="frame 3"):
            for result in running.map(frame(number) for number in range(10)):
                answers.append(result[0])
        assert answers == [0, 1, 2]
        np.testing.assert_array_equal(running.submit(X).result(30), X)


def test_map_times_out(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    with Pipeline(chain(1), [gate], create=functions) as running:
        with pytest.raises(TimeoutError, match=r"frame 0 was not finished within 0\.01 s"):
            list(running.map([X], timeout=0.01))
        gate.open.set()


def test_timestamp_and_metadata_travel_with_the_frame(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(2)) as running:
        future = running.submit(X, timestamp=12.5, metadata={"camera": 2})
        assert (future.timestamp, future.metadata, future.sequence) == (12.5, {"camera": 2}, 0)
        assert running.submit(X).timestamp > 1e9


def test_the_original_sequence(graph: Callable[..., Plan], functions: Any) -> None:
    plan = graph({"a": ["x"], "b": ["y", "a"]}, inputs=["x", "y"], outputs=["b", "a"])
    running = Pipeline(plan, [lambda x: [x + 1], lambda y, a: [y * a]], create=functions)
    for number in range(5):
        buffer = frame(number)
        running.set_input("x", buffer)
        running.set_input("y", frame(10))
        buffer[:] = -1
        running.run()
    held_frame = [running.get_output(timeout=30) for _ in range(5)]
    running.stop()
    for number, (b, a) in enumerate(held_frame):
        np.testing.assert_array_equal(a, frame(number + 1))
        np.testing.assert_array_equal(b, frame(10 * (number + 1)))
    with pytest.raises(PipelineClosed):
        running.get_output()
    with pytest.raises(PipelineClosed):
        running.run()


def test_inputs_stay_set(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(1)) as running:
        running.set_input("x", X)
        for _ in range(3):
            running.run()
        (first,), (second,), _ = [running.get_output(timeout=30) for _ in range(3)]
        first[:] = -1
        np.testing.assert_array_equal(second, X)


def test_fault_15_get_output_times_out_and_is_woken_by_arrival(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    with Pipeline(chain(1), [gate], create=functions) as running:
        with pytest.raises(TimeoutError, match=r"no output within 0\.01 s"):
            running.get_output(timeout=0.01)
        running.set_input("x", X)
        running.run()
        with pytest.raises(TimeoutError, match="frame 0 was not finished"):
            running.get_output(timeout=0.01)
        threading.Timer(0.05, gate.open.set).start()
        np.testing.assert_array_equal(running.get_output()[0], X)


def test_get_output_raises_a_frame_s_error_and_goes_on(chain: Callable[..., Plan], functions: Any) -> None:
    with Pipeline(chain(1), [lambda x: [1 / 0] if x[0] else [x]], create=functions) as running:
        for number in (1, 0):
            running.set_input("x", frame(number))
            running.run()
        with pytest.raises(StageError, match="ZeroDivisionError"):
            running.get_output(timeout=30)
        np.testing.assert_array_equal(running.get_output(timeout=30)[0], frame(0))


def test_close_wakes_get_output(chain: Callable[..., Plan]) -> None:
    running = Pipeline(chain(1))
    threading.Timer(0.05, running.close).start()
    with pytest.raises(PipelineClosed, match="all outputs have been read"):
        running.get_output(timeout=30)
    running.close()


def test_outputs_are_there_after_stop(chain: Callable[..., Plan]) -> None:
    running = Pipeline(chain(2))
    running.set_input("x", X)
    running.run()
    running.stop()
    np.testing.assert_array_equal(running.get_output(timeout=30)[0], X)


def test_fault_6_and_12_a_refused_input_is_not_set(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(1)) as running:
        for name, value in [("y", X), ("x", X.astype(np.int32)), ("x", X[:2])]:
            with pytest.raises(InputError):
                running.set_input(name, value)
        with pytest.raises(InputError, match=r"input 'x' is not set; call set_input\('x', \.\.\.\) before run\(\)"):
            running.run()
