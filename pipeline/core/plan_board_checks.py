"""Checks of a plan against its board: the cores are there, and the links over which its tensors move."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.core.board import Board
from pipeline.core.moves import Reader
from pipeline.core.stage_plan import StagePlan, TensorSpec
from pipeline.core.transfer_costs import enter_s, leave_s
from pipeline.errors import BoardError, PlanError


def check_cores(board: Board, stages: Sequence[StagePlan]) -> None:
    """Raise `PlanError` if a stage has a core that no device of the board has."""
    cores = {core for device in board.devices for core in device.cores}
    # Of a board that names no cores, nothing is known of them.
    for stage in stages if cores else ():
        if unknown := [core for core in stage.cores if core not in cores]:
            raise PlanError(
                f"stage {stage.name!r}: board {board.name!r} has no core {unknown[0]}; it has "
                f"{', '.join(map(str, sorted(cores)))}"
            )


def check_links(board: Board, outputs: Sequence[TensorSpec], stages: Sequence[StagePlan]) -> None:
    """Raise `PlanError` if a tensor has to move between memories that the board does not connect."""
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
