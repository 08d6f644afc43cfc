"""Moves: tensors of a stage that change their memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pipeline.core.board.board import Board, Device
from pipeline.core.board.transfer_costs import Route, enter_route, enter_s, leave_route, leave_s, link_ends
from pipeline.core.plan.stage_plan import StagePlan, TensorSpec
from pipeline.core.plan.state import State


class Reader(Protocol):
    """Parts of a stage or step that determine its tensor moves."""

    @property
    def device(self) -> str:
        """Name of its device."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Tensors read."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Tensors for other stages."""


class Flow(Protocol):
    """Parts of a plan that determine its tensor moves."""

    @property
    def board(self) -> Board:
        """Devices and links."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Tensors for the caller."""

    @property
    def states(self) -> Sequence[State]:
        """Tensors that stay in their stages' memory."""

    @property
    def stages(self) -> Sequence[Reader]:
        """Readers in order."""


class StageSet(Flow, Protocol):
    """Parts of a plan that determine its times."""

    @property
    def stages(self) -> tuple[StagePlan, ...]:
        """Stages in order."""

    @property
    def frames_in_flight(self) -> int:
        """Bound on frames inside."""


@dataclass(frozen=True)
class Move:
    """A tensor that a stage brings in or hands out."""

    seconds: float
    nbytes: int
    is_copied: bool = True
    """True if it changes its memory; else its layout is changed, or caches fetch it, as a part of computing."""
    ends: tuple[str, ...] = ()
    """Ends of the occupied link; empty for one that several may use at once."""


@dataclass(frozen=True)
class StageMoves:
    """Moves of a stage before and after it computes."""

    enter: tuple[Move, ...]
    leave: tuple[Move, ...]

    def at_memory(self, old: str, new: str) -> StageMoves:
        """Return the moves over another memory's links."""
        sides = (
            tuple(replace(move, ends=tuple(new if end == old else end for end in move.ends)) for move in moves)
            for moves in (self.enter, self.leave)
        )
        return StageMoves(*sides)

    @property
    def entries(self) -> tuple[Move, ...]:
        """Copies before it computes."""
        return tuple(move for move in self.enter if move.is_copied and move.seconds)

    @property
    def exits(self) -> tuple[Move, ...]:
        """Copies behind it."""
        return tuple(move for move in self.leave if move.is_copied and move.seconds)

    @property
    def copies(self) -> tuple[Move, ...]:
        """Both."""
        return (*self.entries, *self.exits)

    @property
    def copy_s(self) -> float:
        """Time of all copies, one after the other."""
        return sum(move.seconds for move in self.copies)

    @property
    def copy_bytes(self) -> int:
        """Bytes of all copies."""
        return sum(move.nbytes for move in self.copies)

    @property
    def enter_s(self) -> float:
        """Seconds to bring everything in."""
        return sum(move.seconds for move in self.enter)

    @property
    def leave_s(self) -> float:
        """Seconds to hand everything out."""
        return sum(move.seconds for move in self.leave)


def find_moves(plan: Flow) -> list[StageMoves]:
    """Return each stage's moves; without a link they take no time."""
    board = plan.board
    makers = {spec.name: board.device(stage.device) for stage in plan.stages for spec in stage.outputs}
    readers, kept = _find_readers(plan), {state.input.name for state in plan.states}
    # Two stages of one memory share a copy, which the first one makes.
    copied: set[tuple[str, str]] = set()
    result = []
    for stage in plan.stages:
        device = board.device(stage.device)
        enter = []
        for spec in (spec for spec in stage.inputs if spec.name not in kept):
            move = _entry(board, makers.get(spec.name), device, spec)
            if (spec.name, device.memory) not in copied:
                enter.append(move)
            if move.is_copied:
                copied.add((spec.name, device.memory))
        leave = [move for spec in stage.outputs for move in _exits(board, device, readers.get(spec.name, {}), spec)]
        result.append(StageMoves(tuple(enter), tuple(leave)))
    return result


def _find_readers(plan: Flow) -> Mapping[str, Mapping[str, Device | None]]:
    """Return the reading devices of each tensor; None is the caller."""
    readers: dict[str, dict[str, Device | None]] = {}
    for stage in plan.stages:
        for spec in stage.inputs:
            readers.setdefault(spec.name, {})[stage.device] = plan.board.device(stage.device)
    for spec in plan.outputs:
        readers.setdefault(spec.name, {})[""] = None
    return readers


def _entry(board: Board, source: Device | None, target: Device, spec: TensorSpec) -> Move:
    route = enter_route(board, source, target)
    seconds = enter_s(board, source, target, spec.nbytes) if _is_described(board, route) else 0.0
    return Move(seconds, spec.nbytes, route is not None, link_ends(board, route) or ())


def _exits(board: Board, device: Device, readers: Mapping[str, Device | None], spec: TensorSpec) -> Iterator[Move]:
    """Yield an output's moves, one per memory of its readers."""
    sides = dict[bool, Move]()
    for reader in readers.values():
        route = leave_route(board, device, reader)
        seconds = leave_s(board, device, reader, spec.nbytes) if _is_described(board, route) else 0.0
        move = Move(seconds, spec.nbytes, route is not None, link_ends(board, route) or ())
        if seconds:
            sides.setdefault(move.is_copied, move)
    yield from sides.values()


def _is_described(board: Board, route: Route | None) -> bool:
    """Check if the board has the link. A plan made by hand without links tells nothing but the stages."""
    return route is None or board.link(route[0].memory, route[1].memory) is not None
