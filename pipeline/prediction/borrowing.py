"""Borrowing: devices, moves and work of a heterogeneous stage's steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.core.board.board import Board
from pipeline.core.plan.moves import StageMoves, StageSet, find_moves
from pipeline.core.plan.stage_plan import StagePlan, StepPlan, TensorSpec
from pipeline.core.plan.state import State


def borrowed_devices(board: Board, stage: StagePlan) -> tuple[str, ...]:
    """Return the foreign devices of a stage's steps, whatever their runtime."""
    names = dict.fromkeys(step.device for step in stage.steps)
    return tuple(name for name in names if not board.is_one_device(name, stage.device))


@dataclass(frozen=True)
class StagePart:
    """Uninterrupted work of a worker: a stage in one piece, or a step."""

    device: str
    moves: StageMoves
    compute_s: float
    """Seconds without what is copied."""
    share: float = 1.0
    """Share of the stage's work, 0 to 1."""
    traffic: float = 0.0
    """Bytes that it moves while it computes."""

    def at(self, board: Board, name: str) -> StagePart:
        """Return the part on an equal device, with copies over its links."""
        old, new = (board.device(device).memory for device in (self.device, name))
        return replace(self, device=name, moves=self.moves if old == new else self.moves.at_memory(old, new))


@dataclass(frozen=True)
class _Steps:
    """Steps of a stage as a flow of tensors."""

    board: Board
    outputs: tuple[TensorSpec, ...]
    stages: tuple[StepPlan, ...]
    frames_in_flight: int = 1
    states: tuple[State, ...] = ()


def step_moves(board: Board, stage: StagePlan) -> list[StageMoves]:
    """Return the moves of each step."""
    return find_moves(_Steps(board, stage.outputs, stage.steps))


def stage_parts(plan: StageSet, moves: Sequence[StageMoves]) -> list[tuple[StagePart, ...]]:
    """Return the parts of each stage; `moves` lie between stages."""
    return [
        _step_parts(plan.board, stage) if stage.steps else (_stage_part(stage, stage_moves),)
        for stage, stage_moves in zip(plan.stages, moves, strict=True)
    ]


def replica_parts(stage: StagePlan, parts: Sequence[StagePart], replica: int) -> list[StagePart]:
    """Return the parts of a stage for one replica, counted from 0."""
    if not stage.replica_seconds:
        return list(parts)
    if not stage.steps:
        seconds = stage.replica_seconds[replica]
        return [replace(part, compute_s=max(seconds - part.moves.copy_s, 0.0)) for part in parts]
    steps = stage.at_replica(replica).steps
    times = [max(step.seconds - part.moves.copy_s, 0.0) for step, part in zip(steps, parts, strict=True)]
    total_s = sum(times) or 1.0
    return [
        replace(part, compute_s=seconds, share=seconds / total_s) for part, seconds in zip(parts, times, strict=True)
    ]


def _stage_part(stage: StagePlan, moves: StageMoves) -> StagePart:
    # All of it, also if only samples say how long it takes.
    traffic = max(stage.memory_traffic - moves.copy_bytes, 0.0)
    return StagePart(stage.device, moves, max(stage.mean_seconds - moves.copy_s, 0.0), traffic=traffic)


def _step_parts(board: Board, stage: StagePlan) -> tuple[StagePart, ...]:
    moves = step_moves(board, stage)
    compute_s = [max(step.seconds - move.copy_s, 0.0) for step, move in zip(stage.steps, moves, strict=True)]
    total_s = sum(compute_s)
    shares = [seconds / total_s for seconds in compute_s] if total_s else [1 / len(moves)] * len(moves)
    names = (step.device for step in stage.steps)
    if any(step.memory_traffic for step in stage.steps):
        pairs = zip(stage.steps, moves, strict=True)
        traffic = [max(step.memory_traffic - move.copy_bytes, 0.0) for step, move in pairs]
    else:
        # Files of older versions have the bytes of all steps together.
        nbytes = max(stage.memory_traffic - sum(move.copy_bytes for move in moves), 0.0)
        traffic = [nbytes * share for share in shares]
    return tuple(map(StagePart, names, moves, compute_s, shares, traffic))
