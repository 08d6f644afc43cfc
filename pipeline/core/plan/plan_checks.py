"""Checks of a plan: every tensor is made once, before its readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pipeline.core.board.board import Board
from pipeline.core.plan.stage_plan import StagePlan, StepPlan, TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import PlanError, near

MOST_FRAMES = 1 << 20
"""Upper bound on frames in flight. Each slot of a queue takes memory as soon as the pipeline is loaded."""

# Each is a thread of its own.
MOST_REPLICAS = 1024

# Above the 8192 cores that Linux can be built for; the sets of cores that are sent to the system grow with it.
MOST_CORE = 1 << 16

LONGEST_S = 1e9
"""Longest predicted time in seconds: 30 years, within the range of the system's clocks."""

MOST_TRAFFIC = 1e18
"""Bytes of one frame to and from memory."""

# NumPy 1's limit; NumPy 2 takes 64.
MOST_AXES = 32

LARGEST_TENSOR = 1 << 48
"""Bytes, more than any address space of today has."""


def check_tensors(
    board: Board, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], stages: Sequence[StagePlan]
) -> None:
    """Raise `PlanError` unless the stages form a pipeline on the board."""
    if not stages:
        raise PlanError("a plan needs at least one stage")
    _check_unique("stage", (stage.name for stage in stages))
    _check_unique("model input", (spec.name for spec in inputs))
    _check_unique("model output", (spec.name for spec in outputs))
    if not outputs:
        raise PlanError("a plan needs at least one output; name what the caller shall get")
    origins = {spec.name: (_check_spec(spec), "a model input") for spec in inputs}
    # Of all stages, later ones included: a message can then say that the order is wrong, not only that nothing makes
    # it.
    makers = {spec.name: stage.name for stage in stages for spec in stage.outputs}
    for stage in stages:
        board.device(stage.device)
        _check_numbers(stage)
        _check_replicas(board, stage)
        _check_stage_tensors(stage, origins, makers)
        _check_steps(board, stage)
    for spec in outputs:
        if spec.name not in origins:
            raise PlanError(f"no stage makes the model output {spec.name!r}{near(spec.name, origins)}")
        _check_same(spec, origins[spec.name][0], "the model output")


def check_limits(in_flight: int, frames_in_flight: int, unsplit_seconds: float) -> None:
    """Raise `PlanError` for impossible frames in flight or unsplit time."""
    if in_flight < 0:
        raise PlanError(f"in_flight is {in_flight}; it must be at least 1, or 0 for the default")
    _check_seconds("the plan: unsplit_seconds", unsplit_seconds)
    if frames_in_flight > MOST_FRAMES:
        raise PlanError(
            f"{frames_in_flight} frames may be inside at once, by in_flight or the queues' depths; at most "
            f"{MOST_FRAMES} can be"
        )


def check_order(order: Sequence[str]) -> None:
    """Raise `PlanError` if an operator is there twice."""
    _check_unique("operator of the order", order)


def check_quantization(outputs: Sequence[TensorSpec], quantization: Sequence[Quantization]) -> None:
    """Raise `PlanError` unless scales match the extents of their axis."""
    shapes = {spec.name: spec.shape for spec in outputs}
    # A stage of Python behind may have made something else of the quantised output.
    for scales in quantization:
        shape, count = shapes.get(scales.tensor), len(scales.scale)
        if shape is not None and count > 1 and shape[scales.axis : scales.axis + 1] != (count,):
            raise PlanError(f"tensor {scales.tensor!r} has {count} scales along axis {scales.axis} of {list(shape)}")


def _check_numbers(stage: StagePlan) -> None:
    if stage.queue_depth < 1:
        raise PlanError(f"stage {stage.name!r}: queue_depth is {stage.queue_depth}; it must be at least 1")
    if stage.queue_depth > MOST_FRAMES:
        raise PlanError(f"stage {stage.name!r}: queue_depth is {stage.queue_depth}; it can be at most {MOST_FRAMES}")
    _check_seconds(f"stage {stage.name!r}: seconds", stage.seconds)
    _check_seconds(f"stage {stage.name!r}: transfer_s", stage.transfer_s)
    for index, seconds in enumerate(stage.replica_seconds):
        _check_seconds(f"stage {stage.name!r}: replica_seconds[{index}]", seconds)
    _check_traffic(f"stage {stage.name!r}", stage.memory_traffic)
    if len(set(stage.cores)) < len(stage.cores) or any(not 0 <= core < MOST_CORE for core in stage.cores):
        raise PlanError(f"stage {stage.name!r}: cores are {list(stage.cores)}; give different numbers of at least 0")


def _check_seconds(title: str, seconds: float) -> None:
    if not 0 <= seconds <= LONGEST_S:
        raise PlanError(f"{title} is {seconds}; it must be a time, at least 0")


def _check_traffic(title: str, nbytes: float) -> None:
    if not 0 <= nbytes <= MOST_TRAFFIC:
        raise PlanError(f"{title}: memory_traffic is {nbytes}; it must be bytes, at least 0")


