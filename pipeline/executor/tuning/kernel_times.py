"""Kernel call times within a stage, on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pipeline.comparison.random_frame import random_frame
from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.executor import devices
from pipeline.executor.stage_code import StageCode
from pipeline.system.threads import run_in_thread
from pipeline.tvm.access import tvm

ROUNDS = 8
"""Most frames of a measurement; the fastest time of a call counts."""

FEWEST, ENOUGH_S = 2, 2.0
"""After so many frames, and for so long, a slow stage is not repeated any more."""


def call_seconds(code: StageCode, tensors: Sequence[Any], rounds: int = ROUNDS) -> list[tuple[str, float]]:
    """Return a frame's calls in order, with function name and least seconds of at most `rounds`.

    The tensors are the stage's inputs, then its parameters.
    """
    from tvm.runtime.vm import VirtualMachine

    frames: list[list[tuple[str, float]]] = []
    start = 0.0

    def instrument(_function: Any, name: str, is_entry: bool, _result: Any, *_: Any) -> int:
        nonlocal start
        if is_entry:
            start = time.perf_counter()
        else:
            frames[-1].append((str(name), time.perf_counter() - start))
        # TVM's `VMInstrumentReturnKind::kNoOp`: the call is made as it would be without the instrument.
        return 0

    # A machine of its own: whoever runs the stage is not to be slowed down.
    machine = VirtualMachine(code.module(), tvm.cpu())
    machine.set_instrument(instrument)
    end = time.perf_counter() + ENOUGH_S
    while len(frames) < rounds and (len(frames) < FEWEST or time.perf_counter() < end):
        frames.append([])
        machine["main"](*tensors)
    return [(calls[0][0], min(seconds for _, seconds in calls)) for calls in zip(*frames, strict=True)]


def by_function(calls: Sequence[tuple[str, float]]) -> dict[str, list[float]]:
    """Return the seconds of each call, by function."""
    times: dict[str, list[float]] = {}
    for name, seconds in calls:
        times.setdefault(name, []).append(seconds)
    return times


def of_calls(stage: StagePlan, code: StageCode, device: Device) -> list[float]:
    """Return the least seconds of a stage's calls, on its cores and a random frame.

    The result is empty if the machine made other calls than the stage was compiled with, or the stage takes no such
    frame.
    """
    kind = devices.thread_kind(devices.local_device(device), stage.cores_of(0))
    try:
        calls = run_in_thread(lambda: _time_calls(stage, code, device), "kernel times", kind)
    except Exception:  # noqa: BLE001 - whatever an operator raises of values that it does not take
        return []
    names = [call.function for call in code.calls or ()]
    # The machine calls functions of its own too, such as those that allocate memory.
    kernel_calls = [(name, seconds) for name, seconds in calls if name in names]
    return [seconds for _, seconds in kernel_calls] if [name for name, _ in kernel_calls] == names else []


def _time_calls(stage: StagePlan, code: StageCode, device: Device) -> list[tuple[str, float]]:
    runtime = devices.create(devices.local_device(device))
    runtime.open(stage.cores_of(0))
    frame = random_frame(stage.inputs, 0)
    inputs = [runtime.copy_in(frame[spec.name]) for spec in stage.inputs]
    try:
        return call_seconds(code, [*inputs, *(runtime.copy_in(array) for array in code.parameters.values())])
    finally:
        runtime.close()
