"""Solution: a division with times and a proof, as plain values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pipeline.split.planning.problem.border_kinds import Borders, Segment
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem


@dataclass(frozen=True)
class StageSolution:
    """One stage of a solution."""

    begin: int
    end: int
    choice: Choice
    compute: float
    enter: float
    leave: float
    """Seconds of one frame on one replica, and of its tensors coming in and going out."""
    interval: float
    """Seconds between two frames."""
    nbytes: float
    """Bytes that it keeps in its memory."""
    common: float = 0.0
    """Seconds of `compute` that are the same on each of several unlike replicas."""
    loads: Mapping[int, float] = field(default_factory=dict)
    """Seconds for which a frame uses a resource, by its index."""
    hop_s: float = 0.0
    """Seconds to hand a frame on."""

    @property
    def seconds(self) -> float:
        """Time of a frame in a replica, transfers included.

        It is the mean over frames where replicas are not alike.
        """
        if self.choice.factors:
            common = np.float64(self.common + self.enter + self.leave)
            return (
                float(self.choice.frame_interval(np.float64(self.compute - self.common), common)) * self.choice.replicas
            )
        return self.compute + self.enter + self.leave

    @property
    def latency(self) -> float:
        """Time of one frame in the slowest replica, transfers and hop included."""
        replica_s = (self.compute - self.common) * self.choice.slowest_factor
        return replica_s + self.common + self.enter + self.leave + self.hop_s


@dataclass(frozen=True)
class Solution:
    """A division."""

    stages: tuple[StageSolution, ...]
    interval: float
    """Seconds between two frames."""
    bound: float = 0.0
    """An interval that no division can beat, as far as the search has proved; 0 if it has proved nothing."""
    fastest: float = 0.0
    """The shortest interval that was found, where this division is another one for its size or latency; 0 if none was
    looked for."""

    @property
    def latency(self) -> float:
        """Seconds of one frame through all stages when nothing waits."""
        return sum(stage.latency for stage in self.stages)

    @property
    def joules(self) -> float:
        """Energy of one frame above rest."""
        return sum(stage.seconds * stage.choice.watts for stage in self.stages)

    @property
    def gap(self) -> float:
        """Excess of the interval over the bound, as its share."""
        return self.interval / self.bound - 1 if self.bound else 0.0

    @property
    def open_gap(self) -> float:
        """Excess of the fastest known division over the bound: its looseness."""
        return max(0.0, self.fastest / self.bound - 1) if self.bound and self.fastest else 0.0

    def at_positions(self, positions: Sequence[int]) -> Solution:
        """Return a merged problem's solution by the whole chain's items."""
        stages = [replace(stage, begin=positions[stage.begin], end=positions[stage.end]) for stage in self.stages]
        return replace(self, stages=tuple(stages))


def solution(problem: Problem, borders: Borders, segments: Sequence[Segment], bound: float = 0.0) -> Solution:
    """Return the segments of a search with all their times."""
    stages = tuple(_stage(problem, borders, segment) for segment in segments)
    return Solution(stages, interval(stages), bound)


def interval(stages: Sequence[StageSolution]) -> float:
    """Return the interval of the slowest stage or shared resource."""
    # Between two frames of the whole, each stage uses what it shares for one of them.
    loads: dict[int, float] = defaultdict(float)
    for stage in stages:
        for index, seconds in stage.loads.items():
            loads[index] += seconds
    return max([*(stage.interval for stage in stages), *loads.values()])


def _stage(problem: Problem, borders: Borders, segment: Segment) -> StageSolution:
    choice = problem.choices[segment.choice]
    enter = float(borders.enter[choice.processor][segment.enter][segment.begin])
    leave = float(borders.leave[choice.processor][segment.leave][segment.end]) - problem.hop_s
    compute, transfer_s = choice.compute_s(segment.begin, segment.end), enter + leave + problem.hop_s
    common = choice.common_s(segment.begin, segment.end)
    if problem.processors[choice.processor].overlaps:
        # As `overlap_seconds`, for one stage.
        interval_s = max(compute, (compute + transfer_s) / 2) / choice.replicas
    else:
        wait = 0.0 if choice.waits is None else choice.waits[segment.end, segment.begin]
        interval_s = float(choice.frame_interval(np.float64(compute - common), np.float64(common + wait + transfer_s)))
    span = slice(segment.begin, segment.end)
    nbytes = 0.0
    if problem.parameters is not None and problem.workspace is not None and problem.queue_bytes is not None:
        footprint = problem.parameters[span].sum() + problem.workspace[span].max()
        nbytes = float(choice.replicas / choice.memories * footprint + problem.queue_bytes[segment.begin])
    loads = {index: _load(problem, borders, segment, index) for index in range(len(problem.resources))}
    return StageSolution(
        segment.begin, segment.end, choice, compute, enter, leave, interval_s, nbytes, common, loads, problem.hop_s
    )


def _load(problem: Problem, borders: Borders, segment: Segment, resource: int) -> float:
    """Return a resource's seconds of a frame in a stage."""
    choice = problem.choices[segment.choice]
    load = choice.load_s(resource, segment.begin, segment.end)
    if resource in problem.enter_loads:
        source = borders.sources[choice.processor][segment.enter]
        load += float(problem.enter_loads[resource][source, choice.processor, segment.begin])
    if resource in problem.leave_loads:
        target = borders.targets[choice.processor][segment.leave]
        load += float(problem.leave_loads[resource][choice.processor, target, segment.end])
    return load
