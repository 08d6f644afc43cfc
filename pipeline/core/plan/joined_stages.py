"""Joined stages: consecutive stages as steps of one, with borrowed devices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, replace

from pipeline.core.board.board import Board
from pipeline.core.plan.stage_plan import StagePlan, StepPlan
from pipeline.errors import PlanError


def join_stages(  # noqa: PLR0913 - the last ones by keyword
    board: Board,
    stages: Sequence[StagePlan],
    readers: Collection[str],
    *,
    device: str | None,
    cores: Sequence[int] | None,
    replicas: int,
) -> StagePlan:
    """Return one stage with each of `stages` as a step."""
    worker_device = _own_device(board, stages) if device is None else device
    if cores is None:
        cores = [core for stage in stages if board.is_one_device(stage.device, worker_device) for core in stage.cores]
    results = {spec.name for stage in stages for spec in stage.outputs}
    read = {spec.name: spec for stage in stages for spec in stage.inputs if spec.name not in results}
    outputs = tuple(spec for stage in stages for spec in stage.outputs if spec.name in readers)
    if nested := next((stage.name for stage in stages if stage.steps), None):
        raise PlanError(f"stage {nested!r} has steps already; join the stages that these were made of")
    steps = tuple(
        StepPlan(**{field.name: getattr(stage, field.name) for field in fields(StepPlan)}) for stage in stages
    )
    return replace(
        stages[0],
        device=worker_device,
        inputs=tuple(read.values()),
        outputs=outputs,
        operators=(*stages[0].operators[:1], *stages[-1].operators[-1:]),
        cores=tuple(dict.fromkeys(cores)),
        seconds=sum(stage.seconds for stage in stages),
        transfer_s=sum(stage.transfer_s for stage in stages),
        replicas=replicas,
        replica_devices=(),
        replica_seconds=(),
        memory_traffic=sum(stage.memory_traffic for stage in stages),
        steps=steps,
        cause="asked for",
    )


def _own_device(board: Board, stages: Sequence[StagePlan]) -> str:
    """Return the first device with cores, where a worker is at home."""
    names = [stage.device for stage in stages]
    return next((name for name in names if board.device(name).cores), names[0])
