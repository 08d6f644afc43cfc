"""Frame flow: a simulation of frames through contended workers and queues.

It follows the rules of the scheduler, event by event, with times that do not vary: a worker takes the frame that has
waited longest, holds it until there is a place in each queue behind it, and results leave in order.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from pipeline.prediction.shared_rate import SharedRate


@dataclass(frozen=True)
class Phase:
    """A part of a worker's time for one frame."""

    seconds: float
    resource: str = ""
    """Resource of which it needs one unit meanwhile, the oldest frame first; empty for unshared ones."""
    waking_s: float = 0.0
    """Seconds until it goes on that others may not use either, if it had to wait."""
    memory: str = ""
    """Memory that serves all at the same time in equal parts; empty for one that limits nobody."""
    memory_s: float = 0.0
    """Seconds of it, if nobody else computes; the phase is no shorter than that."""
    units: int = 1


@dataclass(frozen=True)
class WorkerGroup:
    """The workers of a stage."""

    workers: tuple[tuple[Phase, ...], ...]
    """Phases of each worker for a frame, in order."""
    queue_depth: int = 2
    """Number of frames that may wait in front of it."""
    predecessors: tuple[int, ...] = ()
    """Numbers of the groups that a frame comes from; of none, if it begins here."""


class _Worker:
    """A worker and its current frame."""

    __slots__ = ("frame", "group", "is_waking", "kind", "next_phase", "passed", "phases")

    def __init__(self, group: int, phases: Sequence[Phase], kind: int) -> None:
        self.group, self.phases = group, phases
        # Equal for workers of a group that do the same.
        self.kind = kind
        self.frame = self.next_phase = 0
        self.is_waking = False
        # To how many of the groups behind it the frame has gone on.
        self.passed = 0


