"""Solution: a division with its times, and the proof of how good it is, as plain values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.split.planning.problem import Choice, Problem
from pipeline.split.planning.search import Borders, Step


@dataclass(frozen=True)
class Stage:
    """One stage of a solution.

    Attributes
    ----------
    begin, end : int
        Its items.
    choice : Choice
    compute, enter, leave : float
        Seconds of one frame on one replica, and of its tensors coming in and going out.
    interval : float
        Seconds between two frames.
    nbytes : float
        What it keeps in its memory.
    """

    begin: int
    end: int
    choice: Choice
    compute: float
    enter: float
    leave: float
    interval: float
    nbytes: float

    @property
    def seconds(self) -> float:
        """Time of one frame in one replica, transfers included."""
        return self.compute + self.enter + self.leave


@dataclass(frozen=True)
class Solution:
    """A division.

    Attributes
    ----------
    stages : tuple of Stage
    interval : float
        Seconds between two frames.
    bound : float
        An interval that no division can beat, as far as the search has proved; 0 if it has proved nothing.
    """

    stages: tuple[Stage, ...]
    interval: float
    bound: float = 0.0

    @property
    def latency(self) -> float:
        """Seconds of one frame through all stages when nothing waits."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def joules(self) -> float:
        """Energy of one frame above that at rest."""
        return sum(stage.seconds * stage.choice.watts for stage in self.stages)

    @property
    def gap(self) -> float:
        """How much longer the interval is than the bound, as a share of it."""
        return self.interval / self.bound - 1 if self.bound else 0.0


def solution(problem: Problem, borders: Borders, steps: Sequence[Step], bound: float = 0.0) -> Solution:
    """Return the steps of a search with all their times."""
    stages = tuple(_stage(problem, borders, step) for step in steps)
    return Solution(stages, interval(problem, stages), bound)


def interval(problem: Problem, stages: Sequence[Stage]) -> float:
    """Return the seconds between two frames: of the slowest stage, or of a place whose stages take turns."""
    loads: dict[int, float] = defaultdict(float)
    for stage in stages:
        if problem.places[stage.choice.place].shares:
            loads[stage.choice.place] += stage.interval
    return max([*(stage.interval for stage in stages), *loads.values()])


def _stage(problem: Problem, borders: Borders, step: Step) -> Stage:
    choice = problem.choices[step.choice]
    enter = float(borders.enter[choice.place][step.enter][step.begin])
    leave = float(borders.leave[choice.place][step.leave][step.end])
    compute = float(np.sum(choice.seconds[step.begin : step.end]))
    whole = compute + enter + leave
    if problem.places[choice.place].overlaps:
        whole = max(compute, whole / 2)
    span = slice(step.begin, step.end)
    nbytes = 0.0
    if problem.parameters is not None and problem.working is not None and problem.waiting is not None:
        kept = problem.parameters[span].sum() + problem.working[span].max()
        nbytes = float(choice.replicas * kept + problem.waiting[step.begin])
    return Stage(step.begin, step.end, choice, compute, enter, leave, whole / choice.replicas, nbytes)
