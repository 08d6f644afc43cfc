"""Measured seconds per fused group on this machine."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipeline.board import Device
from pipeline.executor import devices, parameters
from pipeline.executor.build import Progress, compile_stage, random_frame
from pipeline.plans import StagePlan, TensorSpec
from pipeline.tvm_access import tvm_ffi

ROUNDS = 4
"""Each group is timed once in every round; the fastest counts, since whatever else the machine does only adds."""

ENOUGH_S = 0.002
"""Short groups are repeated for about this long in a round."""


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
    result: list[float] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            result.extend(_measure(pairs, device, progress))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            failure.append(error)

    # A thread of its own: pinning to a core must not follow the caller.
    thread = threading.Thread(target=work, name="profile", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result


def _measure(pairs: Sequence[tuple[StagePlan, Any]], device: Device, progress: Progress) -> list[float]:
    runtime = devices.create(device)
    runtime.open(device.cores[-1:])
    groups: dict[Any, _Group] = {}
    keys = []
    # A layout is changed at the borders of stages, not of groups: as in a stage, each takes what the others made.
    last: set[str] = set()
    for number, (stage, module) in enumerate(pairs):
        progress(f"building group {number + 1} of {len(pairs)}")
        # Lifted, so that groups which differ in their weights only are equal.
        structure = tvm_ffi.structural_hash(parameters.lift(module["main"])[0])
        keys.append((structure, *(spec.name in last for spec in stage.inputs)))
        if keys[-1] not in groups:
            groups[keys[-1]] = _Group(runtime, stage, module, device, last)
        made = zip(stage.outputs, groups[keys[-1]].makes_last, strict=True)
        last.update(spec.name for spec, is_last in made if is_last)
    for number in range(ROUNDS):
        progress(f"measuring, round {number + 1} of {ROUNDS}")
        for group in groups.values():
            group.time()
    runtime.close()
    return [groups[key].seconds for key in keys]


class _Group:
    """A loaded group with an input, and the fastest time so far; `last` names the tensors with channels last."""

    def __init__(
        self, runtime: devices.DeviceRuntime, stage: StagePlan, module: Any, device: Device, last: set[str]
    ) -> None:
        inner = {spec.name for spec in stage.inputs} & last
        specs = [_channels_last(spec) if spec.name in inner else spec for spec in stage.inputs]
        code = compile_stage(module, device, inner=inner)
        self.seconds = math.inf
        self.makes_last = [spec.name in inner for spec in stage.outputs]
        self._runtime, self._program = runtime, runtime.load(stage, code)
        frame = random_frame(specs, 0)
        self._tensors = [runtime.copy_in(frame[spec.name]) for spec in specs]

    def time(self) -> None:
        """Run once, and again while it is too short to be timed well."""
        end = time.perf_counter() + ENOUGH_S
        begin = 0.0
        while begin < end:
            begin = time.perf_counter()
            self._runtime.run(self._program, self._tensors)
            self.seconds = min(self.seconds, time.perf_counter() - begin)


def _channels_last(spec: TensorSpec) -> TensorSpec:
    batch, channels, *others = spec.shape
    return replace(spec, shape=(batch, *others, channels))
