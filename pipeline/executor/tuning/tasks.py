"""Tasks: the kernels of a model's stages that no rule writes, with the time that they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline.board import Device
from pipeline.executor import devices
from pipeline.executor.build import compile_stage
from pipeline.executor.general import runs_here
from pipeline.executor.kernel_times import by_function, of_calls
from pipeline.executor.tuning import workload
from pipeline.executor.tuning.database import Key
from pipeline.plans import StagePlan

LEAST_SHARE = 0.005
"""Of the stage's time; what takes less is not worth a search."""


class Subject(NamedTuple):
    """A stage that is to be tuned."""

    stage: StagePlan
    module: Any
    device: Device

    @property
    def cores(self) -> int:
        """How many cores its kernels are built for."""
        return max(1, len(self.stage.cores_of(0)))


@dataclass(frozen=True)
class Task:
    """One function to be tuned.

    Attributes
    ----------
    key : Key
    name : str
    function : tvm.tirx.PrimFunc
        Without a schedule.
    rule : tvm.tirx.PrimFunc
        As it is built without tuning.
    target : tvm.target.Target
    subject : Subject
        The first stage that it is in.
    seconds : float
        Of all its calls in one frame, as built without tuning.
    """

    key: Key
    name: str
    function: Any = field(repr=False)
    rule: Any = field(repr=False)
    target: Any = field(repr=False)
    subject: Subject = field(repr=False)
    seconds: float


class _Seen:
    """Notes what a stage has no rules for, and leaves it to the general schedule."""

    def __init__(self) -> None:
        self.functions: dict[str, Any] = {}
        self.target: Any = None

    def for_stage(self, target: Any, _: int) -> Callable[[str, Any], None]:
        self.target = target
        return self.functions.__setitem__


def of_stage(subject: Subject) -> list[Task]:
    """Return the tasks of a stage that this machine can run, the slowest first."""
    if not devices.computes(subject.device):
        return []
    seen = _Seen()
    code = compile_stage(subject.module, subject.device, subject.cores, tuning=seen)
    if not seen.functions or code.calls is None or not runs_here(code):
        return []
    times = of_calls(subject.stage, code, subject.device)
    taken = by_function([(call.function, each) for call, each in zip(code.calls, times, strict=False)])
    least = LEAST_SHARE * sum(times)
    names = [name for name in seen.functions if sum(taken.get(name, ())) > least]
    tasks = [_task(name, seen.functions[name], seen.target, subject, sum(taken[name])) for name in names]
    return sorted(tasks, key=lambda task: -task.seconds)


def merged(tasks: Sequence[Task]) -> list[Task]:
    """Return one task for each key, which stands for all that are alike."""
    together: dict[Key, Task] = {}
    for task in tasks:
        known = together.get(task.key)
        together[task.key] = task if known is None else known
    return list(together.values())


def _task(name: str, function: Any, target: Any, subject: Subject, seconds: float) -> Task:
    from pipeline.executor.schedules import machine, plain

    rule = workload.finished(plain.scheduled(function, machine.of(target), subject.cores))
    key = workload.key_of(function, target, subject.cores)
    return Task(key, name, function, rule, target, subject, seconds)
