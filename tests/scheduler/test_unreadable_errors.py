"""A stage's exception whose own text cannot be had costs its frame, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import Plan
from pipeline.errors import PipelineClosed, PipelineError, StageError, describe_error, reason
from pipeline.scheduler import Pipeline


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


class NoText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307 - that is the point


def fail_on_1(error: Exception) -> Callable[[np.ndarray], Sequence[np.ndarray]]:
    def run(x: np.ndarray) -> Sequence[np.ndarray]:
        if x[0] == 1:
            raise error
        return [x]

    return run


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


@pytest.mark.parametrize(("error", "reason"), [(Unreadable(), "ZeroDivisionError"), (NoText(), "TypeError")])
def test_it_fails_its_frame_and_later_frames_go_on(
    chain: Callable[..., Plan], functions: Any, error: Exception, reason: str
) -> None:
    with Pipeline(chain(1), [fail_on_1(error)], create=functions) as running:
        futures = [running.submit(frame(number)) for number in range(3)]
        raised_errors = futures[1].exception(30)
        np.testing.assert_array_equal(futures[2].result(30), frame(2))
    assert isinstance(raised_errors, StageError)
    assert raised_errors.__cause__ is error
    assert str(raised_errors).endswith(
        f"{type(error).__name__}: (its text cannot be read: its __str__ raises {reason})"
    )


def test_it_stops_a_pipeline_that_shall_stop(chain: Callable[..., Plan], functions: Any) -> None:
    with Pipeline(chain(1), [fail_on_1(Unreadable())], create=functions, on_error="stop") as running:
        assert isinstance(running.submit(frame(1)).exception(30), StageError)
        with pytest.raises((PipelineClosed, StageError), match="its text cannot be read"):
            for _ in range(1000):
                running.submit(frame(0)).result(30)


def test_a_device_that_does_not_open_is_named(chain: Callable[..., Plan], functions: Any) -> None:
    def create(device: Device) -> Any:
        runtime = functions(device)

        def load(*_: object) -> Any:
            raise Unreadable

        runtime.load = load
        return runtime

    with pytest.raises(PipelineError, match=r"cannot start: Unreadable: \(its text cannot be read"):
        Pipeline(chain(1), [lambda x: [x]], create=create)


def test_readable_errors_are_described_by_kind_and_text() -> None:
    assert describe_error(ValueError("too hot")) == "ValueError: too hot"
    assert describe_error(ValueError("too hot"), kind=False) == "too hot"
    assert describe_error(Unreadable(), kind=False).startswith("(its text cannot be read")


@pytest.mark.parametrize(
    ("error", "line", "expected"),
    [
        (ValueError("too hot"), -1, "too hot"),
        (ValueError("Traceback:\n  here\nValueError: too hot\n\n"), -1, "ValueError: too hot"),
        (ValueError("\ntoo hot\n  at node 3"), 0, "too hot"),
        (ValueError(" \n"), -1, "ValueError"),
        (Unreadable(), -1, "(its text cannot be read: its __str__ raises ZeroDivisionError)"),
    ],
)
def test_the_reason_is_one_line(error: Exception, line: int, expected: str) -> None:
    assert reason(error, line=line) == expected
