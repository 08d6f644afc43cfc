"""Any legal stage graph, with any depths, replicas, speeds, failures and calls: every frame ends, and ends once.

The property of `tests/scheduler/test_properties.py`, of the C++ runner.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.core.board import Board, Device
from pipeline.core.plan import Plan, StagePlan, TensorSpec
from tests.support.arithmetic_bundles import MODULUS, ArithmeticCodes, Code, save
from tests.support.runner import OK, Books, Library, Result, RunnerPipeline


@dataclasses.dataclass(frozen=True)
class Case:
    """One pipeline and what is done with it."""

    reads: tuple[tuple[int, ...], ...]
    depths: tuple[int, ...]
    replicas: tuple[int, ...]
    in_flight: int
    admission: str
    codes: tuple[Code, ...]
    calls: tuple[tuple[str, int], ...]
    drain: bool

    @property
    def plan(self) -> Plan:
        """Stage n makes tensor n + 1; tensor 0 is the model input, and what nobody reads comes out."""
        specs = [TensorSpec(f"t{number}", (2,), "int64") for number in range(len(self.reads) + 1)]
        stages = tuple(
            StagePlan(
                f"s{number}",
                "cpu",
                tuple(specs[each] for each in reads),
                (specs[number + 1],),
                queue_depth=self.depths[number],
                replicas=self.replicas[number],
            )
            for number, reads in enumerate(self.reads)
        )
        read = {each for reads in self.reads for each in reads}
        outputs = tuple(spec for number, spec in enumerate(specs) if number not in read)
        return Plan("random", "", Board("random", (Device("cpu"),)), (specs[0],), outputs, stages, self.in_flight)

    def reference(self, value: int) -> dict[str, int]:
        """Return every tensor's value, one stage after the other."""
        values = [value]
        for reads, code in zip(self.reads, self.codes, strict=True):
            values.append(sum(values[each] for each in reads) * code.factor % MODULUS)
        return {f"t{number}": value for number, value in enumerate(values)}

    def failing(self, kind: int) -> set[str]:
        """Return the stages that fail on a kind of frames."""
        return {f"s{number}" for number, code in enumerate(self.codes) if kind in code.failing}


KINDS = st.frozensets(st.integers(0, 15), max_size=3)
CALLS = ("submit", "submit", "submit", "submit", "next", "next", "cancel", "statistics")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 6))
    reads = tuple(
        tuple(draw(st.lists(st.integers(0, number), min_size=1, max_size=3, unique=True))) for number in range(count)
    )

    def each(strategy: st.SearchStrategy[Any]) -> tuple[Any, ...]:
        return tuple(draw(st.lists(strategy, min_size=count, max_size=count)))

    return Case(
        reads=reads,
        depths=each(st.integers(1, 3)),
        replicas=each(st.sampled_from([1, 1, 2, 3])),
        in_flight=draw(st.integers(0, 5)),
        admission=draw(st.sampled_from(["block", "latest"])),
        codes=each(st.builds(Code, st.integers(1, 5), KINDS, KINDS)),
        calls=tuple(draw(st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 30)), min_size=4, max_size=40))),
        drain=draw(st.booleans()),
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
                assert not case.failing(kind)
                values = case.reference(result.frame)
                assert {name: array.tolist() for name, array in result.arrays.items()} == {
                    spec.name: [kind, values[spec.name]] for spec in case.plan.outputs
                }
            else:
                assert result.stage in case.failing(kind)
                assert result.reason == "now and then"
        delivered = sum(result.status == OK for result in self.results)
        assert (books.submitted, books.delivered) == (len(self.submitted), delivered)
        assert (books.failed, books.in_flight, books.balance()) == (len(self.results) - delivered, 0, 0)
        assert books.cancelled >= len(self.cancelled)
        if case.admission == "block":
            assert books.dropped == 0


def check(case: Case, library: Library, codes: ArithmeticCodes, path: Path) -> None:
    save(case.plan, case.codes, codes, path)
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


COMMON: Any = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


@settings(max_examples=150, **COMMON)
@given(case=cases())
def test_any_legal_pipeline_ends_every_frame_once(
    case: Case, library: Library, codes: ArithmeticCodes, tmp_path: Path
) -> None:
    check(case, library, codes, tmp_path / "case.bundle")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=5_000, **COMMON)
@given(case=cases())
def test_five_thousand_legal_pipelines_end_every_frame_once(
    case: Case, library: Library, codes: ArithmeticCodes, tmp_path: Path
) -> None:
    check(case, library, codes, tmp_path / "case.bundle")
