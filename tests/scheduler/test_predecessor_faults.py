"""The faults of Apache TVM's pipeline executor (v0.8 to v0.19), one test each, by the number in the list of them.

Faults 14, 21 and 22 are about bundles: `tests/executor/test_predecessor_faults.py`.
"""

import copy
import dataclasses
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import psutil
import pytest

from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec, encode
from pipeline.errors import InputError, PlanError, StageError
from pipeline.executor.bundle import Bundle
from pipeline.prediction.predict import predict
from pipeline.scheduler import Pipeline
from pipeline.scheduler.channel import Channel


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


def test_fault_01_inputs_are_bound_by_name(graph: Callable[..., Plan], functions: Any) -> None:
    """An input of a later stage only worked when its global index was its index in that stage too."""
    plan = graph({"a": ["p"], "b": ["r", "a"], "c": ["q", "r", "b"]}, inputs=["p", "q", "r"], outputs=["c"])
    codes = [lambda p: [p], lambda r, a: [100 * r + a], lambda q, r, b: [10000 * q + b]]
    with Pipeline(plan, codes, create=functions) as running:
        result = running.submit({"r": frame(3), "p": frame(1), "q": frame(2)}).result(30)
    assert result[0] == 20301


def test_fault_02_held_results_never_change(chain: Callable[..., Plan], functions: Any) -> None:
    """The same buffers were returned by every call."""
    with Pipeline(chain(2), [lambda x: [x + 1]] * 2, create=functions) as running:
        held_frame = [running.submit(frame(number)).result(30) for number in range(30)]
    assert [result[0] for result in held_frame] == [number + 2 for number in range(30)]
    assert not any(np.shares_memory(held_frame[0], other) for other in held_frame[1:])


def test_fault_03_an_error_in_a_stage_reaches_the_caller(chain: Callable[..., Plan], functions: Any) -> None:
    """An exception in a stage's thread ended the process."""
    with Pipeline(chain(2), [lambda x: [x], lambda x: [1 / 0]], create=functions) as running:
        error = running.submit(frame(0)).exception(30)
    assert isinstance(error, StageError)
    assert (error.stage, error.device, error.frame) == ("b", "d", 0)


def test_fault_04_nothing_is_dropped_unless_asked_for(chain: Callable[..., Plan], functions: Any) -> None:
    """A full queue silently dropped data: of 1,100 frames 1,023 came out."""
    with Pipeline(chain(3, queue_depth=1), [lambda x: [x]] * 3, create=functions) as running:
        futures = [running.submit(frame(number)) for number in range(1100)]
        assert [future.result(30)[0] for future in futures] == list(range(1100))
    assert not running.statistics().dropped


def test_fault_05_memory_is_flat(chain: Callable[..., Plan]) -> None:
    """Queues never freed their tensors: 7 MB became 2.1 GB in 1,100 frames of 1 MiB."""
    process = psutil.Process(os.getpid())
    array = np.zeros(1 << 18, np.float32)
    with Pipeline(chain(3, shape=array.shape, kind="simulated")) as running:
        for _ in range(20):
            running.submit(array).result(30)
        start_bytes = process.memory_info().rss
        for _ in range(1100):
            running.submit(array).result(30)
        growth = process.memory_info().rss - start_bytes
    assert growth < 50e6


@pytest.mark.parametrize(
    "value", [np.zeros(4, np.int32), np.zeros(4, np.float64), np.zeros(3, np.float32), np.zeros((4, 1), np.float32)]
)
def test_fault_06_what_does_not_fit_is_refused(chain: Callable[..., Plan], value: np.ndarray) -> None:
    """A wrong dtype was ignored, and an old result returned, or its bits were taken for another type."""
    with Pipeline(chain(1)) as running:
        with pytest.raises(InputError, match=r"given, float32\[4\] expected"):
            running.submit(value)
        assert running.statistics().submitted == 0


def test_fault_07_a_forgotten_pipeline_warns_and_its_threads_end(chain: Callable[..., Plan]) -> None:
    """Dropped pipelines left their threads running."""
    earlier_threads = set(threading.enumerate())
    with pytest.warns(ResourceWarning, match="never closed"):
        Pipeline(chain(3))
    for thread in set(threading.enumerate()) - earlier_threads:
        thread.join(30)
        assert not thread.is_alive()


