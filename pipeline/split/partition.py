"""Exact solver: costs in, cuts out.  Plain numbers; it knows nothing of models, devices or threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Partition:
    """A division of a chain of items into consecutive stages.

    Attributes
    ----------
    ends : tuple of int
        For each stage, the number of items up to its end.
    seconds : tuple of float
        Cost of each stage.
    """

    ends: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def slowest(self) -> float:
        """Cost of the slowest stage."""
        return max(self.seconds)


def partition(compute: ArrayLike, crossing: ArrayLike, stages: int, leaving: ArrayLike | None = None) -> Partition:
    """Divide a chain into exactly `stages` non-empty stages so that the slowest one is as fast as possible.

    A stage costs the sum of its items plus the transfers at its two borders.

    Parameters
    ----------
    compute : array of float, shape (items,) or (stages, items)
        Cost of each item; with two dimensions, in each stage (on that stage's device).
    crossing : array of float, shape (items - 1,) or (stages - 1, items - 1)
        Cost of a transfer between an item and its successor; with two dimensions, between a stage and the next.
    stages : int
        At least 1 and at most the number of items.
    leaving : array of float, optional
        What of the transfer the stage in front spends, where that is not as much as the one behind it; `crossing` is
        the latter's part then.

    Returns
    -------
    Partition

    Raises
    ------
    ValueError
        If the shapes do not fit, a cost is negative or not finite, or there are more stages than items.

    Notes
    -----
    With P the prefix sums, stage ``[i, j)`` costs ``(P[j] + out[j]) - (P[i] - in[i])``.  Whether a bound B can be
    met is decided in O(stages x items): an end j is reachable if the largest ``P[i] - in[i]`` of the starts i < j
    reachable one stage earlier is at least ``P[j] + out[j] - B``.  Bisection over B ends when no floating-point
    number is left between what can and what cannot be met.
    """
    chain = _Chain(compute, crossing, crossing if leaving is None else leaving, stages)
    # Where the lower bound can be met, which includes zero, there is nothing to search for.
    low, best = chain.bound(), chain.solve(chain.bound()) or chain.any()
    while low < best.slowest:
        middle = low + (best.slowest - low) / 2
        if not low < middle < best.slowest:
            break
        if found := chain.solve(middle):
            best = found
        else:
            low = middle
    return best


class _Chain:
    def __init__(self, compute: ArrayLike, entering: ArrayLike, leaving: ArrayLike, stages: int) -> None:
        compute, *crossings = (np.asarray(each, np.float64) for each in (compute, entering, leaving))
        items = compute.shape[-1]
        if not 1 <= stages <= items:
            raise ValueError(f"{stages} stages of {items} items: there must be at least 1 and at most one per item")
        if compute.shape not in ((items,), (stages, items)):
            raise ValueError(f"compute has the shape {compute.shape} for {stages} stages of {items} items")
        for crossing in crossings:
            if crossing.shape not in ((items - 1,), (stages - 1, items - 1)):
                raise ValueError(f"crossing has the shape {crossing.shape} for {stages} stages of {items} items")
        if not all(np.all(np.isfinite(each) & (each >= 0)) for each in (compute, *crossings)):
            raise ValueError("costs must be finite and not negative")
        self._stages, self._items = stages, items
        self._compute = np.broadcast_to(compute, (stages, items))
        borders = np.zeros((2, stages + 1, items + 1))
        for border, crossing in zip(borders, crossings, strict=True):
            border[1:-1, 1:-1] = np.broadcast_to(crossing, (stages - 1, items - 1))
        prefix = np.concatenate([np.zeros((stages, 1)), np.cumsum(self._compute, axis=1)], axis=1)
        self._starts = prefix - borders[0][:-1]
        self._ends = prefix + borders[1][1:]

    def bound(self) -> float:
        """Return a cost that no division can beat."""
        return float(max(self._compute.min(axis=0).max(), self._compute.min(axis=0).sum() / self._stages) * (1 - 1e-12))

    def solve(self, limit: float) -> Partition | None:
        """Return a division in which no stage costs more than `limit`, or None."""
        reachable = np.zeros(self._items + 1, bool)
        reachable[0] = True
        history: list[NDArray[np.bool_]] = [reachable]
        for stage in range(self._stages):
            starts = np.where(history[-1], self._starts[stage], -np.inf)
            best = np.maximum.accumulate(starts)[:-1]
            reachable = np.zeros(self._items + 1, bool)
            # The same expression as a stage's cost, so that rounding cannot tell the two apart.
            reachable[1:] = self._ends[stage][1:] - best <= limit
            history.append(reachable)
        return self._trace(history) if history[-1][-1] else None

    def any(self) -> Partition:
        """Return a division, however slow."""
        return self._divided([*range(self._stages), self._items])

    def _trace(self, history: Sequence[NDArray[np.bool_]]) -> Partition:
        """Walk back from the end, each time to the start that makes the stage cheapest."""
        edges = [self._items]
        for stage in range(self._stages - 1, -1, -1):
            starts = np.where(history[stage][: edges[-1]], self._starts[stage][: edges[-1]], -np.inf)
            edges.append(int(np.argmax(starts)))
        return self._divided(edges[::-1])

    def _divided(self, edges: Sequence[int]) -> Partition:
        seconds = [float(self._ends[s][edges[s + 1]] - self._starts[s][edges[s]]) for s in range(self._stages)]
        return Partition(tuple(edges[1:]), tuple(seconds))
