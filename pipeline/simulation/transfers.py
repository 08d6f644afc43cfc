"""Transfers: the tensors of a stage that change their memory, and the seconds that takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipeline.core.board import Device
from pipeline.core.plan import Plan
from pipeline.core.transfer_costs import enter_route, enter_s, leave_route, leave_s, link_ends
from pipeline.scheduler.wiring import Wiring


class Move(NamedTuple):
    """Seconds on a link; `ends` is empty where nothing is copied."""

    seconds: float
    ends: tuple[str, ...] = ()


def find_moves(plan: Plan, wiring: Wiring, number: int) -> tuple[list[Move], list[Move]]:
    """Return the moves of a stage before it computes, and those behind it."""
    device = plan.board.device(plan.stages[number].device)
    entry_moves = [
        Move(
            enter_s(plan.board, maker, device, nbytes),
            link_ends(plan.board, enter_route(plan.board, maker, device)) or (),
        )
        for maker, nbytes in _inputs_of(plan, wiring, number)
    ]
    exit_moves = [
        Move(
            leave_s(plan.board, device, reader, nbytes),
            link_ends(plan.board, leave_route(plan.board, device, reader)) or (),
        )
        for reader, nbytes in _outputs_of(plan, wiring, number)
    ]
    # What is not copied, or costs nothing, needs no event.
    return [move for move in entry_moves if move.ends and move.seconds], [
        move for move in exit_moves if move.ends and move.seconds
    ]


def _inputs_of(plan: Plan, wiring: Wiring, number: int) -> Iterator[tuple[Device | None, int]]:
    makers = {spec.name: stage.device for stage in plan.stages for spec in stage.outputs}
    for spec, read in zip(plan.stages[number].inputs, wiring.stages[number].reads, strict=True):
        if read.source is not None:
            yield (plan.board.device(makers[spec.name]) if spec.name in makers else None), spec.nbytes


def _outputs_of(plan: Plan, wiring: Wiring, number: int) -> Iterator[tuple[Device | None, int]]:
    """Yield each output that leaves the memory once, with one of its readers elsewhere; None is the caller."""
    for spec, write in zip(plan.stages[number].outputs, wiring.stages[number].writes, strict=True):
        if write.array is not None:
            memory = plan.board.device(plan.stages[number].device).memory
            readers = [plan.board.device(stage.device) for stage in plan.stages if spec in stage.inputs]
            yield next((reader for reader in readers if reader.memory != memory), None), spec.nbytes