def test_fault_08_a_full_pipeline_is_waited_for_without_spinning(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    """A full queue was waited on by spinning: a second of processor time in a second of waiting."""
    with Pipeline(chain(2, queue_depth=1), [lambda x: [x], gate], create=functions) as running:
        with pytest.raises(TimeoutError):
            while True:
                running.submit(frame(0), timeout=0.2)
        begin_s = time.process_time()
        with pytest.raises(TimeoutError):
            running.submit(frame(0), timeout=1.0)
        assert time.process_time() - begin_s < 0.4
        gate.open.set()


def test_fault_09_one_output_feeds_any_inputs(graph: Callable[..., Plan], functions: Any) -> None:
    """One output could not feed two inputs of one later stage."""
    plan = graph({"a": ["x"], "b": ["a0", "a1", "x"], "c": ["a0", "b"]}, makes={"a": ["a0", "a1"]}, outputs=["c", "a0"])
    codes = [lambda x: [x + 1, x + 1], lambda a, b, x: [a + b + x], lambda a, b: [a + b]]
    with Pipeline(plan, codes, create=functions) as running:
        result = running.submit(frame(1)).result(30)
    assert (result["c"][0], result["a0"][0]) == (7, 2)
    repeated_stage = dataclasses.replace(plan.stages[1], inputs=plan.stages[1].inputs[:1] * 2)
    with pytest.raises(PlanError, match="'a0' is there twice"):
        # A stage reads a tensor once and may use it often; its code has one argument for it.
        dataclasses.replace(plan, stages=(plan.stages[0], repeated_stage, plan.stages[2]))


def test_fault_10_counts_are_right(graph: Callable[..., Plan]) -> None:
    """The number of inputs was that of the stages that have inputs."""
    plan = graph({"a": ["x", "y"], "b": ["a"]}, inputs=["x", "y", "z"], outputs=["b", "a"])
    assert (len(plan.inputs), len(plan.outputs)) == (3, 2)
    with Pipeline(plan) as running:
        result = running.submit(dict.fromkeys("xyz", frame(0))).result(30)
    assert sorted(result) == ["a", "b"]


def test_fault_11_looking_at_a_plan_does_not_change_it(chain: Callable[..., Plan]) -> None:
    """Printing or reading the configuration changed it."""
    plan = chain(3, replicas=2)
    original_plan = copy.deepcopy(plan)
    for _ in range(2):
        repr(plan)
        encode(plan)
        _ = (plan.frames_in_flight, predict(plan).interval_s, plan.unsplit_seconds * predict(plan).frames_per_s)
        with Pipeline(plan) as running:
            repr(running)
            running.statistics()
    assert plan == original_plan
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.stages = ()  # type: ignore[misc]


def test_fault_12_a_refused_change_leaves_no_trace(chain: Callable[..., Plan], functions: Any) -> None:
    """A rejected connection stayed in the configuration."""
    plan = chain(2)
    with pytest.raises(PlanError):
        dataclasses.replace(plan, stages=(*plan.stages, plan.stages[0]))
    with Pipeline(plan, [lambda x: [x + 1]] * 2, create=functions) as running:
        with pytest.raises(PlanError):
            running.swap(Bundle(chain(1), [lambda x: [x]]))
        with pytest.raises(InputError):
            running.set_input("x", np.zeros(9, np.float32))
        assert running.plan is plan
        assert running.submit(frame(0)).result(30)[0] == 2


X, Y, Z = (TensorSpec(name, (4,)) for name in "xyz")
REFUSED: Mapping[str, tuple[tuple[StagePlan, ...], str]] = {
    "two producers": (
        (StagePlan("a", "d", (X,), (Y,)), StagePlan("b", "d", (X,), (Y,))),
        "makes 'y', which is already",
    ),
    "a producer of a model input": ((StagePlan("a", "d", (X,), (X,)),), "makes 'x', which is already a model input"),
    "an unconnected input": ((StagePlan("a", "d", (Z,), (Y,)),), "reads 'z', which nothing makes"),
    "a doubled output": ((StagePlan("a", "d", (X,), (Y, Y)),), "'y', which is already"),
    "a cycle": ((StagePlan("a", "d", (Z,), (Y,)), StagePlan("b", "d", (Y,), (Z,))), "which the later stage 'b' makes"),
    "a connection to itself": ((StagePlan("a", "d", (X, Y), (Y,)),), "which it makes itself"),
    "two stages of one name": (
        (StagePlan("a", "d", (X,), (Y,)), StagePlan("a", "d", (X,), (Z,))),
        "'a' is there twice",
    ),
    "an unknown device": ((StagePlan("a", "e", (X,), (Y,)),), "no device 'e'"),
    "another shape": ((StagePlan("a", "d", (TensorSpec("x", (5,)),), (Y,)),), "expects x"),
    "another dtype": ((StagePlan("a", "d", (TensorSpec("x", (4,), "int8"),), (Y,)),), "expects x"),
    "no output": ((StagePlan("a", "d", (X,), ()),), "has no output"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_fault_13_impossible_plans_are_refused_at_once(chain: Callable[..., Plan], fault: str) -> None:
    """They were accepted, and aborted the process later."""
    stages, message = REFUSED[fault]
    board = chain(1).board
    with pytest.raises((PlanError, ValueError), match=message):
        Plan("test", "", board, (X,), (Y,), stages)


def test_fault_13_an_output_that_nothing_makes_is_refused(chain: Callable[..., Plan]) -> None:
    with pytest.raises(PlanError, match="no stage makes the model output 'z'"):
        Plan("test", "", chain(1).board, (X,), (Z,), (StagePlan("a", "d", (X,), (Y,)),))


def test_fault_15_waiting_has_a_limit_and_ends_on_arrival(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    """get_output had no timeout, and slept a millisecond at a time."""
    with Pipeline(chain(1, queue_depth=1), [gate], create=functions) as running:
        running.set_input("x", frame(7))
        running.run(timeout=30)
        gate.wait_entered()
        for call in (
            lambda: running.get_output(timeout=0.01),
            lambda: running.drain(timeout=0.01),
            lambda: [running.submit(frame(0), timeout=0.01) for _ in range(2)],
            lambda: running.run(timeout=0.01),
        ):
            with pytest.raises(TimeoutError):
                call()
        threading.Timer(0.05, gate.open.set).start()
        assert running.get_output()[0][0] == 7


class Factor:
    """A stage that notices when its parameters are changed while it runs."""

    def __init__(self, factor: np.ndarray) -> None:
        self.parameters = {"factor": factor}

    def __call__(self, x: np.ndarray) -> Any:
        factor = self.parameters["factor"].copy()
        threading.Event().wait(0.001)
        assert np.array_equal(factor, self.parameters["factor"]), "changed under a running stage"
        return [x * factor]

    def with_parameters(self, values: Mapping[str, np.ndarray]) -> Any:
        return Factor(values["factor"])


def test_fault_16_parameters_change_at_a_frame_boundary(chain: Callable[..., Plan], functions: Any) -> None:
    """They could be changed while a worker read them."""
    codes = [Factor(np.ones(4, np.float32)), Factor(np.ones(4, np.float32))]
    with Pipeline(chain(2), codes, create=functions) as running:
        futures = []
        for factor in range(1, 20):
            running.set_params("b", {"factor": frame(factor)})
            futures += [running.submit(frame(1)) for _ in range(2)]
        assert [future.result(30)[0] for future in futures] == [factor for factor in range(1, 20) for _ in range(2)]


def test_fault_17_channels_lose_nothing_between_many_threads() -> None:
    """Queue indices were a data race on processors with weak ordering."""
    channel: Channel[int] = Channel(3)
    answers: list[int] = []

    def write(begin: int) -> None:
        for item in range(begin, begin + 500):
            channel.put(item)

    def read() -> None:
        while (item := channel.get()) is not None:
            answers.append(item)

    writers = [threading.Thread(target=write, args=(500 * number,)) for number in range(4)]
    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join(30)
    channel.close()
    for thread in readers:
        thread.join(30)
    assert sorted(answers) == list(range(2000))


def test_fault_18_workers_end_before_what_they_use(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    """Buffers were freed before the thread that used them had ended."""
    running = Pipeline(chain(2), [gate, lambda x: [x + 1]], create=functions)
    future = running.submit(frame(1))
    gate.wait_entered()
    threading.Timer(0.05, gate.open.set).start()
    running.close()
    assert not any(thread.name.startswith("stage") for thread in threading.enumerate())
    assert [what for what, _ in functions.log].count("close") == 2
    assert future.result(0)[0] == 2


def test_fault_19_statistics_are_immutable_and_add_up(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    """There was one counter, a racy total."""
    with Pipeline(chain(1, queue_depth=1), [gate], create=functions, admission="latest") as running:
        futures = [running.submit(frame(0))]
        gate.wait_entered()
        futures += [running.submit(frame(number)) for number in range(4)]
        futures[1].cancel()
        earlier_statistics = running.statistics()
        gate.open.set()
    later_statistics = running.statistics()
    assert (earlier_statistics.submitted, earlier_statistics.in_flight) == (5, 2)
    assert (earlier_statistics.cancelled, dict(earlier_statistics.dropped)) == (1, {"replaced": 2})
    assert (later_statistics.delivered, later_statistics.failed, later_statistics.in_flight) == (2, 0, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        later_statistics.delivered = 0  # type: ignore[misc]


def test_fault_20_a_stage_without_inputs_is_refused(chain: Callable[..., Plan]) -> None:
    """It ran in a loop for ever.  One whose inputs are model inputs only runs once per frame."""
    with pytest.raises(PlanError, match="stage 'a' has no input"):
        dataclasses.replace(chain(1), stages=(StagePlan("a", "d", (), (Y,)),), outputs=(Y,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Pipeline(chain(1)) as running:
            for number in range(5):
                running.submit(frame(number)).result(30)
    assert running.statistics().stages[0].frames_in == 5
