"""Segments: a worker's ordered work on a frame, per stage or step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.core.board.board import Board
from pipeline.core.plan.moves import Move, StageMoves
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.prediction.borrowing import StagePart, replica_parts
from pipeline.prediction.shared_loads import lent_devices, memory_pools, serial_devices, shared_cores
from pipeline.prediction.shared_rate import SharedRate
from pipeline.simulation.clock import Clock, Request, Resume, Tokens


class Bandwidth:
    """The bytes per second of one memory."""

    def __init__(self, clock: Clock, bytes_per_s: float) -> None:
        self._clock = clock
        self._rate = SharedRate[tuple[float, Resume]](bytes_per_s)

    def serve(self, nbytes: float, seconds: float) -> Request:
        """Return a request for `nbytes`, lasting at least `seconds`."""

        def request(resume: Resume) -> None:
            self._rate.add(self._clock.time, nbytes, (self._clock.time + seconds, resume))
            self._schedule()

        return request

    def _schedule(self) -> None:
        """Reschedule at the next completion, unless the set changes before."""
        version, time = self._rate.version, self._rate.next_time()
        if time < float("inf"):
            self._clock.schedule(time - self._clock.time, lambda: self._finish(version))

    def _finish(self, version: int) -> None:
        if version != self._rate.version:
            return
        end, resume = self._rate.pop(self._clock.time)
        self._clock.schedule(max(0.0, end - self._clock.time), resume)
        self._schedule()


@dataclass(frozen=True)
class Transfer:
    """Bytes moved before or after a run."""

    seconds: float
    link: Tokens | None = None
    """Link that only one transfer at a time may use."""
    name: str = ""
    """The link's; empty without one."""
    memory: Bandwidth | None = None
    """Bandwidth of the memory on the device's end, which others share."""
    nbytes: int = 0

    def run(self, clock: Clock) -> Request:
        """Return a request lasting until the bytes are moved."""
        return clock.sleep(self.seconds) if self.memory is None else self.memory.serve(self.nbytes, self.seconds)


@dataclass(frozen=True)
class Segment:
    """Tensors come, the device computes, tensors go."""

    unit: StagePlan
    """The stage, or the step as a stage."""
    seconds: Callable[[int], float]
    """Returns how long computing takes for a frame's number."""
    entry_transfers: Sequence[Transfer] = ()
    exit_transfers: Sequence[Transfer] = ()
    device: Tokens | None = None
    """Device that computes one frame at a time, while tensors of others move."""
    is_lent: bool = False
    """True if that is borrowed, so that the system has to wake a worker whose turn it is."""
    memory: Bandwidth | None = None
    """Bandwidth of the memory that the run shares with others; its bytes come while it computes."""
    traffic: float = 0.0
    """Bytes of a run to and from that memory."""

    def run(self, clock: Clock, frame: int) -> Request:
        """Return a request lasting until a frame is computed."""
        seconds = self.seconds(frame)
        return clock.sleep(seconds) if self.memory is None else self.memory.serve(self.traffic, seconds)


class SharedResources:
    """Resources contended by a simulated board's workers.

    Several stages compute on some of the `cores`.
    """

    def __init__(self, clock: Clock, plan: Plan) -> None:
        board = plan.board
        self.cores = {core: Tokens(clock, 1) for core in shared_cores(board, plan.stages)}
        # A link carries one transfer at a time; those of several stages wait for each other.
        self._links: dict[tuple[str, ...], Tokens] = {link.ends: Tokens(clock, 1) for link in board.links}
        # Each slot of a server has one of them.
        self._devices = {name: Tokens(clock, slots) for name, slots in serial_devices(board, plan.stages).items()}
        self._lent = lent_devices(board, plan.stages)
        self._memories = _memories(clock, board)
        self._plan = plan

    def segments(
        self, stage: StagePlan, parts: Sequence[StagePart], replica: int, stage_seconds: np.ndarray
    ) -> tuple[Segment, ...]:
        """Return a replica's segments per frame, for total seconds without waiting."""
        device = stage.replica_names[replica]
        units = stage.units if stage.steps else [replace(stage, device=device, replica_devices=())]
        # What moves takes as long as it takes; the rest of the stage's time varies.
        parts = replica_parts(stage, parts, replica)
        if stage.replica_devices:
            parts = [part.at(self._plan.board, device) for part in parts]
        copy_s = sum(part.moves.copy_s for part in parts)
        computing = np.maximum(stage_seconds - min(copy_s, stage.replica_times[replica]), 0.0)
        return tuple(
            self._segment(unit, part.moves, computing * part.share, part.traffic)
            for unit, part in zip(units, parts, strict=True)
        )

    def _segment(self, unit: StagePlan, moves: StageMoves, computing: np.ndarray, traffic: float) -> Segment:
        # A list: it is indexed once per frame and stage, and a float of Python's is read quicker than NumPy's.
        seconds: list[float] = computing.tolist()
        memory = self._memories.get(self._plan.board.device(unit.device).memory)
        return Segment(
            unit,
            seconds.__getitem__,
            [self._transfer(move, memory) for move in moves.entries],
            [self._transfer(move, memory) for move in moves.exits],
            self._devices.get(unit.device),
            unit.device in self._lent,
            memory if traffic else None,
            traffic,
        )

    def _transfer(self, move: Move, memory: Bandwidth | None) -> Transfer:
        return Transfer(move.seconds, self._links.get(move.ends), " - ".join(move.ends), memory, move.nbytes)


def _memories(clock: Clock, board: Board) -> dict[str, Bandwidth]:
    """Return known memory bandwidths, shared between memories of equal chips."""
    pools = [pool for pool in memory_pools(board) if pool.bytes_per_s]
    return {name: shared for pool in pools for shared in [Bandwidth(clock, pool.bytes_per_s)] for name in pool.memories}
