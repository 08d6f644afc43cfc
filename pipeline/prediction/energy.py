"""Energy: joules of a frame above rest, by devices at work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.core.board.board import Board
from pipeline.core.plan.stage_plan import StagePlan


def frame_joules(board: Board, stages: Sequence[StagePlan]) -> float | None:
    """Return one frame's energy above rest; None without power figures."""
    total = 0.0
    for stage in stages:
        for name, seconds, share in _work(board, stage):
            device = board.device(name)
            if not device.watts_busy:
                return None
            total += seconds * (device.watts_busy - device.watts_idle) * share
    return total


def _work(board: Board, stage: StagePlan) -> Iterator[tuple[str, float, float]]:
    """Yield device, seconds per frame, and its busy share (0 to 1)."""
    for replica, seconds in enumerate(stage.replica_times):
        core_share, frames = _core_share(board, stage, replica), stage.share(replica)
        for step in stage.at_replica(replica).steps:
            yield step.device, step.seconds * frames, core_share if step.device == stage.device else 1.0
        if not stage.steps:
            yield stage.replica_names[replica], seconds * frames, core_share


def _core_share(board: Board, stage: StagePlan, replica: int) -> float:
    """Return a replica's share of its device's power, by core speed."""
    device, cores = board.device(stage.device), stage.cores_of(replica)
    if not device.cores or device.capabilities.has_slots:
        return 1 / device.slot_count
    return sum(map(device.speed, cores)) / sum(map(device.speed, device.cores))
