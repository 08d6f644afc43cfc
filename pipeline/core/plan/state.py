"""State: values that a stage keeps from one frame of a stream for the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.plan.stage_plan import StagePlan, TensorSpec
from pipeline.errors import PlanError


@dataclass(frozen=True)
class State:
    """An output that the same stage reads as an input in the stream's next frame."""

    input: TensorSpec
    """Input that holds the value; callers do not give it."""
    output: str
    """Tensor with the next frame's value."""
    initial: tuple[float, ...] = ()
    """Value in a stream's first frame: of each element in row-major order, or one for all; empty for zeros."""

    @staticmethod
    def of(spec: TensorSpec, output: str, initial: np.ndarray) -> State:
        """Return a state with the value of its first frame."""
        values = initial.ravel().tolist()
        if len(set(values)) < 2:
            values = values[:1] if any(values) else []
        return State(spec, output, tuple(values))

    def first_value(self) -> np.ndarray:
        """Return the value in a stream's first frame."""
        values = np.array(self.initial or (0,)).astype(self.input.dtype)
        shape = self.input.shape
        return np.array(np.broadcast_to(values, shape) if values.size == 1 else values.reshape(shape))


def check_states(stages: Sequence[StagePlan], states: Sequence[State]) -> None:
    """Raise `PlanError` unless a single worker keeps each state, and gets frames in order."""
    makers = {spec.name: stage for stage in stages for spec in stage.outputs}
    for state in states:
        name = state.input.name
        readers = [stage.name for stage in stages if state.input in stage.inputs]
        maker = makers.get(state.output)
        if maker is None or readers != [maker.name]:
            raise PlanError(
                f"state {name!r} is read by {_join(readers)} and written as {state.output!r} by "
                f"{_join([maker.name] if maker else [])}; leave both in one stage"
            )
        if TensorSpec(state.output, state.input.shape, state.input.dtype) not in maker.outputs:
            raise PlanError(f"state {state.input} and its output {state.output!r} differ in shape or dtype")
        if len(state.initial) not in (0, 1, math.prod(state.input.shape)):
            raise PlanError(f"state {state.input} has {len(state.initial)} initial values; give 1, or one per element")
        for stage in _ancestors(maker, makers):
            if stage.replicas > 1:
                raise PlanError(
                    f"stage {maker.name!r} keeps the state {name!r} and needs frames in order, but stage "
                    f"{stage.name!r} has {stage.replicas} replicas; give it one"
                )


def _ancestors(stage: StagePlan, makers: dict[str, StagePlan]) -> list[StagePlan]:
    """Return a stage and all that its frames pass before."""
    found = {stage.name: stage}
    pending = [stage]
    while pending:
        reads = (makers[spec.name] for spec in pending.pop().inputs if spec.name in makers)
        fresh = [maker for maker in reads if maker.name not in found]
        found |= {maker.name: maker for maker in fresh}
        pending += fresh
    return list(found.values())


def _join(names: Sequence[str]) -> str:
    return " and ".join(f"stage {name!r}" for name in names) or "no stage"
