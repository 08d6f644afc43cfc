"""Cluster plan: local stages, and the rest as one cluster stage."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.core.shapes import Build, OpenShapes
from pipeline.errors import PlanError
from pipeline.executor.bundle import Bundle

DEVICE = "cluster"
"""Name of the device that stands for the replicas."""


@dataclass(frozen=True)
class ClusterBundle:
    """Bundle with remote stages, for `Pipeline.swap`."""

    builds: tuple[Build, ...]
    shapes: OpenShapes | None


def split_bundle(bundle: Bundle, saved: Bundle | None = None) -> tuple[Bundle, int]:
    """Return the replicas' bundle, and the count of local function stages.

    Raises `PlanError` if there are functions elsewhere, or replicas would load something else.

    `saved`: bundle that replicas load, without these functions.
    """
    plan = bundle.plan
    travels = [plan.board.device(stage.device).capabilities.in_files for stage in plan.stages]
    count = travels.index(True) if any(travels) else len(travels)
    if not all(travels[count:]) or count == len(travels):
        raise PlanError("only functions in front of a bundle's stages can stay here; call the others on the results")
    if not count:
        return bundle, 0
    stages = plan.stages[count:]
    makes = {spec.name for stage in stages for spec in stage.outputs}
    if foreign := [spec.name for spec in plan.outputs if spec.name not in makes]:
        raise PlanError(f"the output {foreign[0]!r} is made by a function in front of the bundle; leave it out")
    inputs = _inputs(stages, makes) if saved is None else _saved_inputs(stages, saved.plan)
    units = sum(len(stage.units) for stage in plan.stages[:count])
    board = replace(plan.board, devices=tuple(device for device in plan.board.devices if device.capabilities.in_files))
    part = replace(plan, board=board, inputs=inputs, stages=stages, in_flight=0)
    return Bundle(part, bundle.codes[units:], numerics=bundle.numerics), count


def _inputs(stages: Sequence[StagePlan], makes: Container[str]) -> tuple[TensorSpec, ...]:
    return tuple({spec.name: spec for stage in stages for spec in stage.inputs if spec.name not in makes}.values())


def _saved_inputs(stages: Sequence[StagePlan], saved: Plan) -> tuple[TensorSpec, ...]:
    """Return the inputs in the replicas' plan order, undoing functions' renames."""
    if [stage.name for stage in stages] != [stage.name for stage in saved.stages]:
        raise PlanError("the bundle in the folder has other stages; give the one that the functions were put before")
    pairs = zip(stages, saved.stages, strict=True)
    names = {old.name: spec for stage, origin in pairs for spec, old in zip(stage.inputs, origin.inputs, strict=True)}
    return tuple(names[spec.name] for spec in saved.inputs)


def cluster_bundle(bundle: Bundle, part: Bundle, count: int, workers: int, queue_depth: int) -> ClusterBundle:
    """Return the first `count` stages, which stay here, with one stage for the replicas, which run `part`.

    The replicas have `workers` frames together, and `queue_depth` may wait in front of them.
    """
    builds = [
        Build(_cluster_plan(build.plan, remote.plan, count, workers, queue_depth), (*build.codes[:count], None))
        for build, remote in zip(bundle.builds, part.builds, strict=True)
    ]
    symbolic = [
        replace(build, symbolic=original.symbolic) for build, original in zip(builds, bundle.builds, strict=True)
    ]
    return ClusterBundle(tuple(symbolic), bundle.shapes)


def _cluster_plan(plan: Plan, remote: Plan, count: int, workers: int, queue_depth: int) -> Plan:
    local_stages = plan.stages[:count]
    stage = StagePlan(
        _unique_name(DEVICE, [stage.name for stage in plan.stages]),
        DEVICE,
        remote.inputs,
        remote.outputs,
        seconds=sum(stage.seconds for stage in remote.stages),
        queue_depth=queue_depth,
        replicas=workers,
    )
    devices = [plan.board.device(stage.device) for stage in local_stages]
    board = Board(DEVICE, (*dict.fromkeys(devices), Device(DEVICE, "null", memory=_memory(devices))))
    return replace(plan, board=board, stages=(*local_stages, stage), in_flight=0)


def _memory(devices: Sequence[Device]) -> str:
    return devices[0].memory if devices else "host"


def _unique_name(name: str, taken_names: Sequence[Any]) -> str:
    return name if name not in taken_names else _unique_name(f"{name}_", taken_names)
