"""Borrowing: what the steps of a heterogeneous stage borrow, and the tensors that move for them."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.board import Board
from pipeline.core.moves import StageMoves, find_moves
from pipeline.core.stage_plan import StagePlan, TensorSpec


def borrowed_devices(board: Board, stage: StagePlan) -> tuple[str, ...]:
    """Return the devices that a stage's steps borrow: those that are not its own, with whichever runtime."""
    names = dict.fromkeys(step.device for step in stage.steps)
    return tuple(name for name in names if not board.is_one_device(name, stage.device))


@dataclass(frozen=True)
class _Steps:
    """The steps of a stage, as what moves are found from."""

    board: Board
    outputs: tuple[TensorSpec, ...]
    stages: tuple[StagePlan, ...]
    frames_in_flight: int = 1


def step_moves(board: Board, stage: StagePlan) -> list[StageMoves]:
    """Return the moves of each step; what comes from other stages, or goes there, is in the caller's memory."""
    return find_moves(_Steps(board, stage.outputs, stage.units))


def compute_shares(board: Board, stage: StagePlan) -> list[tuple[StagePlan, StageMoves, float]]:
    """Return the steps of a stage, each as a stage, with its moves and its share of the stage's computing."""
    units, moves = stage.units, step_moves(board, stage)
    compute_s = [max(unit.seconds - unit_moves.copy_s, 0.0) for unit, unit_moves in zip(units, moves, strict=True)]
    # A stage in one piece has all of it, also if only samples say how long it takes.
    total_s = sum(compute_s)
    shares = [seconds / total_s for seconds in compute_s] if total_s else [1 / len(moves)] * len(moves)
    return list(zip(units, moves, shares, strict=True))
