"""Checks of a plan from a file: cores, links and order.

Plans that were derived from others need not pass these checks: a part of the stages has the order of all, and on
another machine stages have other cores than the board that was planned for.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.core.board.board import Board
from pipeline.core.board.transfer_costs import enter_s, leave_s
from pipeline.core.plan.moves import Reader
from pipeline.core.plan.stage_plan import StagePlan, TensorSpec
from pipeline.errors import BoardError, PlanError


def check_stage_order(order: Sequence[str], units: Sequence[StagePlan]) -> None:
    """Raise `PlanError` unless the units follow the operators' order."""
    positions = {name: position for position, name in enumerate(order)}
    begin = 0
    # Without an order it is the model's own, which a plan does not have.
    for unit in units if order else ():
        if unknown := [name for name in unit.operators if name not in positions]:
            raise PlanError(f"the order lacks the operator {unknown[0]!r} of stage {unit.name!r}")
        if unit.operators:
            first, last = positions[unit.operators[0]], positions[unit.operators[-1]]
            if first != begin or last < first:
                raise PlanError(
                    f"stage {unit.name!r} has the operators {unit.operators[0]!r} to {unit.operators[-1]!r}, which in "
                    f"the order do not follow those of the stages before"
                )
            begin = last + 1
    if begin and begin < len(order):
        raise PlanError(f"the order has the operator {order[begin]!r}, which is in no stage")


def check_cores(board: Board, stages: Sequence[StagePlan]) -> None:
    """Raise `PlanError` for cores that no device has."""
    cores = {core for device in board.devices for core in device.cores}
    # Of a board that names no cores, nothing is known of them.
    for stage in stages if cores else ():
        if unknown := [core for core in stage.cores if core not in cores]:
            raise PlanError(
                f"stage {stage.name!r}: board {board.name!r} has no core {unknown[0]}; it has "
                f"{', '.join(map(str, sorted(cores)))}"
            )


def check_links(board: Board, outputs: Sequence[TensorSpec], stages: Sequence[StagePlan]) -> None:
    """Raise `PlanError` for moves between unconnected memories."""
    _check_flow(board, outputs, stages)
    for stage in stages:
        # What steps read of other stages, and make for them, is in the caller's memory.
        _check_flow(board, stage.outputs, stage.steps)


def _check_flow(board: Board, outputs: Sequence[TensorSpec], readers: Sequence[Reader]) -> None:
    makers = {spec.name: board.device(maker.device) for maker in readers for spec in maker.outputs}
    moves = [(spec.name, board.device(reader.device)) for reader in readers for spec in reader.inputs]
    for name, target in (*moves, *((spec.name, None) for spec in outputs)):
        source = makers.get(name)
        try:
            # The bytes do not matter, but without any there is nothing to send.
            if target is not None:
                enter_s(board, source, target, 1)
            if source is not None:
                leave_s(board, source, target, 1)
        except BoardError as error:
            raise PlanError(f"tensor {name!r} cannot travel: {error}") from None