class _Queue:
    """Frames in front of a group."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.frames: deque[int] = deque()
        # Workers at leisure, and those of groups before this one that hold a frame for which there is no place.
        self.idle: deque[_Worker] = deque()
        self.blocked: deque[_Worker] = deque()


class FrameFlow:
    """Simulation with the largest number of frames inside.

    `ends`: times at which frames left.
    """

    def __init__(self, groups: Sequence[WorkerGroup], frames_in_flight: int) -> None:
        self._most_inside = frames_in_flight
        self._queues = [_Queue(group.queue_depth) for group in groups]
        for number, group in enumerate(groups):
            self._queues[number].idle.extend(
                _Worker(number, phases, group.workers.index(phases)) for phases in group.workers
            )
        numbers = range(len(groups))
        self._successors = [
            [successor for successor in numbers if number in groups[successor].predecessors] for number in numbers
        ]
        self._roots = [number for number in numbers if not groups[number].predecessors]
        # Where a frame has to come from several, or from several last ones at the end.
        self._joins = {number: len(groups[number].predecessors) for number in numbers}
        self._leaves = sum(not successors for successors in self._successors)
        self._branches: Counter[tuple[int, int]] = Counter()
        # How many have a resource, and who waits for one that others have, the oldest frame first.
        self._users: Counter[str] = Counter()
        self._waiting: dict[str, list[tuple[int, int, _Worker]]] = {}
        names = {phase.memory for group in groups for phases in group.workers for phase in phases if phase.memory}
        self._memories = {name: SharedRate[tuple[float, _Worker]](1.0) for name in names}
        # Due at a time: a worker whose phase is over, or a memory that has served one, with the version that it had.
        # The number of the event keeps those of one time in order, as the scheduler's locks do.
        self._events: list[tuple[float, int, _Worker | tuple[str, int]]] = []
        self._count = 0
        self._next_frame = 0
        self._ended: set[int] = set()
        self.ends = list[float]()

    def run(self, frames: int, tick_s: float) -> float | None:
        """Return the steady mean seconds between two frames, or None.

        At most so many frames leave, with others behind them. Times that differ by less than `tick_s` are the same.
        """
        states: dict[object, tuple[int, float]] = {}
        self._enter(0.0)
        while (count := len(self.ends)) < frames:
            time = self._step()
            # What memories have served is never quite the same again.
            if len(self.ends) == count or self._memories:
                continue
            first_count, first_time = states.setdefault(self._state(time, tick_s), (len(self.ends), time))
            if time > first_time:
                return (time - first_time) / (len(self.ends) - first_count)
        return None

    def _state(self, time: float, tick_s: float) -> object:
        """Return the simulation's state, with frames counted from the next exit."""
        first = len(self.ends)

        def brief(worker: _Worker) -> tuple[int, ...]:
            return (worker.group, worker.kind, worker.frame - first, worker.next_phase, worker.passed)

        return (
            self._next_frame - first,
            tuple(
                (round((event_time - time) / tick_s), *brief(item))
                for event_time, _, item in sorted(self._events)
                if not isinstance(item, tuple)
            ),
            tuple((name, *(brief(item) for *_, item in sorted(line))) for name, line in sorted(self._waiting.items())),
            tuple(
                (
                    tuple(frame - first for frame in queue.frames),
                    tuple(worker.kind for worker in queue.idle),
                    tuple(brief(worker) for worker in queue.blocked),
                )
                for queue in self._queues
            ),
            tuple(sorted(frame - first for frame in self._ended)),
            tuple(sorted((group, frame - first, count) for (group, frame), count in self._branches.items())),
        )

    def _step(self) -> float:
        """Let the next event happen, and return its time."""
        time, _, item = heappop(self._events)
        if isinstance(item, tuple):
            self._end_service(time, *item)
            return time
        phase = item.phases[item.next_phase]
        if item.is_waking:
            item.is_waking = False
            self._compute(time, item, phase, phase.seconds)
            return time
        resource = phase.resource
        item.next_phase += 1
        if resource:
            self._release(time, resource)
        self._go_on(time, item)
        return time

    def _enter(self, time: float) -> None:
        """Let frames in, up to the limits inside and in queues."""
        queues = [self._queues[root] for root in self._roots]
        while self._next_frame - len(self.ends) < self._most_inside and all(
            queue.idle or len(queue.frames) < queue.depth for queue in queues
        ):
            frame = self._next_frame
            self._next_frame += 1
            for queue in queues:
                self._put(time, queue, frame)

    def _put(self, time: float, queue: _Queue, frame: int) -> bool:
        """Give a frame to a worker or queue; False without room."""
        if queue.idle:
            self._begin(time, queue.idle.popleft(), frame)
        elif len(queue.frames) < queue.depth:
            queue.frames.append(frame)
        else:
            return False
        return True

    def _begin(self, time: float, worker: _Worker, frame: int) -> None:
        worker.frame, worker.next_phase, worker.passed = frame, 0, 0
        self._go_on(time, worker)

    def _go_on(self, time: float, worker: _Worker) -> None:
        if worker.next_phase == len(worker.phases):
            self._pass_on(time, worker)
            return
        phase = worker.phases[worker.next_phase]
        if phase.resource:
            if self._users[phase.resource] == phase.units:
                self._count += 1
                heappush(self._waiting.setdefault(phase.resource, []), (worker.frame, self._count, worker))
                return
            self._users[phase.resource] += 1
        self._compute(time, worker, phase, phase.seconds)

    def _release(self, time: float, resource: str) -> None:
        """Hand a resource to the oldest waiting frame."""
        waiting_workers = self._waiting.get(resource)
        if not waiting_workers:
            self._users[resource] -= 1
            return
        worker = heappop(waiting_workers)[-1]
        phase = worker.phases[worker.next_phase]
        # Nothing comes from memory before it is awake.
        if phase.waking_s and phase.memory:
            worker.is_waking = True
            self._plan(time + phase.waking_s, worker)
        else:
            self._compute(time, worker, phase, phase.waking_s + phase.seconds)

    def _compute(self, time: float, worker: _Worker, phase: Phase, seconds: float) -> None:
        if phase.memory:
            self._memories[phase.memory].add(time, phase.memory_s, (time + seconds, worker))
            self._plan_service(phase.memory)
        else:
            self._plan(time + seconds, worker)

    def _plan(self, time: float, item: _Worker | tuple[str, int]) -> None:
        self._count += 1
        heappush(self._events, (time, self._count, item))

    def _plan_service(self, memory: str) -> None:
        """Schedule a look at the next service of a memory."""
        rate = self._memories[memory]
        time = rate.next_time()
        if time < math.inf:
            self._plan(time, (memory, rate.version))

    def _end_service(self, time: float, memory: str, version: int) -> None:
        rate = self._memories[memory]
        if version == rate.version:
            end, worker = rate.pop(time)
            self._plan(max(time, end), worker)
            self._plan_service(memory)

    def _pass_on(self, time: float, worker: _Worker) -> None:
        """Hand a frame to all next groups. A worker without room ahead keeps it, and waits."""
        successors = self._successors[worker.group]
        while worker.passed < len(successors):
            successor = successors[worker.passed]
            if self._join(successor, worker.frame, self._joins[successor]):
                queue = self._queues[successor]
                if not self._put(time, queue, worker.frame):
                    queue.blocked.append(worker)
                    return
            worker.passed += 1
        self._finish(time, worker)

    def _finish(self, time: float, worker: _Worker) -> None:
        if not self._successors[worker.group] and self._join(-1, worker.frame, self._leaves):
            # Let finished frames out in order.
            self._ended.add(worker.frame)
            while len(self.ends) in self._ended:
                self._ended.remove(len(self.ends))
                self.ends.append(time)
            self._enter(time)
        queue = self._queues[worker.group]
        if not queue.frames:
            queue.idle.append(worker)
            return
        self._begin(time, worker, queue.frames.popleft())
        # Its place is free.
        if queue.blocked:
            waiting_worker = queue.blocked.popleft()
            queue.frames.append(waiting_worker.frame)
            waiting_worker.passed += 1
            self._pass_on(time, waiting_worker)
        elif worker.group in self._roots:
            self._enter(time)

    def _join(self, group: int, frame: int, branches: int) -> bool:
        """Count an arrived branch of a frame; True for the last one."""
        if branches == 1:
            return True
        self._branches[group, frame] += 1
        if self._branches[group, frame] < branches:
            return False
        del self._branches[group, frame]
        return True
