"""Goals: objectives of a plan."""

from __future__ import annotations

from numbers import Real

import numpy as np

from pipeline.core.board.board import Board
from pipeline.errors import PlanError
from pipeline.split.planning.problem.request import PlanRequest

OBJECTIVES = ("throughput", "latency", "energy")


def resolve_goal(objective: str | None, fps: float | None) -> str:
    """Return the objective, by default by the rate."""
    if fps is not None and not _is_rate(fps):
        raise PlanError(f"fps is {fps!r}; it must be a number above 0")
    goal = objective or ("latency" if fps else "throughput")
    if goal not in OBJECTIVES:
        raise PlanError(f"objective is {objective!r}; it must be one of {', '.join(OBJECTIVES)}")
    return goal


def _is_rate(value: object) -> bool:
    return isinstance(value, Real) and 0 < float(value) < np.inf


def check_watts(board: Board, request: PlanRequest) -> None:
    """Raise `PlanError` for devices without power: they would look free."""
    devices = {device.name: device for devices in request.devices or [board.devices] for device in devices}
    unknown = [repr(name) for name, device in devices.items() if not device.watts_busy]
    if unknown:
        raise PlanError(
            f"the objective 'energy' needs the power of all devices; board {board.name!r} has none of "
            f"{', '.join(unknown)}: give 'watts_idle' and 'watts_busy' in its file, or take another objective"
        )
