"""Step paths: devices of a heterogeneous choice's items, and nearby paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.borrowing.heterogeneous import Step, StepCosts, join_items, path_totals, shortest_path
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.choice import Choice, PathStep

_MANY_ITEMS = 30
"""In longer stages, a path is not looked at with each single item elsewhere."""


@dataclass(frozen=True, eq=False)
class _CostedPaths:
    """Common part of a worker's paths."""

    costs: StepCosts
    devices: tuple[int, ...]
    """Processor of each device of the costs."""

    def step_seconds(self, step: PathStep) -> float:
        """Return a step's seconds, its start included."""
        device = self.devices.index(step.processor)
        return float(self.costs.start_s[device] + self.costs.seconds[device, step.begin : step.end].sum())

    def _name_processors(self, path: Sequence[Step]) -> tuple[PathStep, ...]:
        return tuple(PathStep(self.devices[step.device], step.begin, step.end) for step in path)


@dataclass(frozen=True, eq=False)
class SinglePath(_CostedPaths):
    """Path of a stage on fixed items."""

    path: tuple[Step, ...]

    def steps(self, begin: int, end: int) -> tuple[PathStep, ...]:
        """Return the steps of the stage on items ``[begin, end)``."""
        if (begin, end) != (self.path[0].begin, self.path[-1].end):
            raise ValueError(f"the path is of other items than [{begin}, {end})")
        return self._name_processors(self.path)

    def variants(self, choice: Choice, begin: int, end: int) -> Iterator[Choice]:
        """Yield the choice with one item computed elsewhere."""
        if end - begin <= _MANY_ITEMS:
            yield from self._with_item_elsewhere(choice)

    def of_choice(self, choice: Choice) -> Choice | None:
        """Return a choice with this path; None if impossible or unborrowed."""
        seconds, *_, home_uses = path_totals(self.costs, self.path)
        if not np.isfinite(seconds) or not any(step.device for step in self.path):
            return None
        begin, end = self.path[0].begin, self.path[-1].end
        spans, common = np.full_like(choice.span_seconds, np.inf), np.zeros_like(choice.span_seconds)
        spans[end, begin], common[end, begin] = seconds, seconds - home_uses
        return replace(choice, spans=spans, common=common if choice.factors else None, paths=self)

    def _with_item_elsewhere(self, choice: Choice) -> Iterator[Choice]:
        devices = [step.device for step in self.path for _ in range(step.begin, step.end)]
        begin = self.path[0].begin
        for position, device in enumerate(devices):
            for substitute in range(len(self.devices)):
                path = tuple(join_items([*devices[:position], substitute, *devices[position + 1 :]], begin))
                if substitute != device and (variant := replace(self, path=path).of_choice(choice)):
                    yield variant


@dataclass(frozen=True, eq=False)
class StepPaths(_CostedPaths):
    """Paths of stages on all spans."""

    prices: Array
    """Shape (prices, resources)."""
    rows: NDArray[np.intp]
    """Number of the prices for which the path of the items ``[i, j)`` is the shortest, as entry ``[j, i]``. Shape
    (items + 1, items + 1)."""

    def steps(self, begin: int, end: int) -> tuple[PathStep, ...]:
        """Return the steps of the stage on items ``[begin, end)``."""
        return self._name_processors(self._path(self.rows[end, begin], begin, end))

    def variants(self, choice: Choice, begin: int, end: int) -> Iterator[Choice]:
        """Yield the choice with other prices' paths, and one item elsewhere."""
        current = self._path(self.rows[end, begin], begin, end)
        for path in dict.fromkeys(self._path(row, begin, end) for row in range(len(self.prices))):
            variant = SinglePath(self.costs, self.devices, path).of_choice(choice)
            if path != current and variant is not None:
                yield variant
        yield from SinglePath(self.costs, self.devices, current).variants(choice, begin, end)

    def _path(self, row: int, begin: int, end: int) -> tuple[Step, ...]:
        return tuple(shortest_path(self.costs, self.prices[row], begin, end))
