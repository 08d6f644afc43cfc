"""Contention: pace of workers that share devices and memories.

A bound on the pace is the time for which a frame needs what is shared.  Workers rarely reach it: while one waits, its
core idles, and later what it waited for does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from pipeline.core.board.board import Board
from pipeline.core.plan.moves import Move
from pipeline.core.plan.stage_plan import StagePlan
from pipeline.prediction.borrowing import StagePart, replica_parts
from pipeline.prediction.frame_flow import FrameFlow, Phase, WorkerGroup
from pipeline.prediction.shared_loads import lent_devices, memory_pools

# Of a pattern that does not repeat itself in so many rounds of all workers, the mean of those behind the first ones.
_WARM_UP_ROUNDS, _ROUNDS, _UNLIKE_ROUNDS = 8, 24, 60

_TICK = 1e-7
"""Relative tolerance below which two times count as equal."""

WAKING_S = 50e-6
"""Seconds of a hop: a worker hands a frame on and the next thread wakes; also until one wakes that waited for a
borrowed device. A driver that computes one frame at a time has the next one waiting. Measured on x86-64 cores of a
virtual machine, where most of it is the system's (bench/simulation.py, bench/hop.py)."""

_MOST_FRAMES = 32
"""Bound on simulated frames inside, as a multiple of the workers. More change nothing."""


def worker_phases(
    board: Board,
    stages: Sequence[StagePlan],
    parts: Sequence[Sequence[StagePart]],
    devices: Mapping[str, int],
) -> list[list[tuple[Phase, ...]]]:
    """Return the phases of each worker, by stage."""
    builder = _PhaseBuilder(board, devices, lent_devices(board, stages))
    return [builder.stage_phases(stage, stage_parts) for stage, stage_parts in zip(stages, parts, strict=True)]


def hop_seconds(stages: Sequence[StagePlan]) -> float:
    """Return the seconds of a hop; 0 without known times."""
    return WAKING_S if any(stage.seconds for stage in stages) else 0.0


def describe_short_stages(stages: Sequence[StagePlan]) -> str:
    """Advise against stages shorter than a hop; empty where one is longer."""
    if len(stages) < 2 or not 0 < max(stage.seconds for stage in stages) < WAKING_S:
        return ""
    return f"stages are shorter than a hop of {WAKING_S * 1e6:.0f} us; one stage is faster"


def worker_groups(
    stages: Sequence[StagePlan], workers: Sequence[Sequence[tuple[Phase, ...]]], hop_s: float = 0.0
) -> tuple[WorkerGroup, ...]:
    """Return the workers of stages with hops, without phases nobody waits for."""
    makers = {spec.name: number for number, stage in enumerate(stages) for spec in stage.outputs}
    shared = _limiting([phases for group in workers for phases in group])
    return tuple(
        WorkerGroup(
            tuple(tuple(_join_free((*phases, Phase(hop_s)), shared)) for phases in group),
            stage.queue_depth,
            tuple(sorted({makers[spec.name] for spec in stage.inputs if spec.name in makers})),
        )
        for stage, group in zip(stages, workers, strict=True)
    )


