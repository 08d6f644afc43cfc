"""Stages whose steps borrow other devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, StepPlan, TensorSpec
from pipeline.errors import PipelineError, StageError, StageTimeout
from pipeline.scheduler import Pipeline, Trace
from pipeline.scheduler.heterogeneous import HeterogeneousRuntime
from pipeline.scheduler.turns import DeviceTurns, Turns
from tests.scheduler.conftest import wait_until

LIMIT = 0.05
BOARD = Board("test", (Device("cpu", "null", memory="host"), Device("npu", "null", memory="far")))


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


def has_length(turns: Turns, count: int) -> bool:
    return len(turns) == count


def make_stage(name: str, devices: Sequence[str], reads: str, makes: str, replicas: int = 1) -> StagePlan:
    """Return a stage with a step on each device, or without steps if there is one."""
    specs = [TensorSpec(each, (4,)) for each in [reads, *(f"{name}{step}" for step in range(1, len(devices))), makes]]
    if len(devices) == 1:
        return StagePlan(name, devices[0], (specs[0],), (specs[-1],), replicas=replicas)
    steps = tuple(
        StepPlan(device, (), (source,), (result,))
        for device, source, result in zip(devices, specs, specs[1:], strict=False)
    )
    return StagePlan(name, "cpu", (specs[0],), (specs[-1],), replicas=replicas, steps=steps)


def make_plan(*stages: StagePlan) -> Plan:
    return Plan("test", "", BOARD, stages[0].inputs, stages[-1].outputs, stages)


def alternating(replicas: int = 1) -> Plan:
    return make_plan(make_stage("a", ["cpu", "npu", "cpu", "npu"], "x", "y", replicas))


def add(number: int) -> Callable[[np.ndarray], Sequence[np.ndarray]]:
    return lambda x: [x + number]


class Exclusive:
    """A step that fails if another frame is in it, or in another one of the same device."""

    def __init__(self) -> None:
        self.lock, self.frames = threading.Lock(), list[float]()

    def __call__(self, x: np.ndarray) -> Sequence[np.ndarray]:
        if not self.lock.acquire(blocking=False):
            raise AssertionError("two frames on a borrowed device")
        try:
            self.frames.append(float(x[0]))
            # Longer than the interpreter lets one thread run: another one would come in if it could.
            threading.Event().wait(0.002)
            return [x]
        finally:
            self.lock.release()


def test_steps_run_in_order_and_tensors_change_their_memory_between_them(functions: Any) -> None:
    with Pipeline(alternating(), [add(1), lambda x: [x * 10], add(2), lambda x: [x * 10]], create=functions) as running:
        assert running.submit(frame(3)).result(30).tolist() == [420] * 4
    moves = [entry for entry in functions.log if entry[0] in ("in", "out")]
    assert moves == [("in", "cpu"), ("out", "cpu"), ("in", "npu"), ("out", "npu")] * 2


def test_each_worker_opens_and_closes_its_own_runtimes(functions: Any) -> None:
    with Pipeline(alternating(2), [add(1)] * 4, create=functions):
        pass
    assert sorted(functions.log) == sorted([(what, name) for what in ("open", "close") for name in ("cpu", "npu")] * 2)


def test_steps_on_one_memory_pass_by_reference(functions: Any) -> None:
    plan = make_plan(make_stage("a", ["cpu", "cpu", "npu"], "x", "y"))
    with Pipeline(plan, [add(1)] * 3, create=functions) as running:
        assert running.submit(frame(0)).result(30).tolist() == [3] * 4
    assert [entry for entry in functions.log if entry == ("in", "cpu")] == [("in", "cpu")]


@pytest.mark.parametrize("limits", [None, {"a": 30.0, "b": 30.0}], ids=["without limits", "with limits"])
def test_replicas_and_ordinary_stages_share_a_borrowed_device_one_frame_at_a_time(
    functions: Any, limits: dict[str, float] | None
) -> None:
    plan = make_plan(make_stage("a", ["cpu", "npu", "cpu"], "x", "m", 3), make_stage("b", ["npu"], "m", "y", 2))
    npu = Exclusive()
    with Pipeline(plan, [add(1), npu, add(1), npu], create=functions, stage_timeout=limits) as running:
        futures = [running.submit(frame(number)) for number in range(24)]
        assert [future.result(30)[0] for future in futures] == [number + 2 for number in range(24)]
    assert len(npu.frames) == 48


def test_the_oldest_frame_has_the_borrowed_device_first(functions: Any) -> None:
    turns, order = DeviceTurns(), list[int]()
    (stage,) = (plan := make_plan(make_stage("a", ["cpu", "npu"], "x", "y", 3))).stages
    holder = turns.of("npu").take(0)

    def work(number: int) -> None:
        def note(x: np.ndarray) -> Sequence[np.ndarray]:
            order.append(number)
            return [x]

        runtime = HeterogeneousRuntime(plan, stage, functions, turns)
        runtime.open(())
        runtime.frame_number = number
        runtime.run(runtime.load(stage, (add(0), note)), [frame(number)])
        runtime.close()

    workers = []
    for number in (3, 1, 2):
        workers.append(threading.Thread(target=work, args=(number,)))
        workers[-1].start()
        wait_until(partial(has_length, turns.of("npu"), len(workers) + 1))
    turns.of("npu").give_back(holder)
    for worker in workers:
        worker.join(30)
    assert order == [1, 2, 3]


def test_the_own_device_works_while_another_frame_has_the_borrowed_one(functions: Any) -> None:
    """The step on the accelerator of one frame waits for a step on the cores of the other."""
    meet = threading.Barrier(2)

    def together(x: np.ndarray) -> Sequence[np.ndarray]:
        meet.wait(30)
        return [x]

    first_frames = {"cpu": 1, "npu": 0}

    def on(device: str) -> Callable[[np.ndarray], Sequence[np.ndarray]]:
        return lambda x: together(x) if x[0] == first_frames[device] else [x]

    plan = make_plan(make_stage("a", ["cpu", "npu"], "x", "y", 2))
    with Pipeline(plan, [on("cpu"), on("npu")], create=functions) as running:
        assert [f.result(30)[0] for f in [running.submit(frame(number)) for number in range(2)]] == [0, 1]


def test_an_error_names_the_stage_the_step_and_the_device(functions: Any) -> None:
    def fail(x: np.ndarray) -> Sequence[np.ndarray]:
        if x[0] == 1:
            raise ValueError("no")
        return [x]

    with Pipeline(alternating(2), [add(0), fail, add(0), add(0)], create=functions) as running:
        futures = [running.submit(frame(number)) for number in range(4)]
        error = futures[1].exception(30)
        # The device was given back: the others have had it.
        assert [futures[number].result(30)[0] for number in (0, 2, 3)] == [0, 2, 3]
    assert isinstance(error, StageError)
    assert (error.stage, error.step, error.device, error.frame) == ("a", "a.step1", "npu", 1)
    assert str(error) == "stage 'a' in 'a.step1' on device 'npu' failed on frame 1: ValueError: no"


def test_a_step_that_hangs_loses_the_device_to_the_others(functions: Any, gate: Any) -> None:
    def hang(x: np.ndarray) -> Sequence[np.ndarray]:
        return gate(x) if x[0] == 1 else [x]

    codes = [add(0), hang, add(0), add(0)]
    with Pipeline(alternating(2), codes, create=functions, stage_timeout=LIMIT) as running:
        futures = [running.submit(frame(number)) for number in range(6)]
        error = futures[1].exception(30)
        assert [future.result(30)[0] for future in futures if future is not futures[1]] == [0, 2, 3, 4, 5]
        assert running.statistics().stages[0].restarts == 1
        gate.open.set()
    assert isinstance(error, StageTimeout)
    assert (error.stage, error.step, error.device) == ("a", "a.step1", "npu")


def test_a_stage_that_hangs_on_a_lent_device_loses_it_too(functions: Any, gate: Any) -> None:
    def hang(x: np.ndarray) -> Sequence[np.ndarray]:
        return gate(x) if x[0] == 1 else [x]

    plan = make_plan(make_stage("a", ["cpu", "npu"], "x", "m"), make_stage("b", ["npu"], "m", "y"))
    with Pipeline(plan, [add(0), add(0), hang], create=functions, stage_timeout={"b": LIMIT}) as running:
        futures = [running.submit(frame(number)) for number in range(6)]
        assert isinstance(futures[1].exception(30), StageTimeout)
        gate.open.set()
        assert [future.result(30)[0] for future in futures if future is not futures[1]] == [0, 2, 3, 4, 5]


def test_waiting_for_a_borrowed_device_is_not_running(functions: Any, gate: Any) -> None:
    """A stage without a limit keeps the device for long; the other one's limit does not count that."""
    plan = make_plan(make_stage("a", ["cpu", "npu"], "x", "m"), make_stage("b", ["npu"], "m", "y"))
    codes = [add(0), add(0), lambda x: gate(x) if x[0] == 0 else [x]]
    with Pipeline(plan, codes, create=functions, stage_timeout={"a": LIMIT}) as running:
        futures = [running.submit(frame(number)) for number in range(2)]
        gate.wait_entered()
        threading.Event().wait(3 * LIMIT)
        gate.open.set()
        assert [future.result(30)[0] for future in futures] == [0, 1]


