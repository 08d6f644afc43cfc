"""Any legal stage graph, with any depths, replicas, speeds, failures and calls: every frame ends, and ends once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import wait
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import FrameDropped, PipelineClosed, StageError
from pipeline.executor.bundle import Bundle
from pipeline.executor.devices.null import NullRuntime
from pipeline.scheduler import FrameFuture, Pipeline
from tests.support.arithmetic_graphs import MODULUS, SETTINGS, ArithmeticGraph, arithmetic_graphs

LIMIT = 30.0
"""Seconds after which a case counts as a deadlock; nothing is measured by it."""


class Arithmetic(NullRuntime):
    """A null device that computes, so that a mistaken tensor shows."""

    def load(self, stage: StagePlan, code: Any) -> Any:
        return code, len(stage.outputs)

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        code, outputs = program
        frames = {int(array[0]) for array in inputs}
        assert len(frames) == 1, "frames were mixed"
        (frame,) = frames
        if frame in code.slow:
            threading.Event().wait(0.0005)
        if frame in code.failing:
            raise ValueError("now and then")
        value = sum(int(array[1]) for array in inputs) * code.factor % MODULUS
        return [np.array([frame, value])] * outputs


class Case(NamedTuple):
    """One pipeline and what is done with it."""

    graph: ArithmeticGraph
    options: dict[str, Any]
    calls: list[tuple[str, int]]
    drain: bool


CALLS = ("submit", "submit", "submit", "submit", "submit", "cancel", "flush", "pause", "resume", "swap", "drain")
TWO_MEMORIES = Board("random", tuple(Device(name, "null", memory=name) for name in "mn"))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    policy = draw(st.sampled_from(["block", "block", "latest", "drop-oldest", "deadline"]))
    options: dict[str, Any] = {"admission": policy, "on_error": draw(st.sampled_from(["skip", "skip", "stop"]))}
    if policy == "deadline":
        options["deadline"] = draw(st.sampled_from([0.001, 1000.0]))
    if draw(st.booleans()):
        options["stage_timeout"] = 1000.0
    return Case(
        draw(arithmetic_graphs(TWO_MEMORIES)),
        options,
        draw(st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 30)), min_size=4, max_size=24)),
        draw(st.booleans()),
    )


def check(case: Case) -> None:
    """Run a case and compare every frame's end with the books and with the plain computation."""
    running = Pipeline(case.graph.plan, case.graph.codes, create=Arithmetic, **case.options)
    futures: list[FrameFuture] = []
    version = 1
    for call, argument in case.calls:
        if call == "submit":
            frame = np.array([argument % 16, argument % 16 * 7])
            with contextlib.suppress(TimeoutError, PipelineClosed):
                futures.append(running.submit(frame, metadata=version, timeout=0.01))
        elif call == "cancel":
            if futures:
                futures[argument % len(futures)].cancel()
        elif call == "swap":
            codes = [code._replace(factor=code.factor * (argument % 4 + 1)) for code in case.graph.codes]
            with contextlib.suppress(PipelineClosed):
                running.swap(Bundle(case.graph.plan, codes))
                version = argument % 4 + 1
        elif call == "drain":
            running.drain(timeout=LIMIT)
        else:
            getattr(running, call)()
    running.resume()
    running.close(drain=case.drain)
    assert not wait(futures, LIMIT).not_done, "a frame never ended"
    compare(case, running, futures)


def compare(case: Case, running: Pipeline, futures: Sequence[FrameFuture]) -> None:
    """Check each future, and the sums."""
    ends: dict[str, int] = dict.fromkeys(("delivered", "dropped", "failed", "cancelled"), 0)
    for number, future in enumerate(futures):
        assert future.sequence == number
        end = kind(case, future)
        ends[end] += 1
    books = running.statistics()
    assert (books.submitted, books.in_flight, books.waiting) == (len(futures), 0, 0)
    assert ends == {
        "delivered": books.delivered,
        "dropped": sum(books.dropped.values()),
        "failed": books.failed,
        "cancelled": books.cancelled,
    }


def kind(case: Case, future: FrameFuture) -> str:
    """Return how a frame has ended, after checking its result or its error."""
    if future.cancelled():
        return "cancelled"
    error = future.exception(0)
    if error is None:
        result = future.result(0)
        outputs = [spec.name for spec in case.graph.plan.outputs]
        arrays_by_name = result if len(outputs) > 1 else {outputs[0]: result}
        frame = int(next(iter(arrays_by_name.values()))[0])
        values = case.graph.reference(frame * 7, future.metadata)
        assert {name: int(array[1]) for name, array in arrays_by_name.items()} == {
            name: values[name] for name in outputs
        }
        return "delivered"
    if isinstance(error, FrameDropped):
        assert error.frame == future.sequence
        return "dropped"
    assert isinstance(error, StageError | PipelineClosed)
    return "failed"


@settings(max_examples=150, **SETTINGS)
@given(case=cases())
def test_any_legal_pipeline_ends_every_frame_once(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=10_000, **SETTINGS)
@given(case=cases())
def test_ten_thousand_legal_pipelines_end_every_frame_once(case: Case) -> None:
    check(case)
