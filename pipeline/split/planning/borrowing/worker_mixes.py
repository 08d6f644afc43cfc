"""Worker mixes: workers per cluster of cores, and their slowdowns."""

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
    """The workers of a stage."""

    use: tuple[int, ...]
    """Units that they take of each processor."""
    factors: tuple[float, ...]
    """Time of each worker on its own cores, as a multiple of that of the fastest one."""
    watts: float
    """Power that one of them takes while it works, above rest; the mean."""

    @property
    def count(self) -> int:
        """Number of workers."""
        return len(self.factors)

    @property
    def is_alike(self) -> bool:
        """True for equally fast workers."""
        return max(self.factors) == 1

    def mean_seconds(self, seconds: Array, home: Array) -> Array:
        """Return the mean seconds of frames, `home` of them on cores."""
        if self.is_alike:
            return seconds
        # What takes no time has any rate.
        with np.errstate(divide="ignore"):
            rate = sum(1 / (seconds + home * (factor - 1)) for factor in self.factors)
            return np.asarray(self.count / rate)


def worker_mixes(problem: Problem, worker: Choice, processors: Sequence[int], most_units: int) -> Iterator[WorkerMix]:
    """Yield several equal workers, and mixes with slower ones.

    The worker is on the fastest cores; other workers' own may be those of `processors`. All together have `most_units`.
    """
    slower = list(_slower_workers(problem, worker, processors))
    counts = [
        range(start, problem.processors[candidate.processor].units // max(1, sum(candidate.use)) + 1)
        for start, candidate in [(1, worker), *((0, slow_worker) for slow_worker, _ in slower)]
    ]
    for copies in product(*counts):
        workers = [(worker, 1.0), *slower]
        mix = sorted(
            ((member, factor) for (member, factor), count in zip(workers, copies, strict=True) for _ in range(count)),
            # In the order in which the plan gives them their cores.
            key=lambda pair: pair[0].processor,
        )
        use = np.sum([member.use for member, _ in mix], axis=0)
        is_likely = problem.items <= _MANY_ITEMS or not any(copies[1:]) or _is_full(copies, counts)
        if is_likely and use.sum() <= most_units:
            watts = sum(member.watts for member, _ in mix) / len(mix)
            yield WorkerMix(tuple(use.tolist()), tuple(factor for _, factor in mix), watts)


def _is_full(copies: Sequence[int], counts: Sequence[range]) -> bool:
    """Check for a full fastest cluster, others full, half or empty."""
    limits = [count[-1] for count in counts]
    return copies[0] == limits[0] and all(
        count in {0, most_of // 2, most_of} for count, most_of in zip(copies[1:], limits[1:], strict=True)
    )


def _slower_workers(problem: Problem, worker: Choice, processors: Sequence[int]) -> Iterator[tuple[Choice, float]]:
    """Yield workers uniformly slower on other processors, with the factor."""
    for choice in problem.choices:
        is_plain = choice.spans is None and choice.replicas == 1 and not choice.factors
        is_alike = (choice.threads, choice.device) == (worker.threads, worker.device)
        if is_plain and is_alike and choice.processor in processors:
            factor = _factor(choice.seconds, worker.seconds)
            # Of two that are as fast, the first one is the fastest.
            if factor > 1 or (factor == 1 and choice.processor > worker.processor):
                yield choice, factor


def _factor(seconds: Array, base_seconds: Array) -> float:
    """Return the common factor between two lists of times, or 0."""
    is_finite = np.isfinite(seconds) & np.isfinite(base_seconds)
    if not is_finite.any() or not base_seconds[is_finite].sum():
        return 0.0
    factor = float(seconds[is_finite].sum() / base_seconds[is_finite].sum())
    return round(factor, 9) if np.allclose(seconds[is_finite], base_seconds[is_finite] * factor, rtol=1e-6) else 0.0