def test_statistics_and_trace_tell_of_steps(functions: Any) -> None:
    trace = Trace()
    with Pipeline(alternating(2), [add(1)] * 4, create=functions, trace=trace) as running:
        for future in [running.submit(frame(number)) for number in range(5)]:
            future.result(30)
        wait_until(lambda: running.statistics().stages[0].frames_out == 5)
        (stage,) = running.statistics().stages
    assert [(step.name, step.device) for step in stage.steps] == [
        ("a.step0", "cpu"), ("a.step1", "npu"), ("a.step2", "cpu"), ("a.step3", "npu"),
    ]  # fmt: skip
    assert all(step.busy_s > 0 for step in stage.steps)
    assert sum(step.busy_s for step in stage.steps) <= stage.busy_s
    steps = [event for event in trace.events() if event.kind == "step"]
    assert sorted((event.frame, event.stage, event.device) for event in steps) == sorted(
        (number, step.name, step.device) for number in range(5) for step in stage.steps
    )
    on_npu = sorted((event for event in steps if event.device == "npu"), key=lambda event: event.start)
    assert all(earlier.end <= later.start for earlier, later in pairwise(on_npu))


def test_a_step_that_cannot_be_loaded_leaves_nothing_open(functions: Any) -> None:
    with pytest.raises(PipelineError, match="stage 'a'"):
        Pipeline(alternating(), [add(0), add(0), add(0), ValueError("no")], create=functions)
    assert [what for what, _ in functions.log].count("close") == 2


def test_a_bundle_with_other_steps_takes_over(functions: Any) -> None:
    class Bundle:
        def __init__(self, plan: Plan, codes: Sequence[Any]) -> None:
            from pipeline.core.shapes import Build

            self.builds, self.shapes = (Build(plan, tuple(codes)),), None

    other = make_plan(make_stage("a", ["npu", "cpu"], "x", "y"))
    with Pipeline(alternating(2), [add(1)] * 4, create=functions) as running:
        assert running.submit(frame(0)).result(30)[0] == 4
        running.swap(Bundle(other, [add(10)] * 2))
        assert running.submit(frame(0)).result(30)[0] == 20
        (stage,) = running.statistics().stages
        assert [step.name for step in stage.steps] == ["a.step0", "a.step1"]
        assert stage.frames_out == 2


def test_there_is_a_code_for_each_step(functions: Any) -> None:
    with pytest.raises(PipelineError, match="3 codes were given for 4 stages or steps"):
        Pipeline(alternating(), [add(1)] * 3, create=functions)
