"""Tasks: tunable kernels of a model's stages, with their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline.core.board.board import Device
from pipeline.core.numerics import Numerics
from pipeline.core.plan.plan import StagePlan
from pipeline.executor.build import compile_stage, runs_here
from pipeline.executor.executable import CompileOptions
from pipeline.executor.kernels import general, microarchitecture
from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.tuning import layouts, workload
from pipeline.executor.tuning.database import TuningKey
from pipeline.executor.tuning.kernel_times import by_function, of_calls

LEAST_SHARE = 0.005
"""Least share of a stage's time worth a search."""


class Subject(NamedTuple):
    """A stage under tuning."""

    stage: StagePlan
    module: Any
    device: Device

    @property
    def cores(self) -> int:
        """Number of cores of its kernels."""
        return max(1, len(self.stage.cores_of(0)))


@dataclass(frozen=True)
class Task:
    """Functions to tune, sharing a rule's layout if several."""

    key: TuningKey
    names: tuple[str, ...]
    """Names of the functions, the slowest first."""
    function: Any = field(repr=False)
    """The slowest one, without a schedule. A `tvm.tirx.PrimFunc`."""
    group: FusedGroup | None = field(repr=False)
    """Group from which the rule writes it."""
    form: PackedLayout | None
    """The rule's own."""
    rule: Any = field(repr=False)
    """Function as built without tuning. A `tvm.tirx.PrimFunc`."""
    target: Any = field(repr=False)
    """A `tvm.target.Target`."""
    subject: Subject = field(repr=False)
    """The first stage that it is in."""
    seconds: float
    """Seconds of all their calls in one frame, as built without tuning."""

    @property
    def name(self) -> str:
        """The slowest function's."""
        return self.names[0]


class _TunableFunctions:
    """Records a stage's tunable functions, leaving them to the rules."""

    def __init__(self) -> None:
        self.functions: dict[str, tuple[Any, FusedGroup | None, PackedLayout | None]] = {}
        self.target: Any = None

    def for_stage(self, target: Any, _: int) -> _TunableFunctions:
        self.target = target
        return self

    @staticmethod
    def layout(form: PackedLayout) -> PackedLayout:
        return form

    def kernel(self, name: str, function: Any, group: FusedGroup | None) -> None:
        form = None if group is None else layouts.layout_of(group)
        # A kernel without a layout of float32 weights leaves nothing to choose.
        if group is None or form is not None:
            self.functions[name] = function, group, form

    def rename(self, names: Mapping[str, str]) -> None:
        self.functions = {names[name]: entry for name, entry in self.functions.items()}


def of_stage(subject: Subject, least_share: float = LEAST_SHARE) -> list[Task]:
    """Return a stage's tasks on this machine, slowest first.

    `least_share`: least share of the stage's time; tasks that take less are left out.
    """
    if not runs_here(subject.device):
        return []
    tunable = _TunableFunctions()
    # As it is built without tuning: `tunable` only notes what it is asked for.
    code = compile_stage(
        subject.module, subject.device, subject.cores, CompileOptions(tuning=tunable, numerics=Numerics())
    )
    # Calls are unknown where TVM alone has made the code.
    if not tunable.functions or code.calls is None:
        return []
    times = of_calls(subject.stage, code, subject.device)
    # There are no times if the machine made other calls than expected; then nothing is worth tuning.
    call_times = by_function(
        [(call.function, call_seconds) for call, call_seconds in zip(code.calls, times, strict=False)]
    )
    seconds = {name: sum(call_times.get(name, ())) for name in tunable.functions}
    tasks = [_task(key, names, tunable, subject, seconds) for key, names in _alike(tunable, subject.cores).items()]
    worth = [task for task in tasks if task.seconds > least_share * sum(times)]
    return sorted(worth, key=lambda task: -task.seconds)


def _alike(tunable: _TunableFunctions, cores: int) -> dict[TuningKey, list[str]]:
    """Group functions by the key of their schedule."""
    names_by_key: dict[TuningKey, list[str]] = {}
    for name, (function, _, form) in tunable.functions.items():
        if form is None:
            key = workload.key_of(function, tunable.target, cores)
        else:
            # One layout for all kernels of a shape, whatever is fused to them.
            key = workload.key_of_layout(form, tunable.target, cores)
        names_by_key.setdefault(key, []).append(name)
    return names_by_key


def merge_tasks(tasks: Sequence[Task]) -> list[Task]:
    """Merge tasks of equal key."""
    tasks_by_key: dict[TuningKey, Task] = {}
    for task in tasks:
        # Several stages may have one function, and its schedule is for all of them.
        tasks_by_key.setdefault(task.key, task)
    return list(tasks_by_key.values())


def _task(
    key: TuningKey, names: Sequence[str], tunable: _TunableFunctions, subject: Subject, seconds: Mapping[str, float]
) -> Task:
    slowest = sorted(names, key=lambda name: -seconds[name])
    function, group, form = tunable.functions[slowest[0]]
    cpu = microarchitecture.of_target(tunable.target)
    if group is None or form is None:
        # The function that a schedule has to beat.
        rule = general.schedule(function, cpu, subject.cores)
    else:
        rule = layouts.write_with(group, form, cpu, subject.cores)
    total = sum(seconds[name] for name in names)
    return Task(
        key, tuple(slowest), function, group, form, workload.replace_library_calls(rule), tunable.target, subject, total
    )
