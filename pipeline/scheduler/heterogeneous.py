"""HeterogeneousRuntime: a stage's steps on own and borrowed devices, as one device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.errors import DeviceLost
from pipeline.executor.devices.base import DeviceRuntime, NumberedRuntime
from pipeline.prediction.borrowing import borrowed_devices
from pipeline.scheduler.copies import StageCopies
from pipeline.scheduler.turns import DeviceTurns, Loan, Turns
from pipeline.scheduler.wiring import Wiring, wire


class StepTimes(NamedTuple):
    """Times of a step (`time.perf_counter`): begin, request, start, release, end."""

    start: float
    asked: float
    begin: float
    ran: float
    end: float


@dataclass(frozen=True)
class _Step:
    unit: StagePlan
    runtime: DeviceRuntime
    program: Any
    copies: StageCopies
    turns: Turns | None


@dataclass(frozen=True)
class _LoadedSteps:
    wiring: Wiring
    readers: Mapping[int, int]
    steps: tuple[_Step, ...]


class _StepTensors:
    """Tensors between a frame's steps, for one thread."""

    def __init__(self, slots: int, readers: Mapping[int, int]) -> None:
        self.tensors: list[Any] = [None] * slots
        self._readers = dict(readers)

    def release(self, slot: int) -> None:
        """Count a finished reader of the slot; the last empties it."""
        self._readers[slot] -= 1
        if not self._readers[slot]:
            self.tensors[slot] = None

    def copy_lock(self) -> contextlib.AbstractContextManager[None]:
        """Return nothing to wait for."""
        return contextlib.nullcontext()


class HeterogeneousRuntime(NumberedRuntime):
    """Runs a stage's steps in order, as a device of plain arrays.

    Each worker has runtimes of its own, made by `create`, also of what it borrows by `turns`, since a runtime is for
    one thread. `wait` is called with a wait for a borrowed device; a worker with a time limit stops its clock
    meanwhile. `times` are those of the newest run.
    """

    def __init__(self, plan: Plan, stage: StagePlan, create: Callable[..., DeviceRuntime], turns: DeviceTurns) -> None:
        super().__init__(plan.board.device(stage.device))
        self._plan = plan
        names = dict.fromkeys((stage.device, *(step.device for step in stage.steps)))
        self._runtimes = {name: create(plan.board.device(name)) for name in names}
        self.opening_s = sum(runtime.opening_s for runtime in self._runtimes.values())
        self._turns = {name: turns.of(name) for name in borrowed_devices(plan.board, stage)}
        self._current: _Step | None = None
        self._loan: Loan | None = None
        self._is_broken = False
        self.wait: Callable[[Callable[[], None]], None] = lambda wait: wait()
        self.times: list[StepTimes] = []

    @property
    def memory(self) -> str:
        """Memory of plain arrays; steps move tensors to their devices."""
        return f"{self.device.memory} (arrays)"

    @property
    def occupies_cores(self) -> bool:
        """As the worker's own device."""
        return self._own_runtime.occupies_cores

    @property
    def step(self) -> StagePlan | None:
        """Running or failed step."""
        # Asked for by the watchdog too, while the worker goes on.
        step = self._current
        return None if step is None else step.unit

    @property
    def _own_runtime(self) -> DeviceRuntime:
        return next(iter(self._runtimes.values()))

    def thread_kind(self, cores: Sequence[int]) -> Hashable:
        """Return the devices' thread leftovers, as other stages would."""
        kinds = tuple(kind for runtime in self._runtimes.values() if (kind := runtime.thread_kind(cores)) is not None)
        return kinds if len(kinds) > 1 else next(iter(kinds), None)

    def open(self, cores: Sequence[int]) -> None:
        """Open the own device and the borrowed ones."""
        with contextlib.ExitStack() as opened:
            for runtime in self._runtimes.values():
                runtime.open(cores)
                opened.callback(runtime.close)
            # Only if all are open they stay so; `close` then has to close them all.
            opened.pop_all()

    def load(self, stage: StagePlan, code: Sequence[Any]) -> _LoadedSteps:
        """Load the steps on their devices; `code` has one entry per step."""
        steps_plan = self._plan.steps_plan(stage)
        wiring = wire(steps_plan, [self._runtimes[unit.device].memory for unit in stage.units])
        readers = {slot: count for slot, count in enumerate(wiring.readers) if count}
        steps = []
        for unit, unit_code, unit_wiring in zip(stage.units, code, wiring.stages, strict=True):
            runtime = self._runtimes[unit.device]
            copies = StageCopies(runtime, unit_wiring, wiring.readers)
            steps.append(_Step(unit, runtime, runtime.load(unit, unit_code), copies, self._turns.get(unit.device)))
        return _LoadedSteps(wiring, readers, tuple(steps))

    def run(self, program: _LoadedSteps, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run all steps on arrays."""
        self.times = []
        frame = _StepTensors(len(program.wiring.readers), program.readers)
        for slot, array in zip(program.wiring.inputs, inputs, strict=True):
            frame.tensors[slot] = array
        for step in program.steps:
            self._current = step
            self._run_step(step, frame)
        self._current = None
        return [frame.tensors[slot] for slot in program.wiring.outputs]

    def _run_step(self, step: _Step, frame: _StepTensors) -> None:
        # Tensors move before and after the turn: others have the device meanwhile.
        start = perf_counter()
        inputs = step.copies.take(frame)
        # By its number: the oldest frame has a borrowed device first.
        loan = self._loan = Loan(step.turns, self.frame_number, self.wait)
        outputs = step.runtime.run_in_turn(step.program, inputs, loan)
        if self._is_broken:
            # The frame is another worker's by now; it must not have the next device.
            raise DeviceLost(f"{step.unit.name} was given up")
        step.copies.leave(frame, outputs)
        self.times.append(StepTimes(start, loan.asked, loan.begin, loan.end, perf_counter()))

    def copy_in(self, array: np.ndarray) -> np.ndarray:
        """Return `array` itself."""
        return array

    def copy_out(self, tensor: np.ndarray) -> np.ndarray:
        """Return `tensor` itself."""
        return tensor

    def break_off(self) -> None:
        """Release a hanging step's loan and interrupt its device; from another thread."""
        self._is_broken = True
        if (step := self._current) is None:
            return
        # First: others wait for the device, which may refuse to be interrupted.
        if self._loan is not None:
            self._loan.release()
        step.runtime.break_off()

    def close(self) -> None:
        """Close all devices, even after an error."""
        with contextlib.ExitStack() as stack:
            for runtime in self._runtimes.values():
                stack.callback(runtime.close)
