"""State is a value per stream: each stream is computed as a loop over its frames alone would."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import wait
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec, decode, encode
from pipeline.core.plan.state import State
from pipeline.errors import PipelineClosed, PlanError, StageError
from pipeline.executor.bundle import Bundle
from pipeline.executor.devices.null import NullRuntime
from pipeline.scheduler import FrameFuture, Pipeline
from tests.support.alive import collect
from tests.support.arithmetic_graphs import SETTINGS

LIMIT = 30.0
MODULUS = 1_000_003
FIRST = 5
STREAMS = ("left", "right", "")


def spec(name: str) -> TensorSpec:
    return TensorSpec(name, (2,), "int64")


def plan(*, outputs: Sequence[str] = ("z",), initial: tuple[float, ...] = (FIRST,), **stage_b: Any) -> Plan:
    """Return a -> b -> c, where b keeps the state h."""
    board = Board("test", tuple(Device(name, "null", memory=name) for name in "mn"))
    a = StagePlan("a", "m", (spec("x"),), (spec("a"),))
    b = StagePlan("b", "n", (spec("h"), spec("a")), (spec("y"), spec("hn")), **stage_b)
    c = StagePlan("c", "m", (spec("y"),), (spec("z"),))
    states = (State(spec("h"), "hn", initial),)
    return Plan("test", "", board, (spec("x"),), tuple(map(spec, outputs)), (a, b, c), states=states)


def step(state: int, value: int) -> int:
    return (state * 31 + value) % MODULUS


class Recurrence(NullRuntime):
    """A null device that computes stage b's recurrence, and fails where its code says so for a frame's value."""

    def load(self, stage: StagePlan, code: Any) -> Any:
        return stage.name, code

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        name, failing = program
        value = int(inputs[-1][1])
        if value in failing:
            raise ValueError("now and then")
        if value % 5 == 0:
            threading.Event().wait(0.0003)
        if name != "b":
            return [inputs[0].copy()]
        state = step(int(inputs[0][1]), value)
        return [np.array([state, value]), np.array([value, state])]


def results(running: Pipeline, values: Sequence[int], stream: str = "") -> list[int]:
    futures = [running.submit(np.array([0, value]), stream=stream) for value in values]
    return [int(future.outputs(LIMIT)["z"][0]) for future in futures]


def loop(values: Sequence[int]) -> list[int]:
    state, outputs = FIRST, []
    for value in values:
        state = step(state, value)
        outputs.append(state)
    return outputs


NEVER: tuple[frozenset[int], ...] = (frozenset(),) * 3
CALLS = (*["submit"] * 6, "cancel", "flush", "pause", "resume", "reset", "swap")


@settings(max_examples=60, **SETTINGS)
@given(
    st.sampled_from(["block", "latest", "drop-oldest"]),
    st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 30)), min_size=6, max_size=40),
    st.tuples(*[st.frozensets(st.integers(0, 30), max_size=2)] * 3),
)
def test_interleaved_streams_equal_loops(
    policy: str, calls: list[tuple[str, int]], failing: tuple[frozenset[int], ...]
) -> None:
    """Drops, cancellations, failures up to the stage, resets and swaps begin a stream anew, and nothing else."""
    frames: list[tuple[FrameFuture, str, int, int]] = []
    epochs: dict[str, int] = dict.fromkeys(STREAMS, 0)
    running = Pipeline(plan(), failing, create=Recurrence, admission=policy)
    for call, argument in calls:
        stream = STREAMS[argument % len(STREAMS)]
        if call == "submit":
            with contextlib.suppress(TimeoutError):
                frame = running.submit(np.array([0, argument]), stream=stream, timeout=0.02)
                frames.append((frame, stream, argument, epochs[stream]))
        elif call == "cancel" and frames:
            frames[argument % len(frames)][0].cancel()
        elif call == "reset":
            running.reset(stream)
            epochs[stream] += 1
        elif call == "swap":
            with contextlib.suppress(PipelineClosed):
                running.swap(Bundle(plan(), failing))
            epochs = {name: epoch + 1 for name, epoch in epochs.items()}
        elif call in {"flush", "pause", "resume"}:
            getattr(running, call)()
    running.resume()
    running.close()
    assert not wait([frame for frame, *_ in frames], LIMIT).not_done
    compare(frames, failing)


def compare(frames: Sequence[tuple[FrameFuture, str, int, int]], failing: Sequence[frozenset[int]]) -> None:
    """Compare with a loop over each stream in which whatever does not pass stage b is a gap."""
    states: dict[tuple[str, int], int] = {}
    for future, stream, value, epoch in sorted(frames, key=lambda frame: frame[0].sequence):
        begun = not future.cancelled() and (future.exception() is None or isinstance(future.exception(), StageError))
        key = stream, epoch
        state = step(states.pop(key, FIRST), value)
        if begun and value not in failing[0] | failing[1]:
            states[key] = state
        if not future.cancelled() and future.exception() is None:
            assert future.result()[0] == state


def test_a_gap_begins_anew_and_a_later_failure_does_not() -> None:
    failing = (frozenset({1}), frozenset({2}), frozenset({3}))
    with Pipeline(plan(), failing, create=Recurrence) as running:
        futures = [running.submit(np.array([0, value])) for value in (10, 1, 11, 12, 2, 13, 3, 14)]
        ends = [None if future.exception(LIMIT) else int(future.result()[0]) for future in futures]
    first, second, third = loop([10]), loop([11, 12]), loop([13, 3, 14])
    assert ends == [*first, None, *second, None, third[0], None, third[2]]


def test_reset_lets_frames_in_flight_finish() -> None:
    with Pipeline(plan(), NEVER, create=Recurrence) as running:
        before = [running.submit(np.array([0, value]), stream="s") for value in (1, 5, 10)]
        running.reset("s")
        after = [running.submit(np.array([0, value]), stream="s") for value in (2, 3)]
        assert [int(future.result(LIMIT)[0]) for future in before] == loop([1, 5, 10])
        assert [int(future.result(LIMIT)[0]) for future in after] == loop([2, 3])
        other = results(running, [1], "t")
        running.reset(None)
        assert results(running, [1], "t") == other == loop([1])


def test_the_longest_unused_of_many_streams_begins_anew() -> None:
    with Pipeline(plan(), NEVER, create=Recurrence) as running:
        results(running, [7], "first")
        results(running, [7], "second")
        results(running, [8], "first")
        for number in range(1023):
            running.submit(np.array([0, 1]), stream=str(number))
        assert results(running, [9], "first") == loop([7, 8, 9])[-1:]
        assert results(running, [9], "second") == loop([9])


def test_results_may_be_written_to() -> None:
    """Where the caller gets the state, too."""
    with Pipeline(plan(outputs=("z", "hn")), NEVER, create=Recurrence) as running:
        for value, expected in zip([1, 2, 3], loop([1, 2, 3]), strict=True):
            outputs = running.submit(np.array([0, value])).outputs(LIMIT)
            assert outputs["hn"][1] == expected
            outputs["hn"][:] = 0


def test_state_of_a_stream_that_was_reset_is_released() -> None:
    arrays: list[weakref.ref[np.ndarray]] = []

    class Watched(Recurrence):
        def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
            outputs = super().run(program, inputs)
            if program[0] == "b":
                arrays.append(weakref.ref(outputs[1]))
            return outputs

    with Pipeline(plan(), NEVER, create=Watched) as running:
        results(running, [1, 2, 3])
        running.reset()
        results(running, [1], "other")
        collect()
        assert [array() is not None for array in arrays] == [False, False, False, True]


def test_a_restarted_device_begins_anew() -> None:
    free = threading.Event()

    class Hanging(Recurrence):
        def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
            if program[0] == "b" and int(inputs[-1][1]) == 13:
                free.wait(LIMIT)
            return super().run(program, inputs)

    with Pipeline(plan(), NEVER, create=Hanging, stage_timeout={"b": 0.3}) as running:
        assert results(running, [1, 2], "s") == loop([1, 2])
        with pytest.raises(StageError):
            results(running, [13], "t")
        assert results(running, [3, 4], "s") == loop([3, 4])
        free.set()
    assert running.statistics().failed == 1


def test_values_of_the_first_frame() -> None:
    with Pipeline(plan(initial=(3, 4)), NEVER, create=Recurrence) as running:
        assert results(running, [1]) == [step(4, 1)]
    with Pipeline(plan(initial=()), NEVER, create=Recurrence) as running:
        assert results(running, [1]) == [step(0, 1)]


def test_plan_files_have_states() -> None:
    assert decode(encode(plan()), "a plan") == plan()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replicas": 2}, "'b' keeps the state 'h' and needs frames in order, but stage 'b' has 2 replicas"),
        ({"initial": (1, 2, 3)}, "has 3 initial values"),
    ],
)
def test_impossible_states_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(**change)


def test_readers_and_writers_of_a_state_share_a_stage() -> None:
    with pytest.raises(PlanError, match="state 'h' is read by stage 'b' and written as 'z' by stage 'c'"):
        dataclasses.replace(plan(), states=(State(spec("h"), "z"),))


def test_replicas_before_a_state_are_refused() -> None:
    """Frames could overtake each other there; behind it they may."""
    whole = plan()
    first, second, third = whole.stages
    with pytest.raises(PlanError, match="but stage 'a' has 2 replicas"):
        dataclasses.replace(whole, stages=(dataclasses.replace(first, replicas=2), second, third))
    behind = dataclasses.replace(whole, stages=(first, second, dataclasses.replace(third, replicas=2)))
    with Pipeline(behind, NEVER, create=Recurrence) as running:
        assert results(running, range(30)) == loop(range(30))
