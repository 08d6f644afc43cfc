"""`FrameFuture.outputs`: arrays by name, however many outputs there are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as WaitTimeout
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import StageError
from pipeline.scheduler import Pipeline
from tests.scheduler.conftest import LIMIT, make_graph

X = np.arange(4, dtype=np.float32)


def test_one_output_comes_by_its_name(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(2)) as running:
        future = running.submit(X)
        outputs = future.outputs(timeout=LIMIT)
    assert list(outputs) == ["b"]
    np.testing.assert_array_equal(outputs["b"], X)
    assert outputs["b"] is future.result()


def test_several_outputs_come_in_the_plans_order(functions: Any) -> None:
    plan = make_graph({"a": ["x"], "b": ["a"]}, outputs=("b", "a"))
    with Pipeline(plan, [lambda x: [x + 1], lambda a: [a * 2]], create=functions) as running:
        outputs = running.submit(X).outputs(timeout=LIMIT)
    assert list(outputs) == ["b", "a"]
    np.testing.assert_array_equal(outputs["a"], X + 1)
    np.testing.assert_array_equal(outputs["b"], (X + 1) * 2)


def test_a_frame_without_outputs_says_why(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    def fail(_: np.ndarray) -> np.ndarray:
        raise ValueError("by intention")

    with Pipeline(chain(2), [gate, fail], create=functions) as running:
        failed_frames = running.submit(X)
        with pytest.raises(WaitTimeout):
            failed_frames.outputs(timeout=0.01)
        future = running.submit(X)
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.outputs(timeout=LIMIT)
        gate.open.set()
        with pytest.raises(StageError, match="by intention"):
            failed_frames.outputs(timeout=LIMIT)
