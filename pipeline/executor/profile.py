"""Measured seconds per fused group on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from pipeline.board import Device
from pipeline.executor import devices, parameters
from pipeline.executor.apart import apart
from pipeline.executor.build import Progress, compile_stage, random_frame
from pipeline.plans import StagePlan, TensorSpec
from pipeline.tvm_access import tvm_ffi

ROUNDS = 5
"""At least so many frames go through all groups; the fastest time of each counts, since whatever else the machine does
only adds."""

ENOUGH_S = 1.0
"""And at least for so long."""


def measure(pairs: Sequence[tuple[StagePlan, Any]], device: Device, progress: Progress) -> list[float]:
    """Return the seconds of one frame in each group, alone on one core of `device`.

    Parameters
    ----------
    pairs : sequence of (StagePlan, tvm.IRModule)
        The groups; equal ones are measured once.
    device : Device
    progress : callable
        Told what is being done.
    """
    return apart(lambda: _measure(pairs, device, progress), "profile")


def _measure(pairs: Sequence[tuple[StagePlan, Any]], device: Device, progress: Progress) -> list[float]:
    runtime = devices.create(device)
    runtime.open(device.cores[-1:])
    groups = _built(runtime, pairs, device, progress)
    made = {spec.name for group in groups for spec in group.outputs}
    given = dict.fromkeys(spec for group in groups for spec in group.inputs if spec.name not in made)
    tensors = {name: runtime.copy_in(array) for name, array in random_frame(list(given), 0).items()}
    progress("measuring")
    times: list[list[float]] = []
    end = time.perf_counter() + ENOUGH_S
    while len(times) < ROUNDS or time.perf_counter() < end:
        times.append(_one_frame(runtime, groups, dict(tensors)))
    runtime.close()
    return [min(each) for each in zip(*times, strict=True)]


def _one_frame(runtime: devices.DeviceRuntime, groups: Sequence[_Group], tensors: dict[str, Any]) -> list[float]:
    """Return the seconds of each group; `tensors` is all that is at hand, and grows.

    One after the other, as in a stage: a group that is repeated alone has all it reads in its caches.
    """
    times = []
    for group in groups:
        begin = time.perf_counter()
        made = runtime.run(group.program, [tensors[spec.name] for spec in group.inputs])
        times.append(time.perf_counter() - begin)
        tensors.update(zip((spec.name for spec in group.outputs), made, strict=True))
    return times


class _Group(NamedTuple):
    """A loaded group."""

    program: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def _built(
    runtime: devices.DeviceRuntime, pairs: Sequence[tuple[StagePlan, Any]], device: Device, progress: Progress
) -> list[_Group]:
    """Build each group for the layout that the ones before it make: a layout is changed at a stage's borders only."""
    programs: dict[Any, tuple[Any, list[bool]]] = {}
    last: set[str] = set()
    groups = []
    for number, (stage, module) in enumerate(pairs):
        progress(f"building group {number + 1} of {len(pairs)}")
        # Lifted, so that groups which differ in their weights only are equal.
        structure = tvm_ffi.structural_hash(parameters.lift(module["main"])[0])
        key = (structure, *(spec.name in last for spec in stage.inputs))
        if key not in programs:
            inner = {spec.name for spec in stage.inputs} & last
            program = runtime.load(stage, compile_stage(module, device, inner=inner))
            programs[key] = program, [spec.name in inner for spec in stage.outputs]
        program, made_last = programs[key]
        last.update(spec.name for spec, is_last in zip(stage.outputs, made_last, strict=True) if is_last)
        groups.append(_Group(program, stage.inputs, stage.outputs))
    return groups
