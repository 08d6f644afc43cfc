"""Replica notes: stage counts, times and events over all replicas."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.scheduler.statistics import StageCounters, StageStatistics, summarise_stage
from pipeline.scheduler.trace import Trace, TraceEvent


class ReplicaNotes:
    """Statistics of all replicas from replies; a lost replica loses only its frames.

    The trace has the events by this process's clock and with the stream's numbers of frames.
    """

    def __init__(self, plan: Plan, trace: Trace | None) -> None:
        self._stages = {stage.name: stage for stage in plan.stages}
        self._steps = {
            unit.name: (stage.name, number)
            for stage in plan.stages
            if stage.steps
            for number, unit in enumerate(stage.units)
        }
        self._trace = trace
        # Replies of one replica come to several threads.
        self._lock = threading.Lock()
        self._counters: dict[tuple[str, int], StageCounters] = {}

    def add(self, frame: int, replica: int, events: Sequence[TraceEvent], offset_s: float) -> None:
        """Add a replica's work on a frame, with its clock's `offset_s`."""
        if self._trace is not None:
            for event in events:
                number = replica * self._width(event.stage) + event.replica
                times = (event.start + offset_s, event.end + offset_s)
                self._trace.add(event.stage, frame, event.kind, *times, number, event.device)
        with self._lock:
            for name in dict.fromkeys(event.stage for event in events):
                self._count(name, replica, [event for event in events if event.stage == name])

    def summarise(self, replicas: int, elapsed_s: float) -> tuple[StageStatistics, ...]:
        """Return the stages' statistics in plan order, over all replicas."""
        with self._lock:
            groups = {
                name: [counters for (stage, _), counters in self._counters.items() if stage == name]
                for name in self._stages
            }
        return tuple(
            summarise_stage(replace(stage, replicas=max(1, replicas) * stage.replicas), groups[name], 0, elapsed_s)
            for name, stage in self._stages.items()
        )

    def _count(self, name: str, replica: int, events: Sequence[TraceEvent]) -> None:
        stage_name, step = self._steps.get(name, (name, -1))
        counters = self._stage_counters(self._stages[stage_name], replica)
        seconds = dict.fromkeys(("queue", "copy", "run", "failed", "step"), 0.0)
        for event in events:
            seconds[event.kind] += event.end - event.start
        kinds = {event.kind for event in events}
        if step >= 0:
            # The reply has only when a step had its device.
            counters.steps[step].count_run(0.0, 0.0, seconds["step"])
            return
        counters.frames_in += 1
        if "failed" in kinds:
            counters.failed += 1
        else:
            counters.count_run(seconds["queue"], seconds["copy"], seconds["run"])

    def _stage_counters(self, stage: StagePlan, replica: int) -> StageCounters:
        key = (stage.name, replica)
        if key not in self._counters:
            self._counters[key] = StageCounters(len(stage.steps))
        return self._counters[key]

    def _width(self, name: str) -> int:
        return self._stages[self._steps.get(name, (name, -1))[0]].replicas
