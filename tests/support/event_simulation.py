"""Event simulation of a division, written from docs/planning.md alone."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from tests.support.documented_rules import HOP_S, Phase

Wait = tuple[str, object]


class _Memory:
    """Bytes that all who ask for them get in equal parts."""

    def __init__(self) -> None:
        self.left: dict[int, float] = {}
        self.time = 0.0

    def advance(self, time: float) -> None:
        if self.left:
            served = (time - self.time) / len(self.left)
            self.left = {worker: max(0.0, amount - served) for worker, amount in self.left.items()}
        self.time = time

    def next_time(self) -> float:
        return self.time + min(self.left.values()) * len(self.left) if self.left else float("inf")


class EventSimulation:
    """Frames through stages of workers, with bounded queues between them, and results in order."""

    def __init__(
        self,
        stages: Sequence[Sequence[Sequence[Phase]]],
        predecessors: Sequence[Sequence[int]],
        depths: Sequence[int],
        most_inside: int,
    ) -> None:
        self._stages, self._depths, self._most_inside = stages, depths, most_inside
        self._sources = predecessors
        count = len(stages)
        self._readers = [[each for each in range(count) if number in predecessors[each]] for number in range(count)]
        self._first = [number for number in range(count) if not predecessors[number]]
        self._queues: list[deque[int]] = [deque() for _ in stages]
        # Workers without a frame, and workers that hold one for which a queue has no place.
        self._idle: list[deque[int]] = [deque() for _ in stages]
        self._stuck: list[deque[int]] = [deque() for _ in stages]
        self._free: dict[str, int] = {}
        self._lines: dict[str, list[tuple[int, int, int]]] = {}
        self._memories: dict[str, _Memory] = {}
        self._events: list[tuple[float, int, int]] = []
        self._serial = 0
        self._arrived: dict[tuple[int, int], int] = {}
        self._started, self._finished, self._time = 0, set[int](), 0.0
        self.ends: list[float] = []
        self._workers: list[Iterator[Wait]] = []
        self._frame: list[int] = []
        self._earliest: dict[int, float] = {}
        for number, stage in enumerate(stages):
            for phases in stage:
                self._frame.append(-1)
                self._workers.append(self._work(len(self._workers), number, phases))
                self._idle[number].append(len(self._workers) - 1)
                for phase in phases:
                    self._free[phase.resource] = phase.units
        for worker in self._workers:
            next(worker)

    def interval(self, frames: int) -> float:
        """Return the mean seconds between two frames of a long stream."""
        self._let_in()
        while len(self.ends) < frames:
            due = self._events[0][0] if self._events else float("inf")
            name = min(self._memories, key=lambda each: self._memories[each].next_time(), default="")
            if name and self._memories[name].next_time() <= due:
                self._serve(self._memories[name])
                continue
            self._time, _, worker = heapq.heappop(self._events)
            self._resume(worker)
        ends = np.array(self.ends[frames // 3 :])
        return float(np.polyfit(np.arange(len(ends)), ends, 1)[0])

    def _serve(self, memory: _Memory) -> None:
        self._time = max(self._time, memory.next_time())
        memory.advance(self._time)
        worker = min(memory.left, key=lambda each: memory.left[each])
        del memory.left[worker]
        self._at(max(self._time, self._earliest[worker]), worker)

    def _at(self, time: float, worker: int) -> None:
        self._serial += 1
        heapq.heappush(self._events, (time, self._serial, worker))

    def _resume(self, worker: int) -> None:
        kind, value = next(self._workers[worker])
        if kind == "sleep":
            self._at(self._time + float(value), worker)  # type: ignore[arg-type]

    def _work(self, me: int, stage: int, phases: Sequence[Phase]) -> Iterator[Wait]:
        """Yield what the worker waits for."""
        yield "frame", None
        while True:
            for phase in phases:
                yield from self._run(me, phase)
            yield "sleep", HOP_S
            yield from self._pass_on(me, stage)
            # Those who were handed a frame go on before.
            yield "sleep", 0.0
            if self._queues[stage]:
                self._take(stage, me)
            else:
                self._frame[me] = -1
                self._idle[stage].append(me)
                yield "frame", None

    def _run(self, me: int, phase: Phase) -> Iterator[Wait]:
        """Yield what a phase waits for: its turn, and its seconds or the bytes of its memory."""
        if phase.resource and self._free[phase.resource]:
            self._free[phase.resource] -= 1
        elif phase.resource:
            self._serial += 1
            heapq.heappush(self._lines.setdefault(phase.resource, []), (self._frame[me], self._serial, me))
            yield "turn", None
            if phase.wakes:
                yield "sleep", HOP_S
        if phase.memory and phase.memory_s:
            memory = self._memories.setdefault(phase.memory, _Memory())
            memory.advance(self._time)
            memory.left[me] = phase.memory_s
            self._earliest[me] = self._time + phase.seconds
            yield "memory", None
        else:
            yield "sleep", phase.seconds
        if phase.resource:
            self._hand_over(phase.resource)

    def _pass_on(self, me: int, stage: int) -> Iterator[Wait]:
        """Yield the waiting for places in the queues behind a stage."""
        for reader in self._readers[stage]:
            is_last = self._arrives(reader, self._frame[me], len(self._sources[reader]))
            if is_last and not self._put(reader, self._frame[me]):
                # Whoever makes room puts it there.
                self._stuck[reader].append(me)
                yield "place", None
        ends = sum(not readers for readers in self._readers)
        if not self._readers[stage] and self._arrives(-1, self._frame[me], ends):
            self._leave(self._frame[me])

    def _take(self, stage: int, worker: int) -> None:
        self._frame[worker] = self._queues[stage].popleft()
        if self._stuck[stage]:
            waiting = self._stuck[stage].popleft()
            self._queues[stage].append(self._frame[waiting])
            self._at(self._time, waiting)
        elif stage in self._first:
            self._let_in()

    def _hand_over(self, resource: str) -> None:
        if self._lines.get(resource):
            self._at(self._time, heapq.heappop(self._lines[resource])[-1])
        else:
            self._free[resource] += 1

    def _arrives(self, stage: int, frame: int, branches: int) -> bool:
        key = stage, frame
        self._arrived[key] = self._arrived.get(key, 0) + 1
        if self._arrived[key] < branches:
            return False
        del self._arrived[key]
        return True

    def _put(self, stage: int, frame: int) -> bool:
        if self._idle[stage]:
            worker = self._idle[stage].popleft()
            self._frame[worker] = frame
            self._at(self._time, worker)
            return True
        if len(self._queues[stage]) >= self._depths[stage]:
            return False
        self._queues[stage].append(frame)
        return True

    def _let_in(self) -> None:
        while self._started - len(self.ends) < self._most_inside and all(
            self._idle[stage] or len(self._queues[stage]) < self._depths[stage] for stage in self._first
        ):
            self._started += 1
            for stage in self._first:
                self._put(stage, self._started - 1)

    def _leave(self, frame: int) -> None:
        self._finished.add(frame)
        while len(self.ends) in self._finished:
            self._finished.remove(len(self.ends))
            self.ends.append(self._time)
        self._let_in()
