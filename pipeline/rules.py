"""What makes a plan possible: every tensor is made once, by an earlier stage than reads it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from pipeline.errors import PlanError, near

if TYPE_CHECKING:
    from pipeline.plans import Plan, StagePlan, TensorSpec


def check(plan: Plan) -> None:
    """Raise `PlanError` unless the stages form a legal pipeline."""
    if not plan.stages:
        raise PlanError("a plan needs at least one stage")
    if plan.in_flight < 0:
        raise PlanError(f"in_flight is {plan.in_flight}; it must be at least 1, or 0 for the default")
    _unique("stage", (stage.name for stage in plan.stages))
    _unique("model input", (spec.name for spec in plan.inputs))
    _unique("model output", (spec.name for spec in plan.outputs))
    if not plan.outputs:
        raise PlanError("a plan needs at least one output; name what the caller shall get")
    known = {spec.name: (_sound(spec), "a model input") for spec in plan.inputs}
    later = {spec.name: stage.name for stage in plan.stages for spec in stage.outputs}
    for stage in plan.stages:
        plan.board.device(stage.device)
        _check_numbers(stage)
        _check_replicas(plan, stage)
        _check_tensors(stage, known, later)
    for spec in plan.outputs:
        if spec.name not in known:
            raise PlanError(f"no stage makes the model output {spec.name!r}{near(spec.name, known)}")
        _same(spec, known[spec.name][0], "the model output")


def _check_numbers(stage: StagePlan) -> None:
    if stage.queue_depth < 1:
        raise PlanError(f"stage {stage.name!r}: queue_depth is {stage.queue_depth}; it must be at least 1")
    if not (math.isfinite(stage.seconds) and stage.seconds >= 0):
        raise PlanError(f"stage {stage.name!r}: seconds is {stage.seconds}; it must be a time, at least 0")
    if len(set(stage.cores)) < len(stage.cores) or any(core < 0 for core in stage.cores):
        raise PlanError(f"stage {stage.name!r}: cores are {list(stage.cores)}; give different numbers of at least 0")


def _check_tensors(stage: StagePlan, known: dict[str, tuple[TensorSpec, str]], later: dict[str, str]) -> None:
    if not stage.inputs:
        raise PlanError(
            f"stage {stage.name!r} has no input; every stage reads a model input or an earlier stage's output"
        )
    if not stage.outputs:
        raise PlanError(f"stage {stage.name!r} has no output; remove it, or name what it makes")
    _unique(f"input of stage {stage.name!r}", (spec.name for spec in stage.inputs))
    for spec in stage.inputs:
        if spec.name not in known:
            reason = _why_unknown(spec.name, stage.name, known, later)
            raise PlanError(f"stage {stage.name!r} reads {spec.name!r}, {reason}")
        _same(spec, known[spec.name][0], f"stage {stage.name!r}")
    for spec in stage.outputs:
        if spec.name in known:
            what = known[spec.name][1]
            raise PlanError(f"stage {stage.name!r} makes {spec.name!r}, which is already {what}; rename one")
        known[spec.name] = (_sound(spec), f"an output of stage {stage.name!r}")


def _check_replicas(plan: Plan, stage: StagePlan) -> None:
    if stage.replicas < 1:
        raise PlanError(f"stage {stage.name!r}: replicas is {stage.replicas}; it must be at least 1")
    if len(stage.cores) % stage.replicas:
        raise PlanError(
            f"stage {stage.name!r}: {len(stage.cores)} cores cannot be shared out to {stage.replicas} replicas; "
            "give a multiple of their number, or none"
        )
    if stage.replica_devices and len(stage.replica_devices) != stage.replicas:
        raise PlanError(f"stage {stage.name!r}: {len(stage.replica_devices)} devices for {stage.replicas} replicas")
    kind = plan.board.device(stage.device).kind
    for device in map(plan.board.device, stage.replica_devices):
        if device.kind != kind:
            raise PlanError(
                f"stage {stage.name!r}: its replica on {device.name!r} is of kind {device.kind!r}, not {kind!r}"
            )


def _why_unknown(name: str, stage: str, known: Iterable[str], later: dict[str, str]) -> str:
    if later.get(name) == stage:
        return "which it makes itself; a stage reads model inputs and earlier stages only"
    if name in later:
        return f"which the later stage {later[name]!r} makes; order the stages so that producers come first"
    return f"which nothing makes{near(name, known)}"


def _sound(spec: TensorSpec) -> TensorSpec:
    try:
        np.dtype(spec.dtype)
    except TypeError:
        raise PlanError(f"tensor {spec.name!r} has the dtype {spec.dtype!r}, which NumPy does not know") from None
    if any(extent < 0 for extent in spec.shape):
        raise PlanError(f"tensor {spec.name!r} has the shape {list(spec.shape)}; every extent must be at least 0")
    return spec


def _same(spec: TensorSpec, made: TensorSpec, reader: str) -> None:
    if (spec.shape, spec.dtype) != (made.shape, made.dtype):
        raise PlanError(f"{reader} expects {spec}, but it is made as {made}")


def _unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise PlanError(f"{what} {name!r} is there twice; names must be unique")
        seen.add(name)