class _PhaseBuilder:
    """Phases of the workers for a frame."""

    def __init__(self, board: Board, devices: Mapping[str, int], lent: Collection[str]) -> None:
        self._board, self._devices, self._lent = board, devices, lent
        self._pools = {name: pool for pool in memory_pools(board) if pool.bytes_per_s for name in pool.memories}

    def stage_phases(self, stage: StagePlan, parts: Sequence[StagePart]) -> list[tuple[Phase, ...]]:
        """Return the phases of each of a stage's workers."""
        if not stage.replica_seconds and not stage.replica_devices:
            return [tuple(self._phases(parts))] * stage.replicas
        workers = []
        for replica, name in enumerate(stage.replica_names):
            # What is copied, or borrowed, takes as long in each replica.
            own_parts = replica_parts(stage, parts, replica)
            if not stage.steps:
                own_parts = [part.at(self._board, name) for part in own_parts]
            workers.append(tuple(self._phases(own_parts)))
        return workers

    def _phases(self, parts: Sequence[StagePart]) -> Iterator[Phase]:
        for part in parts:
            # Tensors move by the worker, while others have the device.
            yield from (self._transfer(part.device, move) for move in part.moves.entries)
            device = part.device if part.device in self._devices else ""
            waking_s = WAKING_S if device in self._lent else 0.0
            memory, memory_s = self._memory(part.device, part.traffic)
            yield Phase(part.compute_s, device, waking_s, memory, memory_s, self._devices.get(device, 1))
            yield from (self._transfer(part.device, move) for move in part.moves.exits)

    def _transfer(self, device: str, move: Move) -> Phase:
        memory, memory_s = self._memory(device, move.nbytes)
        return Phase(move.seconds, " - ".join(move.ends), memory=memory, memory_s=memory_s)

    def _memory(self, device: str, traffic: float) -> tuple[str, float]:
        """Return a device's memory and its seconds for `traffic`."""
        pool = self._pools.get(self._board.device(device).memory) if traffic and self._pools else None
        return ("", 0.0) if pool is None else (pool.name, traffic / pool.bytes_per_s)


def _limiting(workers: Sequence[Sequence[Phase]]) -> set[str]:
    """Return the resources of several workers that may limit the pace."""
    users = Counter(name for phases in workers for name in {phase.resource for phase in phases})
    readers = Counter(name for phases in workers for name in {phase.memory for phase in phases})
    # With equal parts, each gets its bytes in time even if all others compute as well.
    slow = {
        phase.memory for phases in workers for phase in phases if phase.memory_s * readers[phase.memory] > phase.seconds
    }
    return {name for name, count in users.items() if name and count > 1} | {f"memory {name}" for name in slow}


def _join_free(phases: Iterable[Phase], shared: Collection[str]) -> Iterator[Phase]:
    """Yield the phases, unshared neighbours joined; at least one."""
    free_s, count = 0.0, 0
    for phase in phases:
        is_slow = f"memory {phase.memory}" in shared
        if phase.resource not in shared and not is_slow:
            free_s += phase.seconds
            continue
        if free_s:
            yield Phase(free_s)
        free_s, count = 0.0, count + 1
        yield phase if is_slow else replace(phase, memory="", memory_s=0.0)
    if free_s or not count:
        yield Phase(free_s)


def has_turns(groups: Iterable[WorkerGroup]) -> bool:
    """Check for resources that several workers take in turns."""
    return any(phase.resource or phase.memory for group in groups for phases in group.workers for phase in phases)


@lru_cache(maxsize=1024)
def flow_interval(groups: tuple[WorkerGroup, ...], frames_in_flight: int) -> float:
    """Return the mean seconds between two frames through the groups."""
    workers = sum(len(group.workers) for group in groups)
    # More wait in queues, and nobody waits longer for them.
    frames_in_flight = min(frames_in_flight, _MOST_FRAMES * workers)
    # Until as many frames are inside as may be, the first stages are ahead of the others.
    warm_up = _WARM_UP_ROUNDS * workers + frames_in_flight
    is_alike = all(len(set(group.workers)) == 1 for group in groups)
    frames = (_ROUNDS if is_alike else _UNLIKE_ROUNDS) * workers
    seconds = sum(phase.seconds for group in groups for phase in group.workers[0])
    flow = FrameFlow(groups, frames_in_flight)
    period_s = flow.run(warm_up + frames, seconds * _TICK) if seconds else 0.0
    if period_s is not None:
        return period_s
    ends = flow.ends[warm_up - 1 :]
    if is_alike:
        return (ends[-1] - ends[0]) / frames
    # The slope of all: results leave in bursts of any size, so that the two ends alone would mislead.
    return float(np.polyfit(np.arange(len(ends)), ends, 1)[0])
