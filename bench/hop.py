"""Cost of a hop between two stages.

Null stages compute nothing: what is left is the scheduler.  A payload of the given size passes by reference
through all stages beside a small tensor, which alone is the result (a result is kept apart from the caller's arrays
by a copy, and that copy is not what is asked here).

latency_us_*   from submit to the result, one frame at a time: entering, all hops, and waking the caller
hop_us_*       from the run of a stage to the run of the next one, on the same frame
us_per_frame   when frames stream through as fast as they can
wake_floor_us  one way of a bare semaphore between two processes on the same cores: no queue is faster

placement 'one core': caller and stages share a core, which is where stages that compute nothing belong.
placement 'two cores': neighbours are on different cores: each hop wakes an idle core, which is the system's time.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from time import perf_counter
from typing import Any

import numpy as np
from report import Row, median, parser, percentile, report, usable_cores

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.devices.null import NullRuntime
from pipeline.scheduler import Pipeline

STAGES = (1, 2, 4, 8)
# From a few cache lines to beyond every cache: were a tensor copied at a hop, 100 MB would cost tens of milliseconds
# where 1 kB costs microseconds.
SIZES = (1_000, 100_000, 3_000_000, 100_000_000)
MICRO = 1e6


class StampedRuntime(NullRuntime):
    """A null device that notes when it runs."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.stamps: list[float] = []

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Note the time."""
        self.stamps.append(perf_counter())
        return super().run(program, inputs)


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, frames = (3, 500) if options.quick else (10, 2000)
    placements = {"one core": usable_cores()[:1]}
    if len(usable_cores()) > 1:
        placements["two cores"] = usable_cores()[:2]
    cases = [(stages, 1_000, placement) for placement in placements for stages in STAGES]
    cases += [(4, size, "one core") for size in SIZES[1:]]
    # All cases in turn, several times, so that a disturbance meets all of them.
    samples = [[measure(*case, placements[case[2]], frames) for case in cases] for _ in range(rounds)]
    floors = {name: wake_floor(cores, 20 * frames) for name, cores in placements.items()}
    rows = [
        row(case, list(case_samples), floors[case[2]])
        for case, case_samples in zip(cases, zip(*samples, strict=True), strict=True)
    ]
    report("The cost of a hop between null stages", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def measure(stages: int, size: int, _: str, cores: Sequence[int], frames: int) -> dict[str, Any]:
    """Return latencies and hops in seconds, and the time per frame of a stream."""
    runtimes: list[StampedRuntime] = []

    def create(device: Device) -> StampedRuntime:
        runtimes.append(StampedRuntime(device))
        return runtimes[-1]

    inputs: dict[str, np.ndarray] = {"payload0": np.zeros(size, np.uint8), "token0": np.zeros(1, np.float32)}
    with on_core(cores[-1]), Pipeline(plan(stages, size, cores), create=create) as running:
        for result in running.map(repeat(inputs, 200), copy=False):
            del result
        # Stamps of the warm-up would pair with those of measured frames.
        for runtime in runtimes:
            runtime.stamps.clear()
        latencies = [latency(running, inputs) for _ in range(frames)]
        # One frame at a time, so that the n-th stamp of each runtime is of the same frame.
        hops = [
            later - earlier
            for first, peer in pairwise(runtimes)
            for earlier, later in zip(first.stamps, peer.stamps, strict=True)
        ]
        begin_s = perf_counter()
        for result in running.map(repeat(inputs, frames), copy=False):
            del result
        return {"latencies": latencies, "hops": hops, "per_frame": (perf_counter() - begin_s) / frames}


def latency(running: Pipeline, inputs: dict[str, np.ndarray]) -> float:
    """Return the seconds from submit to the result."""
    begin_s = perf_counter()
    running.submit(inputs, copy=False).result()
    return perf_counter() - begin_s


def plan(stages: int, size: int, cores: Sequence[int]) -> Plan:
    """Return a chain of null stages, neighbours on different ones of `cores`."""
    specs = [
        (TensorSpec(f"payload{number}", (size,), "uint8"), TensorSpec(f"token{number}", (1,)))
        for number in range(stages + 1)
    ]
    stage_plans = tuple(
        StagePlan(f"stage{number}", "null", inputs, outputs, cores=(cores[number % len(cores)],))
        for number, (inputs, outputs) in enumerate(pairwise(specs))
    )
    board = Board("null", (Device("null", "null"),))
    return Plan("hop", "", board, specs[0], specs[-1][1:], stage_plans)


def row(case: tuple[int, int, str], samples: Sequence[dict[str, Any]], floor: float | None) -> Row:
    """Return one line of the table."""
    stages, size, placement = case
    latencies = [value for sample in samples for value in sample["latencies"]]
    hops = [value for sample in samples for value in sample["hops"]]
    return {
        "placement": placement,
        "stages": stages,
        "tensor_bytes": size,
        "latency_us_p50": percentile(latencies, 0.5) * MICRO,
        "latency_us_p99": percentile(latencies, 0.99) * MICRO,
        "hop_us_p50": percentile(hops, 0.5) * MICRO if hops else None,
        "hop_us_p99": percentile(hops, 0.99) * MICRO if hops else None,
        "us_per_frame": median([sample["per_frame"] for sample in samples]) * MICRO,
        "wake_floor_us_p50": floor,
    }


def wake_floor(cores: Sequence[int], rounds: int) -> float | None:
    """Return half the median round trip of two processes that wake each other, in microseconds."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    # Processes, since two threads of Python would also wait for the interpreter; spawned, since a fork copies locks
    # without the threads that hold them.
    context = multiprocessing.get_context("spawn")
    to_caller, to_echo = context.Semaphore(0), context.Semaphore(0)
    peer = context.Process(target=echo, args=(to_caller, to_echo, cores[0], rounds))
    peer.start()
    with on_core(cores[-1]):
        trips = list(round_trips(to_caller, to_echo, rounds))
    peer.join()
    return median(trips) / 2 * MICRO


def round_trips(to_caller: Any, to_echo: Any, rounds: int) -> Iterator[float]:
    """Yield the seconds of each round trip."""
    for _ in range(rounds):
        begin_s = perf_counter()
        to_echo.release()
        to_caller.acquire()
        yield perf_counter() - begin_s


def echo(to_caller: Any, to_echo: Any, core: int, rounds: int) -> None:
    """Answer `rounds` times."""
    os.sched_setaffinity(0, {core})
    for _ in range(rounds):
        to_echo.acquire()
        to_caller.release()


class on_core:  # noqa: N801 - reads as a statement
    """Keep the calling thread on one core for a while."""

    def __init__(self, core: int) -> None:
        self.core, self.initial_cores = core, set(usable_cores())

    def __enter__(self) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {self.core})

    def __exit__(self, *_: object) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.initial_cores)


if __name__ == "__main__":
    main()