def _check_stage_tensors(stage: StagePlan, origins: dict[str, tuple[TensorSpec, str]], makers: dict[str, str]) -> None:
    if not stage.inputs:
        raise PlanError(
            f"stage {stage.name!r} has no input; every stage reads a model input or an earlier stage's output"
        )
    if not stage.outputs:
        raise PlanError(f"stage {stage.name!r} has no output; remove it, or name what it makes")
    _check_unique(f"input of stage {stage.name!r}", (spec.name for spec in stage.inputs))
    for spec in stage.inputs:
        if spec.name not in origins:
            reason = _why_unknown(spec.name, stage.name, origins, makers)
            raise PlanError(f"stage {stage.name!r} reads {spec.name!r}, {reason}")
        _check_same(spec, origins[spec.name][0], f"stage {stage.name!r}")
    for spec in stage.outputs:
        if spec.name in origins:
            origin = origins[spec.name][1]
            raise PlanError(f"stage {stage.name!r} makes {spec.name!r}, which is already {origin}; rename one")
        origins[spec.name] = (_check_spec(spec), f"an output of stage {stage.name!r}")


def _check_replicas(board: Board, stage: StagePlan) -> None:
    if stage.replicas < 1:
        raise PlanError(f"stage {stage.name!r}: replicas is {stage.replicas}; it must be at least 1")
    if stage.replicas > MOST_REPLICAS:
        raise PlanError(f"stage {stage.name!r}: replicas is {stage.replicas}; there can be {MOST_REPLICAS}")
    if len(stage.cores) % stage.replicas:
        raise PlanError(
            f"stage {stage.name!r}: {len(stage.cores)} cores cannot be shared out to {stage.replicas} replicas; "
            "give a multiple of their number, or none"
        )
    if stage.replica_devices and len(stage.replica_devices) != stage.replicas:
        raise PlanError(f"stage {stage.name!r}: {len(stage.replica_devices)} devices for {stage.replicas} replicas")
    if stage.replica_seconds and len(stage.replica_seconds) != stage.replicas:
        raise PlanError(
            f"stage {stage.name!r}: replica_seconds has {len(stage.replica_seconds)} times for {stage.replicas} "
            "replicas"
        )
    kind = board.device(stage.device).kind
    for device in map(board.device, stage.replica_devices):
        if device.kind != kind:
            raise PlanError(
                f"stage {stage.name!r}: its replica on {device.name!r} is of kind {device.kind!r}, not {kind!r}"
            )


def _check_steps(board: Board, stage: StagePlan) -> None:
    """Check the inputs and outputs of a heterogeneous stage's steps."""
    if not stage.steps:
        return
    if stage.replica_devices:
        raise PlanError(f"stage {stage.name!r}: a stage with steps has one device of its own, but replica_devices too")
    available = {spec.name: spec for spec in stage.inputs}
    for number, step in enumerate(stage.steps):
        title = f"step {number} of stage {stage.name!r}"
        # Refuse to borrow a device tied to other cores.
        device = board.device(step.device)
        if device.cores and not board.is_one_device(step.device, stage.device):
            raise PlanError(
                f"{title} cannot borrow {step.device!r}, which is made of cores; make a stage of its own for it"
            )
        _check_seconds(f"{title}: seconds", step.seconds)
        _check_seconds(f"{title}: transfer_s", step.transfer_s)
        _check_traffic(title, step.memory_traffic)
        _check_step_tensors(title, step, available)
    for spec in stage.outputs:
        if spec.name not in available:
            raise PlanError(f"no step of stage {stage.name!r} makes its output {spec.name!r}")
        _check_same(spec, available[spec.name], f"stage {stage.name!r}")


def _check_step_tensors(title: str, step: StepPlan, available: dict[str, TensorSpec]) -> None:
    """Check one step, and add its outputs to `available`."""
    if not step.inputs or not step.outputs:
        raise PlanError(f"{title} needs at least one input and one output")
    for spec in step.inputs:
        if spec.name not in available:
            raise PlanError(f"{title} reads {spec.name!r}, which nothing before it makes{near(spec.name, available)}")
        _check_same(spec, available[spec.name], title)
    for spec in step.outputs:
        if spec.name in available:
            raise PlanError(f"{title} makes {spec.name!r}, which is there already; rename one")
        available[spec.name] = _check_spec(spec)


def _why_unknown(name: str, stage: str, names: Iterable[str], makers: dict[str, str]) -> str:
    if makers.get(name) == stage:
        return "which it makes itself; a stage reads model inputs and earlier stages only"
    if name in makers:
        return f"which the later stage {makers[name]!r} makes; order the stages so that producers come first"
    return f"which nothing makes{near(name, names)}"


def _check_spec(spec: TensorSpec) -> TensorSpec:
    try:
        # NumPy parses strings such as "(2," as Python, and so raises any of these.
        np.dtype(spec.dtype)
    except (TypeError, ValueError, SyntaxError, OverflowError, RecursionError):
        raise PlanError(f"tensor {spec.name!r} has the dtype {spec.dtype!r}, which NumPy does not know") from None
    if len(spec.shape) > MOST_AXES or any(extent < 0 for extent in spec.shape):
        raise PlanError(
            f"tensor {spec.name!r} has the shape {list(spec.shape)}; it can have {MOST_AXES} extents of at least 0"
        )
    if spec.nbytes > LARGEST_TENSOR:
        raise PlanError(f"tensor {spec.name!r} has {spec.nbytes} bytes; no machine has so many")
    return spec


def _check_same(spec: TensorSpec, producer_spec: TensorSpec, reader: str) -> None:
    if (spec.shape, spec.dtype) != (producer_spec.shape, producer_spec.dtype):
        raise PlanError(f"{reader} expects {spec}, but it is made as {producer_spec}")


def _check_unique(title: str, names: Iterable[str]) -> None:
    earlier: set[str] = set()
    for name in names:
        if name in earlier:
            raise PlanError(f"{title} {name!r} is there twice; names must be unique")
        earlier.add(name)
