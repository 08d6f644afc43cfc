"""Inputs: those that may enter, and that they come out as they were."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import InputError
from pipeline.scheduler import Pipeline
from pipeline.system.memory import snapshot

X = np.arange(4, dtype=np.float32)

WRONG = {
    "unknown name": ({"z": X, "y": X}, "no input is called 'z'; the inputs are x, y"),
    "near name": ({"x": X, "yy": X}, "did you mean 'y'"),
    "missing name": ({"x": X}, r"no value for the input 'y'; the inputs are x: float32\[4\], y: float32\[4\]"),
    "too many": ({"x": X, "y": X, "w": X}, "no input is called 'w'"),
    "dtype": ({"x": X, "y": X.astype(np.float64)}, r"wrong dtype .*'y': float64\[4\] given, float32\[4\] expected"),
    "byte order": ({"x": X, "y": X.astype(">f4")}, "wrong dtype for the input 'y': >f4"),
    "rank": ({"x": X, "y": X[None]}, r"wrong rank .*float32\[1, 4\] given, float32\[4\] expected"),
    "shape": ({"x": X[:3], "y": X}, r"wrong shape for the input 'x': float32\[3\] given, float32\[4\] expected"),
    "not by name": (X, "give the inputs by name: there are 2: x, y"),
}


@pytest.mark.parametrize("case", WRONG)
def test_fault_6_and_12_wrong_inputs_are_refused_and_leave_no_trace(graph: Callable[..., Plan], case: str) -> None:
    inputs, message = WRONG[case]
    with Pipeline(graph({"a": ["x", "y"]}, inputs=["x", "y"], outputs=["a"], queue_depth=1, in_flight=1)) as running:
        for _ in range(3):  # more than there are places
            with pytest.raises(InputError, match=message) as raised_errors:
                running.submit(inputs)
            assert raised_errors.value.exit_status == 2
        assert running.statistics().submitted == 0
        future = running.submit({"x": X, "y": X}, timeout=0)
        assert future.sequence == 0
        np.testing.assert_array_equal(future.result(30), X)


def test_one_input_needs_no_name(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(2)) as running:
        np.testing.assert_array_equal(running.submit(X).result(30), X)
        np.testing.assert_array_equal(running.submit({"x": X}).result(30), X)


def test_one_output_is_an_array_and_several_are_by_name(graph: Callable[..., Plan]) -> None:
    with Pipeline(graph({"a": ["x"], "b": ["y"]}, inputs=["x", "y"], outputs=["b", "a"])) as running:
        result = running.submit({"y": X + 1, "x": X}).result(30)
    assert list(result) == ["b", "a"], "the plan's order"
    np.testing.assert_array_equal(result["a"], X)
    np.testing.assert_array_equal(result["b"], X + 1)


def test_the_caller_may_reuse_its_buffer_at_once(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    with Pipeline(chain(1), [gate], create=functions) as running:
        buffer = X.copy()
        futures = []
        for value in range(3):
            buffer[:] = value
            futures.append(running.submit(buffer))
        buffer[:] = -1
        gate.open.set()
        assert [future.result(30)[0] for future in futures] == [0, 1, 2]


def test_fault_2_results_never_change(chain: Callable[..., Plan], functions: Any) -> None:
    held_frame = []
    with Pipeline(chain(2), [lambda x: [x + 1], lambda x: [x * 2]], create=functions) as running:
        for value in range(50):
            held_frame.append(running.submit(np.full(4, value, np.float32)).result(30))
    for value, result in enumerate(held_frame):
        np.testing.assert_array_equal(result, np.full(4, (value + 1) * 2, np.float32))


@pytest.mark.parametrize("view", [slice(None), slice(1, 3)], ids=["the input", "a part of it"])
def test_results_are_kept_apart_from_arrays_passed_by_reference(
    chain: Callable[..., Plan], functions: Any, view: slice
) -> None:
    with Pipeline(chain(1), [lambda x: [x[view]]], create=functions) as running:
        mine = X.copy()
        result = running.submit(mine, copy=False).result(30)
        mine[:] = -1
        np.testing.assert_array_equal(result, X[view])


def test_an_output_that_is_an_input_is_kept_apart_too(graph: Callable[..., Plan]) -> None:
    with Pipeline(graph({"a": ["x"]}, outputs=["x", "a"])) as running:
        mine = X.copy()
        result = running.submit(mine, copy=False).result(30)
        mine[:] = -1
        np.testing.assert_array_equal(result["x"], X)


def test_arrays_pass_by_reference_when_asked(chain: Callable[..., Plan], functions: Any) -> None:
    sightings: list[np.ndarray] = []

    def look(x: np.ndarray) -> Sequence[np.ndarray]:
        sightings.append(x)
        return [x + 1]

    with Pipeline(chain(1), [look], create=functions) as running:
        mine = X.copy()
        running.submit(mine, copy=False).result(30)
        running.submit(mine).result(30)
    assert sightings[0] is mine
    assert not np.shares_memory(sightings[1], mine)


@pytest.mark.parametrize(
    "array",
    [
        X,
        np.float32(3),
        np.zeros((0, 4)),
        np.arange(24).reshape(2, 3, 4).T,
        np.ones(3, bool),
        np.ones(5, np.complex64)[::2],
    ],
    ids=["plain", "scalar", "empty", "transposed", "bool", "strided"],
)
def test_snapshot_is_equal_aligned_and_contiguous(array: Any) -> None:
    array = np.asarray(array)
    copies = [snapshot(array) for _ in range(20)]
    for copy in copies:
        np.testing.assert_array_equal(copy, array)
        assert copy.dtype == array.dtype
        assert copy.flags.c_contiguous
        assert copy.flags.writeable
        assert copy.ctypes.data % 64 == 0 or not copy.size
        assert not np.shares_memory(copy, array)


def test_what_is_like_an_array_is_taken_as_one(chain: Callable[..., Plan]) -> None:
    class Like:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return X

    with Pipeline(chain(1)) as running:
        np.testing.assert_array_equal(running.submit(Like()).result(30), X)
        with pytest.raises(InputError, match="wrong dtype"):
            running.submit([0.0, 1.0, 2.0, 3.0])
