"""Kernel coverage: a stage's operators without own kernel, and their time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.executor.stage_code import EXTERNAL, KernelCall, StageCode
from pipeline.executor.tuning.kernel_times import of_calls

_VIEWS = {"expand_dims", "flatten", "reshape", "squeeze"}
"""Kinds of operators that compute nothing."""


@dataclass(frozen=True)
class NamedOperator:
    """An operator as ``inspect`` shows it."""

    name: str
    kind: str


@dataclass(frozen=True)
class GeneralKernel:
    """A kernel without rule."""

    operators: tuple[NamedOperator, ...]
    """Operators that it computes; several if they are fused."""
    share: float | None
    """Share of the stage's time, between 0 and 1; None if it was not measured, or cannot be on this machine."""


@dataclass(frozen=True)
class StageGeneral:
    """Operators of a stage built by general schedules or TVM's."""

    stage: str
    kernels: tuple[GeneralKernel, ...]
    """The slowest first."""

    @property
    def operators(self) -> tuple[NamedOperator, ...]:
        """Operators of all kernels."""
        return tuple(operator for kernel in self.kernels for operator in kernel.operators)

    @property
    def share(self) -> float | None:
        """Their share of the stage's time, if measured."""
        shares = [kernel.share for kernel in self.kernels if kernel.share is not None]
        return sum(shares) if len(shares) == len(self.kernels) else None


def of_stage(
    stage: StagePlan, code: StageCode, device: Device, producers: Mapping[str, NamedOperator], *, run: bool
) -> StageGeneral:
    """Return a new stage's kernels without rule.

    Kernels that only show a tensor in another shape or layout are left out. `producers` are the stage's operators, by
    the tensors that they make. With `run`, this machine runs the stage for its shares.
    """
    # Code that no kernel of this package is in: general as a whole.
    if code.calls is None:
        return StageGeneral(stage.name, (GeneralKernel(_without_views(producers.values()), 1.0),))
    calls = {number: call for number, call in enumerate(code.calls) if call.rule in ("general", EXTERNAL)}
    general_operators = {
        number: operators for number, call in calls.items() if (operators := _operators(call, producers))
    }
    # It runs the stage, which is not worth it where nothing is to be named.
    seconds = of_calls(stage, code, device) if general_operators and run else []
    total = sum(seconds)
    kernels = [
        GeneralKernel(operators, seconds[number] / total if total else None)
        for number, operators in general_operators.items()
    ]
    return StageGeneral(stage.name, tuple(sorted(kernels, key=lambda kernel: -(kernel.share or 0.0))))


def _operators(call: KernelCall, producers: Mapping[str, NamedOperator]) -> tuple[NamedOperator, ...]:
    # A tensor may be spelt another way inside a stage's module.
    return _without_views(producers.get(tensor, NamedOperator(tensor, "operator")) for tensor in call.results)


def _without_views(operators: Iterable[NamedOperator]) -> tuple[NamedOperator, ...]:
    return tuple(dict.fromkeys(operator for operator in operators if operator.kind not in _VIEWS))
