"""Heterogeneous search: divisions with borrowing stages, judged with all waiting.

The solver sees the waiting by a formula.  Several divisions, among them that without any such stage, are compared by
following frames through them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from pipeline.errors import PlanError
from pipeline.prediction.predict import Prediction
from pipeline.split.planning.problem.border_kinds import Borders, Segment
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.limits import ROUNDING
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.bound import relaxed_interval
from pipeline.split.planning.solver.candidates import Candidate
from pipeline.split.planning.solver.solution import Solution, StageSolution, solution
from pipeline.split.planning.solver.trade_off import LEAST_GAIN, MOST_LATENCY

MOST_COUNTS = 4
"""Most numbers of workers of a heterogeneous stage tried one by one."""

MOST_STATES = 64
"""Bound on combinations of units in use up to which stages may be on any processors beside heterogeneous ones."""

_SHIFTS = (-2, -1, 1, 2)
"""Shifts of cuts, in items, to look for something better nearby."""

# A step that gains less than this share is the last one.
_GAIN, _ROUNDS = 1e-3, 4

# Candidates from which that begins, of all and of those of little latency.
_STARTS = 2

# Stages of the whole chain that are looked at, of all and of those of little latency.
_SINGLES = 4


_FEW_ITEMS = 12
"""Bound on items up to which workers are tried that wait the least."""

FORMULA = 1.1
"""Factor by which the formula for waiting may be off."""


def search_problems(problem: Problem, goal: str) -> Iterator[Problem]:
    """Yield smaller problems with good solutions of this one.

    The formula's results for few workers and for many are off by different shares, so that it cannot compare them: for
    the rate, each number of workers has a problem of its own.
    """
    for part in _parts(problem):
        counts = sorted({choice.replicas for choice in part.choices if choice.paths is not None})
        step = -(-len(counts) // MOST_COUNTS) or 1
        # From the most workers downwards.
        for count in counts[::-step] if goal == "throughput" and len(counts) > 1 else ():
            chosen = [choice for choice in part.choices if choice.paths is None or choice.replicas == count]
            yield _select(part, chosen)
            if part.items <= _FEW_ITEMS:
                # The formula is for services that vary; those that do not may wait for nothing.
                yield _select(part, map(_impatient, chosen))
        yield part


def _impatient(choice: Choice) -> Choice:
    """Return a choice whose workers wait the least."""
    return choice if choice.waits is None else replace(choice, waits=choice.least_waits)


def has_many_workers(problem: Problem) -> bool:
    """Check if all borrowing stages have several workers."""
    return min((choice.replicas for choice in problem.choices if choice.paths is not None), default=1) > 1


def _parts(problem: Problem) -> Iterator[Problem]:
    """Yield the problem, or too large, one per kind of workers."""
    if _states(problem, range(len(problem.processors))) <= MOST_STATES:
        yield problem
        return
    heterogeneous = {_processors(choice): None for choice in problem.choices if choice.paths is not None}
    small = [kinds for kinds in heterogeneous if _states(problem, kinds) <= MOST_STATES]
    # Workers on unlike cores need no more than those on each kind of them, if that is not too much.
    for processors in (kinds for kinds in heterogeneous if not any(kinds < smaller for smaller in small)):
        yield _select(problem, [choice for choice in problem.choices if _processors(choice) <= processors])


def _states(problem: Problem, processors: Iterable[int]) -> int:
    """Return the combinations of units in use of some processors."""
    return math.prod(problem.processors[index].units + 1 for index in processors)


def _processors(choice: Choice) -> frozenset[int]:
    return frozenset(index for index, units in enumerate(choice.use) if units)


def _select(problem: Problem, choices: Iterable[Choice]) -> Problem:
    return replace(problem, choices=tuple(choices))


def refine(
    problem: Problem,
    candidates: Sequence[Candidate],
    predict: Callable[[Solution], Prediction],
    goal: str,
    fps: float | None,
) -> list[Candidate]:
    """Return improved neighbours of the best borrowing and prompt candidates."""

    def rank(candidate: Candidate) -> tuple[float, float]:
        # Who keeps up is as fast as any other that does.
        pace = candidate.prediction.interval_s if fps or goal == "throughput" else 0.0
        return max(pace, 1 / fps if fps else 0.0), candidate.value(goal)

    longest = MOST_LATENCY * min(candidate.prediction.latency_s for candidate in candidates)
    slowest = slowest_useful(candidates, "throughput", None)
    singles = _single_stages(problem, slowest, longest, predict)
    borrowing = [
        candidate for candidate in candidates if any(stage.choice.paths for stage in candidate.solution.stages)
    ]
    # Those that take the same are most often the same, found in several problems.
    distinct = {
        (candidate.prediction.interval_s, candidate.prediction.latency_s): candidate
        for candidate in (*borrowing, *singles)
    }
    borrowing = sorted(distinct.values(), key=rank)
    prompt = [candidate for candidate in borrowing if candidate.prediction.latency_s <= longest]
    starts = [
        *((candidate, np.inf) for candidate in borrowing[:_STARTS]),
        *((candidate, longest) for candidate in prompt[:_STARTS]),
    ]
    return [*singles, *(_refine(problem, candidate, predict, latency, rank) for candidate, latency in starts)]


def _single_stages(
    problem: Problem, slowest: float, longest: float, predict: Callable[[Solution], Prediction]
) -> list[Candidate]:
    """Return the best one-stage borrowing divisions, fast and prompt."""
    borders, single = Borders(problem), list[Solution]()
    for index, choice in enumerate(problem.choices):
        if choice.paths is not None and np.isfinite(choice.compute_s(0, problem.items)):
            enter = borders.enter_kind(len(problem.processors), choice.processor)
            leave = len(borders.leave[choice.processor]) - 1
            single.append(solution(problem, borders, [Segment(0, problem.items, index, enter, leave)]))
    fast = sorted(
        (division for division in single if division.interval <= slowest * FORMULA),
        key=lambda division: division.interval,
    )
    prompt = [division for division in fast if division.latency <= longest]
    chosen = [*fast[:_SINGLES], *(division for division in prompt[:_SINGLES] if division not in fast[:_SINGLES])]
    predictions = [(division, predict(division)) for division in chosen if _fits(problem, division.stages)]
    return [
        Candidate(replace(division, interval=prediction.interval_s), prediction) for division, prediction in predictions
    ]


def _refine(
    problem: Problem,
    candidate: Candidate,
    predict: Callable[[Solution], Prediction],
    most_latency: float,
    rank: Callable[[Candidate], tuple[float, float]],
) -> Candidate:
    """Return the best neighbour of a candidate. It moves cuts and tries other paths."""
    best = candidate
    for _ in range(_ROUNDS):
        near = _neighbours(problem, best.solution)
        neighbours = [
            Candidate(neighbour, predict(neighbour))
            for neighbour in near
            if neighbour.latency <= most_latency * (1 + ROUNDING)
        ]
        nearest = min(neighbours, key=rank, default=best)
        (pace, value), (best_pace, best_value) = rank(nearest), rank(best)
        if pace >= best_pace * (1 - _GAIN) and (pace > best_pace or value >= best_value * (1 - _GAIN)):
            break
        best = nearest
    return replace(best, solution=replace(best.solution, interval=best.prediction.interval_s))


def _neighbours(problem: Problem, division: Solution) -> Iterator[Solution]:
    stages = division.stages
    for index, stage in enumerate(stages):
        if stage.choice.paths is None:
            continue
        alike = (choice for choice in problem.choices if choice is not stage.choice and _is_alike(choice, stage.choice))
        for choice in (*alike, *stage.choice.paths.variants(stage.choice, stage.begin, stage.end)):
            yield from _replace_stages(problem, division, {index: (choice, stage.begin, stage.end)})
    for index, (left, right) in enumerate(pairwise(stages)):
        for shift in _SHIFTS:
            cut = left.end + shift
            if left.begin < cut < right.end:
                changes = {index: (left.choice, left.begin, cut), index + 1: (right.choice, cut, right.end)}
                yield from _replace_stages(problem, division, changes)


def _is_alike(choice: Choice, other: Choice) -> bool:
    """Check two choices for the same workers on other paths."""
    return choice.paths is not None and (choice.use, choice.threads, choice.device, choice.replicas) == (
        other.use, other.threads, other.device, other.replicas,
    )  # fmt: skip


def _replace_stages(
    problem: Problem, division: Solution, changes: Mapping[int, tuple[Choice, int, int]]
) -> Iterator[Solution]:
    """Yield the solution with changed stages, if possible and in memory."""
    stages = list(division.stages)
    for index, (choice, begin, end) in changes.items():
        compute = float(choice.span_seconds[end, begin])
        if not np.isfinite(compute):
            return
        common, nbytes = choice.common_s(begin, end), float(problem.memory_bytes(choice)[end, begin])
        stages[index] = replace(
            stages[index], choice=choice, begin=begin, end=end, compute=compute, common=common, nbytes=nbytes
        )
    if _fits(problem, stages):
        yield replace(division, stages=tuple(stages))


def _fits(problem: Problem, stages: Sequence[StageSolution]) -> bool:
    """Check the stages' memory, without their loans."""
    return all(
        sum(stage.nbytes for stage in stages if stage.choice.processor in memory.processors) <= memory.nbytes
        for memory in problem.memories
    )


