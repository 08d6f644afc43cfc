"""Tasks: the kernels of a model's stages that may be tuned, with the time that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline.board import Device
from pipeline.executor.build import compile_stage, runs_here
from pipeline.executor.kernel_times import by_function, of_calls
from pipeline.executor.schedules import machine as machines
from pipeline.executor.schedules import plain
from pipeline.executor.schedules.anchors import Fused
from pipeline.executor.schedules.tiled.packing import Layout
from pipeline.executor.tuning import layouts, workload
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
    """A function to be tuned, or several that a rule writes with the same layout.

    Attributes
    ----------
    key : Key
    names : tuple of str
        Of the functions, the slowest first.
    function : tvm.tirx.PrimFunc
        The slowest one, without a schedule.
    anchor : Fused, optional
        What the rule writes it from.
    form : Layout, optional
        The rule's own.
    rule : tvm.tirx.PrimFunc
        As it is built without tuning.
    target : tvm.target.Target
    subject : Subject
        The first stage that it is in.
    seconds : float
        Of all their calls in one frame, as built without tuning.
    """

    key: Key
    names: tuple[str, ...]
    function: Any = field(repr=False)
    anchor: Fused | None = field(repr=False)
    form: Layout | None
    rule: Any = field(repr=False)
    target: Any = field(repr=False)
    subject: Subject = field(repr=False)
    seconds: float

    @property
    def name(self) -> str:
        """The slowest function's."""
        return self.names[0]


class _Seen:
    """Notes what of a stage may be tuned, and leaves it to the rules and to the general schedule."""

    def __init__(self) -> None:
        self.functions: dict[str, tuple[Any, Fused | None, Layout | None]] = {}
        self.target: Any = None

    def for_stage(self, target: Any, _: int) -> _Seen:
        self.target = target
        return self

    @staticmethod
    def layout(form: Layout) -> Layout:
        return form

    def kernel(self, name: str, function: Any, anchor: Fused | None) -> None:
        form = None if anchor is None else layouts.of(anchor)
        if anchor is None or form is not None:
            self.functions[name] = function, anchor, form


def of_stage(subject: Subject) -> list[Task]:
    """Return the tasks of a stage that this machine can run, the slowest first."""
    if not runs_here(subject.device):
        return []
    seen = _Seen()
    code = compile_stage(subject.module, subject.device, subject.cores, tuning=seen)
    if not seen.functions or code.calls is None:
        return []
    times = of_calls(subject.stage, code, subject.device)
    taken = by_function([(call.function, each) for call, each in zip(code.calls, times, strict=False)])
    seconds = {name: sum(taken.get(name, ())) for name in seen.functions}
    tasks = [_task(key, names, seen, subject, seconds) for key, names in _alike(seen, subject.cores).items()]
    worth = [task for task in tasks if task.seconds > LEAST_SHARE * sum(times)]
    return sorted(worth, key=lambda task: -task.seconds)


def _alike(seen: _Seen, cores: int) -> dict[Key, list[str]]:
    """Return the functions by the key under which a schedule for them is kept."""
    together: dict[Key, list[str]] = {}
    for name, (function, _, form) in seen.functions.items():
        whole, layout = workload.key_of, workload.key_of_layout
        key = whole(function, seen.target, cores) if form is None else layout(form, seen.target, cores)
        together.setdefault(key, []).append(name)
    return together


def merged(tasks: Sequence[Task]) -> list[Task]:
    """Return one task for each key, which stands for all that are alike."""
    together: dict[Key, Task] = {}
    for task in tasks:
        known = together.get(task.key)
        together[task.key] = task if known is None else known
    return list(together.values())


def _task(key: Key, names: Sequence[str], seen: _Seen, subject: Subject, seconds: Mapping[str, float]) -> Task:
    slowest = sorted(names, key=lambda name: -seconds[name])
    function, anchor, form = seen.functions[slowest[0]]
    machine = machines.of(seen.target)
    if anchor is None or form is None:
        rule = plain.scheduled(function, machine, subject.cores)
    else:
        rule = layouts.written(anchor, form, machine, subject.cores)
    total = sum(seconds[name] for name in names)
    return Task(key, tuple(slowest), function, anchor, form, workload.finished(rule), seen.target, subject, total)
