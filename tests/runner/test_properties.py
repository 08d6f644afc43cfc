"""Any legal stage graph, with any depths, replicas, speeds, failures and calls: every frame ends, and ends once.

The property of `tests/scheduler/test_properties.py`, of the C++ runner.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.board.board import Board, Device
from tests.support.arithmetic_bundles import ArithmeticCodes, save
from tests.support.arithmetic_graphs import SETTINGS, ArithmeticGraph, arithmetic_graphs
from tests.support.runner import OK, Books, Library, Result, RunnerPipeline

CALLS = ("submit", "submit", "submit", "submit", "next", "next", "cancel", "statistics")
CPU = Board("random", (Device("cpu"),))


class Case(NamedTuple):
    """One pipeline and what is done with it."""

    graph: ArithmeticGraph
    admission: str
    calls: list[tuple[str, int]]
    drain: bool


CASES = st.builds(
    Case,
    arithmetic_graphs(CPU),
    st.sampled_from(["block", "latest"]),
    st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 30)), min_size=4, max_size=40),
    st.booleans(),
)


class Log:
    """What was done with a pipeline, and what came of it."""

    def __init__(self) -> None:
        self.submitted: dict[int, int] = {}
        self.results: list[Result] = []
        self.cancelled: set[int] = set()

    def call(self, running: RunnerPipeline, call: str, argument: int) -> None:
        """Do one thing; what finds no room, or no frame, in time is left out."""
        try:
            if call == "submit":
                frame = np.array([argument % 16, len(self.submitted)])
                self.submitted[running.submit(frame, timeout=0.005)] = argument % 16
            elif call == "next":
                result = running.next(timeout=0.005)
                assert result is not None
                self.results.append(result)
            elif call == "cancel" and self.submitted:
                number = argument % len(self.submitted)
                self.cancelled |= {number} if running.cancel(number) else set()
            else:
                assert running.statistics().balance() == 0
        except TimeoutError:
            pass

    def check(self, case: Case, books: Books) -> None:
        """Compare each frame's end with the books, and with the plain computation."""
        numbers = [result.frame for result in self.results]
        assert numbers == sorted(set(numbers)), "out of order, or twice"
        assert not self.cancelled & set(numbers)
        for result in self.results:
            kind = self.submitted[result.frame]
            if result.status == OK:
                assert not case.graph.failing(kind)
                values = case.graph.reference(result.frame)
                assert {name: array.tolist() for name, array in result.arrays.items()} == {
                    spec.name: [kind, values[spec.name]] for spec in case.graph.plan.outputs
                }
            else:
                assert result.stage in case.graph.failing(kind)
                assert result.reason == "now and then"
        delivered = sum(result.status == OK for result in self.results)
        assert (books.submitted, books.delivered) == (len(self.submitted), delivered)
        assert (books.failed, books.in_flight, books.balance()) == (len(self.results) - delivered, 0, 0)
        assert books.cancelled >= len(self.cancelled)
        if case.admission == "block":
            assert books.dropped == 0


def check(case: Case, library: Library, codes: ArithmeticCodes, path: Path) -> None:
    save(case.graph.plan, case.graph.codes, codes, path)
    log = Log()
    with library.open(path, case.admission) as running:
        assert running.statistics().balance() == 0
        for call, argument in case.calls:
            log.call(running, call, argument)
        if case.drain:
            running.finish()
            while (result := running.next(timeout=60.0)) is not None:
                log.results.append(result)
        books = running.close()
    if case.drain:
        assert books.cancelled == len(log.cancelled)
    log.check(case, books)


@settings(max_examples=75, **SETTINGS)
@given(case=CASES)
def test_any_legal_pipeline_ends_every_frame_once(
    case: Case, library: Library, codes: ArithmeticCodes, tmp_path: Path
) -> None:
    check(case, library, codes, tmp_path / "case.bundle")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=5_000, **SETTINGS)
@given(case=CASES)
def test_five_thousand_legal_pipelines_end_every_frame_once(
    case: Case, library: Library, codes: ArithmeticCodes, tmp_path: Path
) -> None:
    check(case, library, codes, tmp_path / "case.bundle")
