"""The four calls of the original proposal at the end of a pipeline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import PipelineClosed
from pipeline.scheduler import Pipeline

X = np.arange(4, dtype=np.float32)
PATIENCE = 10.0


@pytest.mark.parametrize("timeout", [1.0, 0, None])
def test_reading_ends_however_often_the_pipeline_was_closed(chain: Callable[..., Plan], timeout: float | None) -> None:
    """After two of them it was a busy loop without end."""
    outcome: list[BaseException] = []

    def read() -> None:
        try:
            running.get_output(timeout=timeout)
        except PipelineClosed as error:
            outcome.append(error)

    with Pipeline(chain(2)) as running:
        running.set_input("x", X)
        running.run()
        running.stop()
    np.testing.assert_array_equal(running.get_output(timeout=timeout)[0], X)
    for _ in range(2):
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(PATIENCE)
        assert not reader.is_alive()
        running.close()
    assert "all outputs have been read" in str(outcome[1])


def test_each_of_many_readers_gets_another_output_or_the_end(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    read: list[float] = []
    ends: list[BaseException] = []

    def reader() -> None:
        try:
            while True:
                read.append(running.get_output()[0][0])
        except PipelineClosed as error:
            ends.append(error)

    running = Pipeline(chain(1), [gate], create=functions)
    threads = [threading.Thread(target=reader) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.open.set()
    for number in range(20):
        running.set_input("x", X + number)
        running.run()
    running.stop()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(read) == list(range(20))
    assert len(ends) == 4


def test_a_read_that_timed_out_does_not_lose_the_output(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    with Pipeline(chain(1), [gate], create=functions) as running:
        running.set_input("x", X)
        with pytest.raises(TimeoutError, match="no output within 0"):
            running.get_output(timeout=0)
        running.run()
        with pytest.raises(TimeoutError, match="frame 0 was not finished within"):
            running.get_output(timeout=0.01)
        gate.open.set()
        np.testing.assert_array_equal(running.get_output(timeout=PATIENCE)[0], X)
