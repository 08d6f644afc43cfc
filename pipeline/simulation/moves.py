"""Moves: which tensors of a stage change their memory, and how long that takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipeline.board import Device
from pipeline.plans import Plan
from pipeline.scheduler.wiring import Wiring
from pipeline.transfers import enter_s, entering, leave_s, leaving, link_ends


class Move(NamedTuple):
    """Seconds on a link; `ends` is empty where nothing is copied."""

    seconds: float
    ends: tuple[str, ...] = ()


def moves(plan: Plan, wiring: Wiring, number: int) -> tuple[list[Move], list[Move]]:
    """Return what a stage brings in before it computes, and what it hands out behind it."""
    own = plan.board.device(plan.stages[number].device)
    before = [
        Move(enter_s(plan.board, maker, own, nbytes), link_ends(plan.board, entering(plan.board, maker, own)) or ())
        for maker, nbytes in _read(plan, wiring, number)
    ]
    after = [
        Move(leave_s(plan.board, own, reader, nbytes), link_ends(plan.board, leaving(plan.board, own, reader)) or ())
        for reader, nbytes in _handed_out(plan, wiring, number)
    ]
    return [move for move in before if move.ends and move.seconds], [
        move for move in after if move.ends and move.seconds
    ]


def _read(plan: Plan, wiring: Wiring, number: int) -> Iterator[tuple[Device | None, int]]:
    makers = {spec.name: stage.device for stage in plan.stages for spec in stage.outputs}
    for spec, read in zip(plan.stages[number].inputs, wiring.stages[number].reads, strict=True):
        if read.source is not None:
            yield (plan.board.device(makers[spec.name]) if spec.name in makers else None), spec.nbytes


def _handed_out(plan: Plan, wiring: Wiring, number: int) -> Iterator[tuple[Device | None, int]]:
    """Yield each output that leaves the memory once, with one of its readers elsewhere; None is the caller."""
    for spec, write in zip(plan.stages[number].outputs, wiring.stages[number].writes, strict=True):
        if write.array is not None:
            own = plan.board.device(plan.stages[number].device).memory
            readers = [plan.board.device(each.device) for each in plan.stages if spec in each.inputs]
            yield next((reader for reader in readers if reader.memory != own), None), spec.nbytes
