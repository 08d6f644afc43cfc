"""Contention: the pace of workers that wait in line for a device or a link that they share, frame by frame.

A bound on the pace is the time for which a frame needs what is shared.  Workers rarely reach it: while one waits, its
core idles, and later what it waited for does.  By how much is followed here, with times that do not vary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush

from pipeline.core.board import Board
from pipeline.core.borrowing import step_moves
from pipeline.core.moves import Move, StageMoves
from pipeline.core.stage_plan import StagePlan

# The pattern of waiting repeats itself after a few rounds of all workers; the rest is its mean.
_WARM_UP_ROUNDS, _ROUNDS = 8, 24

WAKING_S = 50e-6
"""Seconds that the system takes to wake a thread whose turn it is; see `pipeline.simulation.run.OVERHEAD_S`."""

_MOST_FRAMES = 8
"""Frames inside by the number of workers, above which a larger number changes nothing."""


@dataclass(frozen=True)
class Phase:
    """A part of a worker's time for one frame.

    Attributes
    ----------
    seconds : float
    resource : str
        What it needs alone meanwhile, which the oldest frame gets first; empty for nothing that others use.
    waking_s : float
        Seconds until it goes on that others may not use either, if it had to wait.
    """

    seconds: float
    resource: str = ""
    waking_s: float = 0.0


@dataclass(frozen=True)
class WorkerGroup:
    """The workers of a stage, which are alike.

    Attributes
    ----------
    workers : int
    phases : tuple of Phase
        Of one frame, in order.
    """

    workers: int
    phases: tuple[Phase, ...]


def worker_groups(
    board: Board, stages: Sequence[StagePlan], moves: Sequence[StageMoves], devices: Collection[str]
) -> tuple[WorkerGroup, ...]:
    """Return the workers of stages; of the devices named, each computes one frame at a time."""
    return tuple(
        WorkerGroup(stage.replicas, tuple(_phases(board, stage, stage_moves, devices)))
        for stage, stage_moves in zip(stages, moves, strict=True)
    )


def _phases(board: Board, stage: StagePlan, moves: StageMoves, devices: Collection[str]) -> Iterator[Phase]:
    parts = zip(stage.units, step_moves(board, stage), strict=True) if stage.steps else [(stage, moves)]
    for unit, unit_moves in parts:
        # Tensors move by the worker, while others have the device.
        yield from map(_transfer, unit_moves.entries)
        compute_s = max(0.0, unit.seconds - unit_moves.copy_s)
        yield Phase(compute_s, unit.device, WAKING_S) if unit.device in devices else Phase(compute_s)
        yield from map(_transfer, unit_moves.exits)


def _transfer(move: Move) -> Phase:
    return Phase(move.seconds, " - ".join(move.ends))


@lru_cache(maxsize=1024)
def contended_interval(groups: tuple[WorkerGroup, ...], frames_in_flight: int) -> float:
    """Return the mean seconds between two frames that go through the groups one after the other.

    Parameters
    ----------
    groups : tuple of WorkerGroup
        In the order in which frames go through them; queues between them have room.
    frames_in_flight : int
        At most so many are inside.
    """
    workers = sum(group.workers for group in groups)
    # More wait in queues, and nobody waits longer for them.
    frames_in_flight = min(frames_in_flight, _MOST_FRAMES * workers)
    # Until as many frames are inside as may be, the first stages are ahead of the others.
    warm_up = _WARM_UP_ROUNDS * workers + frames_in_flight
    frames = warm_up + _ROUNDS * workers
    ends = _Line(groups, frames_in_flight).run(frames)
    return (ends[-1] - ends[warm_up - 1]) / (frames - warm_up)


class _Line:
    """Frames on their way through groups of workers."""

    def __init__(self, groups: Sequence[WorkerGroup], frames_in_flight: int) -> None:
        self._groups = groups
        self._idle = [group.workers for group in groups]
        self._queues: list[deque[int]] = [deque() for _ in groups]
        # Who waits for a resource that another one has, the oldest frame first, with its stage and phase.
        self._waiting: dict[str, list[tuple[int, int, int]]] = {}
        # Due at a time: the number of the event keeps those of one time in order, as the scheduler's locks do.
        self._events: list[tuple[float, int, int, int, int]] = []
        self._count = 0
        self._ends = list[float]()
        self._next_frame = frames_in_flight
        for frame in range(frames_in_flight):
            self._arrive(0, 0.0, frame)

    def run(self, frames: int) -> list[float]:
        """Return when each of so many frames leaves; others come behind them."""
        while len(self._ends) < frames:
            time, _, frame, stage, phase = heappop(self._events)
            phases = self._groups[stage].phases
            if phase:
                self._release(time, phases[phase - 1].resource)
            if phase < len(phases):
                self._begin(time, frame, stage, phase)
            else:
                self._finish(time, frame, stage)
        return self._ends

    def _arrive(self, stage: int, time: float, frame: int) -> None:
        if not self._idle[stage]:
            self._queues[stage].append(frame)
            return
        self._idle[stage] -= 1
        self._plan(time, frame, stage, 0)

    def _begin(self, time: float, frame: int, stage: int, phase: int) -> None:
        work = self._groups[stage].phases[phase]
        if work.resource in self._waiting:
            heappush(self._waiting[work.resource], (frame, stage, phase))
            return
        if work.resource:
            self._waiting[work.resource] = []
        self._plan(time + work.seconds, frame, stage, phase + 1)

    def _release(self, time: float, resource: str) -> None:
        """Let the oldest frame have what another one is done with."""
        if not resource:
            return
        others = self._waiting.pop(resource)
        if others:
            frame, stage, phase = heappop(others)
            self._waiting[resource] = others
            work = self._groups[stage].phases[phase]
            self._plan(time + work.waking_s + work.seconds, frame, stage, phase + 1)

    def _finish(self, time: float, frame: int, stage: int) -> None:
        self._idle[stage] += 1
        if self._queues[stage]:
            self._arrive(stage, time, self._queues[stage].popleft())
        if stage + 1 < len(self._groups):
            self._arrive(stage + 1, time, frame)
            return
        self._ends.append(time)
        self._arrive(0, time, self._next_frame)
        self._next_frame += 1

    def _plan(self, time: float, frame: int, stage: int, phase: int) -> None:
        self._count += 1
        heappush(self._events, (time, self._count, frame, stage, phase))