def compare(
    problems: Iterable[Problem],
    solve: Callable[[Problem], tuple[Solution, ...]],
    predict: Callable[[Solution], Prediction],
    slowest: Callable[[Sequence[Candidate]], float],
) -> list[Candidate]:
    """Return several problems' divisions with predictions.

    `solve` returns divisions of a problem, or raises `PlanError`; that of the first problem goes on if no other has
    any. `slowest` returns the longest interval that is of use beside some candidates.
    """
    candidates, errors = list[Candidate](), list[PlanError]()
    for problem in problems:
        if candidates and relaxed_interval(problem) > slowest(candidates):
            continue
        try:
            solutions = solve(problem)
        except PlanError as error:
            errors.append(error)
            continue
        for division in solutions:
            prediction = predict(division)
            candidates.append(Candidate(replace(division, interval=prediction.interval_s), prediction))
    if not candidates:
        raise errors[0]
    return candidates


def slowest_useful(candidates: Sequence[Candidate], goal: str, fps: float | None) -> float:
    """Return the longest interval of a division worth choosing."""
    if fps:
        return 1 / fps * (1 + ROUNDING)
    # Less latency is worth some of the rate, and the other goals all of it.
    fastest = min(candidate.prediction.interval_s for candidate in candidates)
    return fastest * LEAST_GAIN if goal == "throughput" else np.inf
