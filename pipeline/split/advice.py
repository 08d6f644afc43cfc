"""Advice: other ways to run a model, a verdict on pipelining it, and what would gain most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from pipeline.plans import Plan
from pipeline.split.explanation import Alternative, StageForecast
from pipeline.split.planner import MOST_ITEMS, Planner
from pipeline.split.planning.problem import Choice, Problem
from pipeline.split.planning.solve import Solver

WORTHWHILE = 1.1
"""Stages are called no help unless they are this much faster than the whole model at one place."""

NOTABLE = 1.02
"""A change is mentioned if it gains this much."""


def alternatives(planner: Planner, problem: Problem) -> tuple[Alternative, ...]:
    """Return the model unsplit, on one core and on more, replicated, and in stages, each as good as it can be."""
    # One core alone leaves the others idle; without times of busy ones, that is the same problem.
    calm = replace(planner, crowded={}).problem() if planner.crowded else problem
    kinds: dict[str, tuple[Problem, Callable[[Choice], bool]]] = {
        "unsplit, one core or device": (calm, lambda choice: choice.replicas == 1 and choice.threads <= 1),
        "unsplit, several cores": (problem, lambda choice: choice.replicas == 1 and choice.threads > 1),
        "replicas of the whole": (problem, lambda choice: choice.replicas > 1),
    }
    found = []
    for name, (given, belongs) in kinds.items():
        ways = [(_whole(given, choice), choice) for choice in given.choices if belongs(choice)]
        interval, choice = min(ways, key=lambda way: way[0], default=(np.inf, None))
        if choice is not None and 0 < interval < np.inf:
            found.append(Alternative(name, 1, choice.replicas, 1 / interval, interval * choice.replicas))
    staged = Solver(short(planner.problem(replicas=False))).fastest()
    if staged is not None and len(staged.stages) > 1:
        found.append(Alternative("stages", len(staged.stages), 1, 1 / staged.interval, staged.latency))
    return tuple(found)


def _whole(problem: Problem, choice: Choice) -> float:
    """Return the interval of the whole model at one place, infinite if it cannot run there."""
    caller = len(problem.places)
    one = problem.merged([0, problem.items])
    enter, leave = one.enter[caller, choice.place], one.leave[choice.place, caller]
    merged = replace(choice, seconds=np.array([choice.seconds.sum()]))
    return float(one.times(merged, enter, leave)[1, 0])


def verdict(plan: Plan, interval: float, alternatives: Sequence[Alternative]) -> tuple[str, str]:
    """Return what to think of a plan with that interval, in a word and in a sentence."""
    by_name = {each.name: each for each in alternatives}
    rate = 1 / interval if interval else 0.0
    unsplit = max((each.frames_per_s for name, each in by_name.items() if name.startswith("unsplit")), default=0.0)
    copies, staged = by_name.get("replicas of the whole"), by_name.get("stages")
    if len(plan.stages) == 1:
        if plan.stages[0].replicas > 1:
            against = f"; the best division into stages gives {staged.frames_per_s:.4g}" if staged else ""
            return "replicas", (
                f"Replicate instead of pipelining: {plan.stages[0].replicas} replicas of the whole model give "
                f"{rate:.4g} frames/s{against}."
            )
        gain = f" A division into {staged.stages} stages would give {staged.frames_per_s:.4g}." if staged else ""
        return "one stage", f"Do not pipeline: one stage, nothing is pipelined, {rate:.4g} frames/s.{gain}"
    instead = ""
    if copies and copies.frames_per_s > rate * NOTABLE:
        give = f"{copies.replicas} replicas of the whole model give {copies.frames_per_s:.4g} frames/s"
        instead = f"Replicate instead: {give}"
    if rate < unsplit * WORTHWHILE:
        return "do not pipeline", (
            f"Do not pipeline: it will not help here. The stages give {rate:.4g} frames/s, the unsplit model "
            f"{unsplit:.4g}. {instead + '.' if instead else ''}".strip()
        )
    if instead:
        return "replicate instead", f"{instead}, these stages {rate:.4g}."
    if not unsplit:
        return "pipeline", f"Pipeline: {rate:.4g} frames/s; no device can run the whole model."
    return "pipeline", f"Pipeline: {rate:.4g} frames/s, {rate / unsplit:.2f} times the best unsplit way."


def advice(planner: Planner, problem: Problem, slowest: StageForecast, interval: float, best: float) -> Iterator[str]:
    """Yield what would gain most, each by planning again with that change: first, to plan again without any."""
    if interval > best * NOTABLE:
        yield _gain("cuts, devices and replicas by the planner", interval / best)
    gains = [(interval / changed, what) for what, changed in _changed(planner, problem, slowest) if changed]
    for gain, what in sorted(gains, reverse=True):
        if gain > NOTABLE * interval / best:
            yield _gain(what, gain)


def _gain(what: str, gain: float) -> str:
    return f"{what}: {gain:.2f} times the frames per second"


def _changed(planner: Planner, problem: Problem, slowest: StageForecast) -> Iterator[tuple[str, float]]:
    merged = short(problem)
    yield (
        "transfers that cost nothing",
        _interval(replace(merged, enter=_free(merged.enter), leave=_free(merged.leave))),
    )
    group = next(each.group for each in planner.graph.operators if each.name == slowest.slowest_operator)
    factors = np.where(np.arange(problem.items) == group, 0.5, 1.0)
    faster = replace(problem, choices=tuple(replace(each, seconds=each.seconds * factors) for each in problem.choices))
    yield f"{slowest.slowest_operator!r} in half its time", _interval(short(faster))
    for number, place in enumerate(merged.places):
        if place.shares or place.units > 1:
            continue
        more = (*merged.places[:number], replace(place, units=2), *merged.places[number + 1 :])
        yield f"a second {place.name!r}", _interval(replace(merged, places=more))


def _free(seconds: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(seconds), 0.0, seconds)


def _interval(problem: Problem) -> float:
    found = Solver(problem).fastest()
    return 0.0 if found is None else found.interval


def short(problem: Problem) -> Problem:
    """Return the problem with as few positions as the planner looks at."""
    return problem.merged(problem.spread(MOST_ITEMS))
