import os
import threading
import time
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.errors import BoardError
from pipeline.executor import devices
from pipeline.executor.devices.null import NullRuntime
from pipeline.executor.devices.simulated import SimulatedRuntime


def stage(inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]], seconds: float = 0.0) -> StagePlan:
    return StagePlan(
        "a",
        "d",
        tuple(TensorSpec(f"in{number}", shape) for number, shape in enumerate(inputs)),
        tuple(TensorSpec(f"out{number}", shape) for number, shape in enumerate(outputs)),
        seconds=seconds,
    )


def test_kinds_are_created() -> None:
    assert type(devices.create(Device("d", "null"))) is NullRuntime
    runtime = devices.create(Device("d", "simulated"))
    assert type(runtime) is SimulatedRuntime
    assert runtime.device == Device("d", "simulated")


def test_an_unknown_kind_is_refused() -> None:
    message = "device 'd' is of kind 'nul', which nothing drives; there are .*null.*; did you mean 'null'"
    with pytest.raises(BoardError, match=message):
        devices.create(Device("d", "nul"))


def test_null_repeats_its_inputs_by_reference() -> None:
    runtime = NullRuntime(Device("d", "null"))
    runtime.open(())
    program = runtime.load(stage([(1,), (2,)], [(1,)] * 5), None)
    x, y = np.zeros(1), np.zeros(2)
    outputs = runtime.run(program, [x, y])
    assert [output is expected for output, expected in zip(outputs, [x, y, x, y, x], strict=True)] == [True] * 5
    assert runtime.copy_in(x) is x
    assert runtime.copy_out(x) is x
    runtime.close()


@pytest.mark.parametrize("kind", [NullRuntime, SimulatedRuntime])
def test_their_tensors_are_told_apart_from_compiled_ones(kind: type[NullRuntime]) -> None:
    """A compute device of the same memory has its own tensors; each must get what it can read."""
    assert kind(Device("d", memory="host")).memory != "host"
    assert kind(Device("d", memory="host")).memory == kind(Device("e", memory="host")).memory
    assert kind(Device("d", memory="far")).memory != kind(Device("e", memory="host")).memory


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not place threads")
def test_null_keeps_its_thread_on_the_stage_s_cores() -> None:
    core = max(os.sched_getaffinity(0))
    affinities: list[Any] = []

    def work(cores: tuple[int, ...]) -> None:
        NullRuntime(Device("d", "null")).open(cores)
        affinities.append(os.sched_getaffinity(0))

    for cores in ((core,), (), (1_000_000,)):
        thread = threading.Thread(target=work, args=(cores,))
        thread.start()
        thread.join(30)
    assert affinities == [{core}, os.sched_getaffinity(0), os.sched_getaffinity(0)]


def test_simulated_returns_inputs_where_they_fit_and_else_zeros() -> None:
    runtime = SimulatedRuntime(Device("d", "simulated"))
    program = runtime.load(stage([(2,), (3,)], [(2,), (4,)]), None)
    x, y = np.ones(2, np.float32), np.ones(3, np.float32)
    first, second = runtime.run(program, [x, y]), runtime.run(program, [x, y])
    assert first[0] is x
    np.testing.assert_array_equal(first[1], np.zeros(4, np.float32))
    assert first[1].dtype == np.float32
    assert first[1] is second[1], "it is allocated once"
    with pytest.raises(ValueError, match="read-only"):
        first[1][:] = 1


def test_simulated_takes_its_time_and_not_less() -> None:
    # Each run may be shorter by what the one before was too late, so only the sum is what was asked for; runs of
    # several devices in one thread make up for each other's.
    seconds = (0.002, 0.0005)
    assert sum(run_times(20, *seconds)) >= 20 * sum(seconds)


def test_a_run_is_shortened_by_a_tenth_at_most() -> None:
    times = run_times(20, 0.005)
    assert min(times) >= 0.9 * 0.005


def run_times(rounds: int, *seconds: float) -> list[float]:
    """Return how long runs of several devices take, one after the other in a thread of their own."""
    runtime, times = SimulatedRuntime(Device("d", "simulated")), list[float]()
    programs = [runtime.load(stage([(1,)], [(1,)], seconds=each), None) for each in seconds]

    def run() -> None:
        for _ in range(rounds):
            for program in programs:
                begin = time.perf_counter()
                runtime.run(program, [np.zeros(1, np.float32)])
                times.append(time.perf_counter() - begin)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return times


def test_simulated_lets_other_threads_run() -> None:
    runtime = SimulatedRuntime(Device("d", "simulated"))
    program = runtime.load(stage([(1,)], [(1,)], seconds=1.0), None)
    thread = threading.Thread(target=runtime.run, args=(program, [np.zeros(1, np.float32)]))
    thread.start()
    # Were the lock held, this line would be reached only after the second.
    assert thread.is_alive()
    thread.join(30)
