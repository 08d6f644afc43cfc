"""Enumeration: best division of a small graph in any order, by plans.

The solver lets a tensor cross each stage between its maker and its reader, and sees nobody wait.  Where a graph is
small, all divisions are gone through instead, stage by stage, as far as what they take at least leaves them a chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipeline.split.planning.orders.division_prefix import Prefix, PrefixBuilder
from pipeline.split.planning.problem.limits import ROUNDING
from pipeline.split.planning.solver.candidates import UNIT_SIZE, Candidate

Division = tuple[tuple[int, int], ...]
"""Downset completed by each stage, and its choice's index."""


class Evaluate(Protocol):
    """Prediction of a division's plan, with waiting in line or without."""

    def __call__(self, division: Division, *, waiting: bool) -> Candidate | None:
        """Return the candidate, None if there is no such plan."""


TOLERANCE = 1e-3
"""Share by which the best known division may be missed."""

_STEPS_OF_A_STAGE, _STEPS_OF_A_PLAN, _STEPS_OF_A_WORKER = 8, 200, 60
"""Costs of adding a stage, predicting a plan, and following a worker's frames through a stage, as multiples of looking
at a choice."""


@dataclass(frozen=True)
class Aim:
    """Minimised quantity, under limits of interval and latency."""

    value: str
    """``"interval"``, ``"latency"``, ``"joules"``, or ``"size"``."""
    interval: float = np.inf
    latency: float = np.inf

    def of(self, candidate: Candidate) -> float:
        """Return a candidate's value, infinite beyond the limits."""
        prediction = candidate.prediction
        is_within = prediction.interval_s <= self.interval * (1 + ROUNDING)
        if not is_within or prediction.latency_s > self.latency * (1 + ROUNDING):
            return np.inf
        if self.value == "size":
            return candidate.size
        if self.value == "joules":
            return np.inf if prediction.joules is None else prediction.joules
        return prediction.latency_s if self.value == "latency" else prediction.interval_s

    def limit(self, best: Candidate) -> float:
        """Return the value below which candidates are better."""
        # Sizes are whole numbers of stages and of units.
        return self.of(best) - UNIT_SIZE / 2 if self.value == "size" else self.of(best) * (1 - TOLERANCE)


class Enumeration:
    """All divisions of a small graph.

    `downsets` are ends that stages may have, none before one that it contains; `steps` bounds the choices looked at in
    each search. `is_complete` tells that there were enough for all so far.
    """

    def __init__(
        self,
        builder: PrefixBuilder,
        downsets: Sequence[int],
        evaluate: Evaluate,
        fits: Callable[[Prefix], bool] = lambda _: True,
        steps: int = 250_000,
    ) -> None:
        self._builder, self._evaluate, self._fits, self._most_steps = builder, evaluate, fits, steps
        self._stages = builder.problem.stages
        self.is_complete, self._steps = True, steps
        self._larger = {
            downset: [larger for larger in downsets if larger != downset and not downset & ~larger]
            for downset in downsets
        }
        self._all_groups = downsets[-1]
        self._without_waiting: dict[Division, Candidate | None] = {}
        self._known: dict[Division, Candidate | None] = {}

    def best(self, aim: Aim, incumbent: Candidate | None) -> Candidate | None:
        """Return the best division by an aim, the incumbent in doubt."""
        best = None if incumbent is None or np.isinf(aim.of(incumbent)) else incumbent
        self._steps = self._most_steps
        pending, choices = [(0.0, self._builder.start)], self._choices(aim)
        while pending:
            if self._steps <= 0:
                self.is_complete = False
                break
            value, prefix = pending.pop()
            limit = np.inf if best is None else aim.limit(best)
            if value >= limit:
                continue
            if prefix.downset != self._all_groups:
                extensions = self._extensions(prefix, choices, aim, limit)
                # What promises most is looked at first.
                pending += sorted(extensions, key=lambda extension: (extension[1].downset.bit_count(), -extension[0]))
            elif (candidate := self._candidate(prefix, aim, limit)) and aim.of(candidate) < limit:
                best = candidate
        return best

    def _choices(self, aim: Aim) -> list[int]:
        """Return the choices useful for an aim."""
        choices = self._builder.problem.choices
        if aim.value not in {"latency", "joules"} or np.isfinite(aim.interval):
            return list(range(len(choices)))
        # Of one frame, replicas save neither time nor energy.
        fewest: dict[tuple[int, int, str], int] = {}
        for choice in choices:
            key = choice.processor, choice.threads, choice.device
            fewest[key] = min(choice.replicas, fewest.get(key, choice.replicas))
        return [
            index
            for index, choice in enumerate(choices)
            if choice.replicas == fewest[choice.processor, choice.threads, choice.device]
        ]

    def _extensions(
        self, prefix: Prefix, choices: Sequence[int], aim: Aim, limit: float
    ) -> Iterator[tuple[float, Prefix]]:
        """Yield longer prefixes with bounds below a limit."""
        number, problem = len(prefix.ends), self._builder.problem
        longest = min(aim.interval * (1 + ROUNDING), limit if aim.value == "interval" else np.inf)
        for end in self._larger[prefix.downset]:
            if self._stages and (end == self._all_groups) != (number + 1 == len(self._stages)):
                continue
            for index in choices:
                choice = problem.choices[index]
                if self._stages and choice.processor not in self._stages[number]:
                    continue
                self._steps -= 1
                # Most that is too slow is so without its tensors.
                compute, _ = self._builder.work(index, end & ~prefix.downset)
                if not problem.allows(number, choice) or compute / choice.rate > longest:
                    continue
                self._steps -= _STEPS_OF_A_STAGE
                extended = self._builder.extend(prefix, end, index)
                if extended is None or (value := self._least(extended, aim)) >= limit or not self._fits(extended):
                    continue
                yield value, extended

    def _least(self, prefix: Prefix, aim: Aim) -> float:
        """Return a prefix's lower bound, infinite beyond the limits."""
        builder = self._builder
        interval = builder.interval(prefix)
        if interval > aim.interval * (1 + ROUNDING):
            return np.inf
        latency = builder.latency(prefix)
        if latency > aim.latency * (1 + ROUNDING):
            return np.inf
        if aim.value in {"size", "joules"}:
            return builder.size(prefix) if aim.value == "size" else builder.joules(prefix)
        return latency if aim.value == "latency" else interval

    def _candidate(self, prefix: Prefix, aim: Aim, limit: float) -> Candidate | None:
        """Return a finished division, None if it cannot be or is not below a limit."""
        division = tuple(zip(prefix.ends, prefix.choices, strict=True))
        if division not in self._without_waiting:
            self._steps -= _STEPS_OF_A_PLAN
            self._without_waiting[division] = self._evaluate(division, waiting=False)
        # Waiting only adds to the interval, and following it takes the longest.
        least = self._without_waiting[division]
        if least is None or aim.of(least) >= limit:
            return None
        if division not in self._known:
            workers = sum(self._builder.problem.choices[index].replicas for index in prefix.choices)
            self._steps -= _STEPS_OF_A_WORKER * workers * len(prefix.choices)
            self._known[division] = self._evaluate(division, waiting=True)
        return self._known[division]
