"""Arguments are checked at the door, before anything has happened."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pipeline.core import arguments
from pipeline.core.plan.plan import Plan
from pipeline.errors import ArgumentError, PipelineError, StageTimeout
from pipeline.scheduler import Pipeline, Trace

X = np.arange(4, dtype=np.float32)
NO_TIMES = [-1, -1e-9, math.nan, -math.inf, "x", b"1", [1], True, 10**400, 1j, datetime.now(tz=timezone.utc)]
FOR_EVER = [math.inf, 1e300, sys.maxsize, np.float64(math.inf)]


def arrays_by_name(value: object) -> str:
    return type(value).__name__


@pytest.fixture
def full(chain: Callable[..., Plan], functions: Any, gate: Any) -> Pipeline:
    """Has no room: one frame is held in the stage, another waits in front of it."""
    running = Pipeline(chain(1, queue_depth=1), [gate], create=functions)
    running.set_input("x", X)
    running.run()
    gate.wait_entered()
    running.submit(X)
    return running


CALLS: dict[str, Callable[[Pipeline, Any], object]] = {
    "submit": lambda running, timeout: running.submit(X, timeout=timeout),
    "map": lambda running, timeout: running.map([X], timeout=timeout),
    "run": lambda running, timeout: running.run(timeout=timeout),
    "get_output": lambda running, timeout: running.get_output(timeout=timeout),
    "drain": lambda running, timeout: running.drain(timeout=timeout),
    "close": lambda running, timeout: running.close(timeout=timeout),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_timeout_that_is_none_is_refused_and_leaves_no_trace(full: Pipeline, gate: Any, call: str) -> None:
    for timeout in NO_TIMES:
        with pytest.raises(ArgumentError, match=r"timeout is .*; it must be .* to wait as long as it takes"):
            CALLS[call](full, timeout)
    assert not full.closed
    assert full.statistics().submitted == 2
    gate.open.set()
    full.close()
    assert full.statistics().delivered == 2


@pytest.mark.parametrize("timeout", FOR_EVER, ids=arrays_by_name)
@pytest.mark.parametrize("call", CALLS)
def test_an_endless_timeout_waits_as_long_as_it_takes(full: Pipeline, gate: Any, call: str, timeout: float) -> None:
    gate.open.set()
    result = CALLS[call](full, timeout)
    if call == "map":
        assert len(list(result)) == 1  # type: ignore[call-overload]
    full.close()
    statistics = full.statistics()
    assert statistics.delivered == statistics.submitted


@pytest.mark.parametrize("timestamp", [datetime.now(tz=timezone.utc), "now", 10**400, math.nan, math.inf, True])
@pytest.mark.parametrize("admission", ["deadline", "block"])
def test_a_timestamp_that_is_none_does_not_get_into_the_line(
    chain: Callable[..., Plan], timestamp: Any, admission: str
) -> None:
    """It stayed first in line, and every later frame met its error."""
    options: dict[str, Any] = {"admission": admission} | ({"deadline": 10.0} if admission == "deadline" else {})
    with Pipeline(chain(1), **options) as running:
        with pytest.raises(ArgumentError, match=r"timestamp is .*; it must be seconds as time.time\(\) gives them"):
            running.submit(X, timestamp=timestamp)
        with pytest.raises(ArgumentError, match="timestamp is"):
            asyncio.run(running.submit_async(X, timestamp=timestamp))
        np.testing.assert_array_equal(running.submit(X).result(10), X)
        assert running.statistics().submitted == 1


@pytest.mark.parametrize("timestamp", [0, -5.5, np.float32(7), Fraction(1, 2), 1_700_000_000])
def test_numbers_of_any_type_are_timestamps(chain: Callable[..., Plan], timestamp: Any) -> None:
    with Pipeline(chain(1)) as running:
        assert running.submit(X, timestamp=timestamp).timestamp == float(timestamp)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("stage_timeout", [0, -1, math.nan, "1", True, 10**400, {"a": "x"}, {"a": math.nan}, {"a": 0}, [1]]),
        ("admission", ["newest", 3, None, ["block"]]),
        ("waiting", [-1, 1.5, "2", None, True]),
        ("deadline", [0, -1.0, math.nan, "soon", None, 1.0]),
        ("on_error", ["ignore", None, 1]),
        ("on_timeout", ["retry", None]),
        ("switch_interval", [0, -1, math.nan, math.inf, "x", 1e9]),
    ],
)
def test_an_option_that_is_none_is_refused_by_name(chain: Callable[..., Plan], option: str, values: list[Any]) -> None:
    interval = sys.getswitchinterval()
    for value in values:
        with pytest.raises(ArgumentError, match=option):
            Pipeline(chain(1), **{option: value})
    assert sys.getswitchinterval() == interval


@pytest.mark.parametrize("limit", [0, -1, 1.5, "x", None, math.inf, True])
def test_the_size_of_a_trace_is_a_count(limit: Any) -> None:
    with pytest.raises(ArgumentError, match=r"limit is .*; it must be a whole number, at least 1"):
        Trace(limit)


@pytest.mark.parametrize("limit", FOR_EVER, ids=arrays_by_name)
def test_a_stage_without_end_has_no_limit(chain: Callable[..., Plan], functions: Any, gate: Any, limit: float) -> None:
    """It killed the watchdog, and other stages had no limit either then."""
    plan = chain(2)
    codes = [lambda x: [x], lambda x: gate(x) if x[0] else [x]]
    with Pipeline(plan, codes, create=functions, stage_timeout={"a": limit, "b": 0.05}) as running:
        assert running.submit(X * 0).result(10)[0] == 0
        assert isinstance(running.submit(X + 1).exception(10), StageTimeout)
        gate.open.set()


def test_values_that_cannot_be_shown_are_described() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("not today")

    with pytest.raises(ArgumentError, match="timeout is a Odd; it must be a number of seconds"):
        arguments.time_limit("timeout", Odd())
    with pytest.raises(PipelineError, match="must be a whole number"):
        arguments.count("waiting", "9" * 5000, 0)
