"""Python stages: functions before, between or behind a bundle's stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, StepPlan, TensorSpec
from pipeline.errors import PlanError, near
from pipeline.executor.devices.python import FreshOutputs

DEVICE = "python"
"""Name of the device that functions run on."""

Spec = TensorSpec | str
"""Tensor of a stage, or the name of an existing one."""


def with_stage(  # noqa: PLR0913 - all but the first two by keyword
    plan: Plan,
    codes: Sequence[Any],
    function: Callable[..., Any],
    *,
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    name: str = "",
    queue_depth: int = 2,
    replicas: int = 1,
    fresh: bool = False,
) -> tuple[Plan, tuple[Any, ...]]:
    """Return plan and codes with an additional stage calling `function`.

    Where the stage stands follows from its tensors:

    - before: an output named like a model input takes its place; inputs that are new become model inputs.
    - behind: outputs that are new become outputs of the pipeline, instead of those that the function reads.
    - between: an output named like a tensor that the function reads too takes its place for all later readers.

    Raises `PlanError` if a name is unknown, or there is no place where the stage could stand.

    Parameters
    ----------
    codes : sequence
        The built stage for each stage.
    function : callable
        Function of an array for each input; returns an array, or several as a sequence or a mapping by name.
    inputs, outputs : sequence of TensorSpec or str
        Tensors that it reads and makes; a name alone stands for an existing tensor.
    name : str
        Name of the stage; the function's own by default.
    queue_depth, replicas : int
        Queue depth and replicas of the `StagePlan`.
    fresh : bool
        True if each call returns new arrays, or its inputs, and the function leaves them alone afterwards.  They pass
        by reference then; else they are copied, so that a function may use its own buffers again for the next frame.

    Examples
    --------
    >>> plan, codes = with_stage(  # doctest: +SKIP
    ...     plan, codes, resize, inputs=[TensorSpec("photo", (480, 640, 3), "uint8")], outputs=["image"]
    ... )
    """
    tensors = {spec.name: spec for spec in (*plan.inputs, *(spec for stage in plan.stages for spec in stage.outputs))}
    reads, makes = (tuple(_spec(item, tensors) for item in specs) for specs in (inputs, outputs))
    stage = StagePlan(
        name or getattr(function, "__name__", "function"),
        DEVICE,
        reads,
        makes,
        queue_depth=queue_depth,
        replicas=replicas,
    )
    # One device for all functions, since the interpreter runs one of them at a time anyway.
    board = _with_device(plan.board)
    # As early as can be, so that nobody who reads what it makes comes before it.
    position = _position(plan, stage)
    new_outputs = tuple(spec for spec in makes if spec.name not in tensors)
    taken_inputs = {spec.name for spec in plan.inputs if spec.name in _names(makes) and spec.name not in _names(reads)}
    # Last of all: the position, and what is new, follow from the names that the caller gave.
    stages, stage = _separate_names(plan, stage)
    extended_plan = dataclasses.replace(
        plan,
        board=board,
        inputs=(
            *(spec for spec in plan.inputs if spec.name not in taken_inputs),
            *(spec for spec in reads if spec.name not in tensors),
        ),
        outputs=(*(spec for spec in plan.outputs if not new_outputs or spec.name not in _names(reads)), *new_outputs),
        stages=(*stages[:position], stage, *stages[position:]),
    )
    code = FreshOutputs(function) if fresh else function
    # A stage of several steps has as many codes.
    number = sum(len(earlier.units) for earlier in stages[:position])
    return extended_plan, (*codes[:number], code, *codes[number:])


def _spec(spec: Spec, tensors: Mapping[str, TensorSpec]) -> TensorSpec:
    if isinstance(spec, TensorSpec):
        return spec
    if spec not in tensors:
        raise PlanError(
            f"the pipeline has no tensor {spec!r}{near(spec, tensors)}; give a TensorSpec for a tensor that is new"
        )
    return tensors[spec]


def _names(specs: Sequence[TensorSpec]) -> set[str]:
    return {spec.name for spec in specs}


def _with_device(board: Board) -> Board:
    if any(device.name == DEVICE for device in board.devices):
        return board
    return dataclasses.replace(board, devices=(*board.devices, Device(DEVICE, "python")))


def _position(plan: Plan, stage: StagePlan) -> int:
    """Return a stage's position behind its producers, before its consumers."""
    makers = [number for number, producer in enumerate(plan.stages) if _names(producer.outputs) & _names(stage.inputs)]
    readers = [number for number, consumer in enumerate(plan.stages) if _names(consumer.inputs) & _names(stage.outputs)]
    first, last = max(makers, default=-1) + 1, min(readers, default=len(plan.stages))
    if first > last:
        raise PlanError(
            f"there is no place for the stage {stage.name!r}: stage {plan.stages[last].name!r} reads what it makes, "
            f"and comes before stage {plan.stages[first - 1].name!r}, which makes what it reads"
        )
    return first


def _separate_names(plan: Plan, stage: StagePlan) -> tuple[tuple[StagePlan, ...], StagePlan]:
    """Separate a stage's equal input and output names, keeping the caller's."""
    stages = plan.stages
    for name in sorted(_names(stage.inputs) & _names(stage.outputs)):
        # Callers submit it under its name, so the stage's result is renamed, with all who read it.
        if name in _names(plan.inputs):
            unique_name = f"{name} behind {stage.name}"
            stages = tuple(_rename_in(user, name, unique_name) for user in stages)
            stage = dataclasses.replace(stage, outputs=_rename(stage.outputs, name, unique_name))
        else:
            # The result may leave the pipeline under its name, so what the stage reads is renamed where it is made.
            unique_name = f"{name} before {stage.name}"
            stages = tuple(
                _rename_in(maker, name, unique_name) if name in _names(maker.outputs) else maker for maker in stages
            )
            stage = dataclasses.replace(stage, inputs=_rename(stage.inputs, name, unique_name))
    return stages, stage


def _rename_in(stage: StagePlan, name: str, new_name: str) -> StagePlan:
    """Rename a tensor in a stage and its steps."""
    steps, inputs, outputs = (
        tuple(_rename_in_step(step, name, new_name) for step in stage.steps),
        _rename(stage.inputs, name, new_name),
        _rename(stage.outputs, name, new_name),
    )
    return dataclasses.replace(stage, steps=steps, inputs=inputs, outputs=outputs)


def _rename_in_step(step: StepPlan, name: str, new_name: str) -> StepPlan:
    inputs, outputs = (_rename(specs, name, new_name) for specs in (step.inputs, step.outputs))
    return dataclasses.replace(step, inputs=inputs, outputs=outputs)


def _rename(specs: tuple[TensorSpec, ...], name: str, new_name: str) -> tuple[TensorSpec, ...]:
    return tuple(dataclasses.replace(spec, name=new_name) if spec.name == name else spec for spec in specs)
