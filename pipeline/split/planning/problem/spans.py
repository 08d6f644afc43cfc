"""SpanTimes: measured seconds of runs of groups, for whole-stage fusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from pipeline.split.planning.problem.arrays import Array, span_sums


@dataclass(frozen=True, eq=False)
class SpanTimes:
    """Seconds of stages on a runtime whose operators' times do not add up."""

    positions: tuple[int, ...]
    """Positions between groups, where stages may begin and end; the ends of the chain are the first and the last
    one."""
    seconds: Array
    """Seconds of the span from the second position to the first one, alone on one core; infinite where it cannot run.
    Shape (positions, positions)."""
    threads: Mapping[int, float] = field(default_factory=dict)
    """The whole model's time with so many threads, as a share of that with one."""
    contention: float = 1.0
    """Time while the device's other cores are as busy, as a multiple of that while they rest."""

    def scale(self, factor: float) -> SpanTimes:
        """Return the times multiplied by a factor."""
        return replace(self, seconds=self.seconds * factor)

    def matrix(self, threads: int = 1, *, contended: bool = False) -> Array:
        """Return the seconds of groups ``[i, j)`` as ``[j, i]``.

        Seconds are infinite where nothing was measured.
        """
        size = self.positions[-1] + 1
        matrix = np.full((size, size), np.inf)
        factor = self.thread_share(threads) * (self.contention if contended else 1.0)
        matrix[np.ix_(self.positions, self.positions)] = self.seconds * factor
        return matrix

    def thread_share(self, threads: int) -> float:
        """Return the share of one thread's time, by the next smaller measurement."""
        counts = [count for count in self.threads if count <= threads]
        return self.threads[max(counts)] if counts else 1.0

    def group_seconds(self, weights: Sequence[float]) -> list[float]:
        """Return groups' seconds with sums below every span.

        Weights divide the time between two positions among the groups there.
        """
        shares = np.maximum(np.where(np.isfinite(weights), weights, 0.0), 1e-12)
        starts = list(self.positions[:-1])
        counts = np.diff(self.positions)
        rates = np.repeat(self._segments / np.add.reduceat(shares, starts), counts)
        return [float(seconds) for seconds in rates * shares]

    @cached_property
    def _segments(self) -> Array:
        """Seconds between neighbouring positions, scaled below all measured spans."""
        segments: Array = np.diagonal(self.seconds, offset=-1).copy()
        finite = np.isfinite(segments)
        sums = span_sums(np.where(finite, segments, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios: Array = self.seconds / sums
        valid = np.isfinite(self.seconds) & np.isfinite(sums) & (sums > 0)
        segments[finite] *= min(1.0, float(ratios[valid].min(initial=1.0)))
        # What does not run by itself may within a longer span, and then costs at least nothing.
        for index in np.flatnonzero(~finite):
            if np.isfinite(self.seconds[index + 1 :, : index + 1]).any():
                segments[index] = 0.0
        return segments
