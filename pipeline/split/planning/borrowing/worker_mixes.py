"""Worker mixes: how many workers of a stage are on each cluster of cores, and how much slower each one is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem

_MANY_ITEMS = 30
"""In longer chains, workers on unlike cores are looked for only with all cores of one cluster: each mix takes time."""


@dataclass(frozen=True)
class WorkerMix:
    """The workers of a stage.

    Attributes
    ----------
    use : tuple of int
        Units that they take of each processor.
    factors : tuple of float
        Time of each worker on its own cores, as a multiple of that of the fastest one.
    watts : float
        Power that one of them takes while it works, above rest; the mean.
    """

    use: tuple[int, ...]
    factors: tuple[float, ...]
    watts: float

    @property
    def count(self) -> int:
        """Number of workers."""
        return len(self.factors)

    @property
    def is_alike(self) -> bool:
        """Whether all workers are as fast as each other."""
        return max(self.factors) == 1

    def mean_seconds(self, seconds: Array, own: Array) -> Array:
        """Return the mean time of frames that take `seconds` in the fastest worker, `own` of them on its cores."""
        if self.is_alike:
            return seconds
        # What takes no time has any rate.
        with np.errstate(divide="ignore"):
            rate = sum(1 / (seconds + own * (factor - 1)) for factor in self.factors)
            return np.asarray(self.count / rate)


def worker_mixes(problem: Problem, worker: Choice, others: Sequence[int], most_units: int) -> Iterator[WorkerMix]:
    """Yield several workers that are alike, and mixes with slower ones on other processors, none without the first.

    Parameters
    ----------
    problem : Problem
    worker : Choice
        One worker on the fastest cores.
    others : sequence of int
        Processors whose cores may be other workers' own.
    most_units : int
        That all workers together may take.
    """
    slower = list(_slower_workers(problem, worker, others))
    counts = [
        range(start, problem.processors[each.processor].units // max(1, sum(each.use)) + 1)
        for start, each in [(1, worker), *((0, other) for other, _ in slower)]
    ]
    for copies in product(*counts):
        workers = [(worker, 1.0), *slower]
        mix = sorted(
            ((each, factor) for (each, factor), count in zip(workers, copies, strict=True) for _ in range(count)),
            # In the order in which the plan gives them their cores.
            key=lambda pair: pair[0].processor,
        )
        use = np.sum([each.use for each, _ in mix], axis=0)
        is_likely = problem.items <= _MANY_ITEMS or not any(copies[1:]) or _is_full(copies, counts)
        if is_likely and use.sum() <= most_units:
            watts = sum(each.watts for each, _ in mix) / len(mix)
            yield WorkerMix(tuple(use.tolist()), tuple(factor for _, factor in mix), watts)


def _is_full(copies: Sequence[int], counts: Sequence[range]) -> bool:
    """Check that all units of the fastest kind are taken, and of each of the others half, all or none."""
    most = [count[-1] for count in counts]
    return copies[0] == most[0] and all(
        count in {0, most_of // 2, most_of} for count, most_of in zip(copies[1:], most[1:], strict=True)
    )


def _slower_workers(problem: Problem, worker: Choice, others: Sequence[int]) -> Iterator[tuple[Choice, float]]:
    """Yield a worker on each of the other processors that is slower by the same factor everywhere, with that."""
    for choice in problem.choices:
        is_plain = choice.spans is None and choice.replicas == 1 and not choice.factors
        is_alike = (choice.threads, choice.device) == (worker.threads, worker.device)
        if is_plain and is_alike and choice.processor in others:
            factor = _factor(choice.seconds, worker.seconds)
            # Of two that are as fast, the first one is the fastest.
            if factor > 1 or (factor == 1 and choice.processor > worker.processor):
                yield choice, factor


def _factor(seconds: Array, others: Array) -> float:
    """Return by which factor times are longer than others; 0 if that is not the same for all items."""
    is_finite = np.isfinite(seconds) & np.isfinite(others)
    if not is_finite.any() or not others[is_finite].sum():
        return 0.0
    factor = float(seconds[is_finite].sum() / others[is_finite].sum())
    return round(factor, 9) if np.allclose(seconds[is_finite], others[is_finite] * factor, rtol=1e-6) else 0.0
