"""Advice: alternatives, a verdict on pipelining, and the largest gains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.core.plan.plan import Plan
from pipeline.prediction.predict import Prediction
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.chain_solver import shorten
from pipeline.split.planning.solver.solution import Solution
from pipeline.split.planning.solver.solver import Solver
from pipeline.split.planning.solver.trade_off import LEAST_GAIN, MOST_LATENCY, POSITIONS, front, knee

WORTHWHILE = 1.1
"""Stages are called no help unless they are this much faster than the whole model at one place."""

NOTABLE = 1.02
"""A change is mentioned if it gains this much."""

BOTH_ENDS = "fastest, with the least latency"
"""Sole alternative where rate and latency agree."""


@dataclass(frozen=True)
class Alternative:
    """Another way to run the model."""

    name: str
    stages: int
    replicas: int
    frames_per_s: float
    latency_s: float


def alternatives(planner: Planner, problem: Problem) -> tuple[Alternative, ...]:
    """Return the best unsplit, threaded, replicated and staged alternatives."""
    # One core alone leaves the others idle; without times of busy ones, that is the same problem.
    isolated_problem = replace(planner, contended={}).problem() if planner.contended else problem
    kinds: dict[str, tuple[Problem, Callable[[Choice], bool]]] = {
        "unsplit, one core or device": (isolated_problem, lambda choice: choice.replicas == 1 and choice.threads <= 1),
        "unsplit, several cores": (problem, lambda choice: choice.replicas == 1 and choice.threads > 1),
        "replicas of the whole": (problem, lambda choice: choice.replicas > 1),
    }
    # The dictionary's order is that in which the explanation shows them.
    results = []
    for name, (setting, belongs) in kinds.items():
        candidates = [_unsplit(setting, choice) for choice in setting.choices if belongs(choice)]
        best = min(filter(None, candidates), key=lambda candidate: candidate.interval, default=None)
        if best is not None and best.interval:
            replicas = best.stages[0].choice.replicas
            results.append(Alternative(name, 1, replicas, 1 / best.interval, best.latency))
    # Few positions are enough: this stands beside the plan, whose cuts were looked for closer.
    division = Solver(shorten(planner.problem(replicas=False))).fastest()
    if division is not None and len(division.stages) > 1:
        stages = len(division.stages)
        results.append(Alternative("stages", stages, 1, 1 / division.interval, division.latency))
    return tuple(results)


def trade_offs(problem: Problem) -> tuple[Alternative, ...]:
    """Return the fastest way, the least late, and the knee."""
    solver = Solver(problem.merge_items(problem.spread_positions(POSITIONS)))
    fastest = solver.fastest()
    if fastest is None:
        return ()
    solutions = front(solver, fastest)
    # Without a solution between the ends there is no knee, and with only one it is both of them.
    solutions_by_name = {"fastest": solutions[0], "knee": knee(solutions), "least latency": solutions[-1]}
    if len(solutions) < 3:
        solutions_by_name = dict(
            zip(("fastest", "least latency") if len(solutions) == 2 else (BOTH_ENDS,), solutions, strict=True)
        )
    return tuple(
        Alternative(
            name,
            len(solution.stages),
            max(stage.choice.replicas for stage in solution.stages),
            1 / solution.interval if solution.interval else 0.0,
            solution.latency,
        )
        for name, solution in solutions_by_name.items()
    )


def _unsplit(problem: Problem, choice: Choice) -> Solution | None:
    """Return the unsplit model as a solution, or None."""
    # With the limits of what replicas share, such as the bytes per second of their memory.
    return Solver(replace(problem, choices=(choice,), stages=()).merge_items([0, problem.items])).fastest()


def verdict(
    plan: Plan,
    interval: float,
    alternatives: Sequence[Alternative],
    *,
    partial: bool = False,
    least_latency: float = np.inf,
) -> tuple[str, str]:
    """Return the verdict on a plan, as a word and a sentence.

    With `partial`, pins keep some devices from running all of the model.  Replicas that need far more than the least
    latency are no advice, unless they gain a lot.
    """
    by_name = {alternative.name: alternative for alternative in alternatives}
    rate = 1 / interval if interval else 0.0
    unsplit = max(
        (alternative.frames_per_s for name, alternative in by_name.items() if name.startswith("unsplit")), default=0.0
    )
    copies, division = by_name.get("replicas of the whole"), by_name.get("stages")
    # First what is no pipeline at all; then whether it beats replicas, and then the unsplit model.
    if len(plan.stages) == 1:
        if plan.stages[0].replicas > 1:
            against = f"; the best division into stages gives {division.frames_per_s:.4g}" if division else ""
            return "replicas", (
                f"Replicate instead of pipelining: {plan.stages[0].replicas} replicas of the whole model give "
                f"{rate:.4g} frames/s{against}."
            )
        gain = f" A division into {division.stages} stages would give {division.frames_per_s:.4g}." if division else ""
        return "one stage", f"Do not pipeline: one stage, nothing is pipelined, {rate:.4g} frames/s.{gain}"
    replica_advice = late_replicas = ""
    if copies and copies.frames_per_s > rate * NOTABLE:
        give = f"{copies.replicas} replicas of the whole model give {copies.frames_per_s:.4g} frames/s"
        if copies.latency_s > MOST_LATENCY * least_latency and copies.frames_per_s < rate * LEAST_GAIN:
            late_replicas = f" {give}, but with {copies.latency_s / least_latency:.2g} times the least latency."
        else:
            replica_advice = f"Replicate instead: {give}"
    if rate < unsplit * WORTHWHILE:
        return "do not pipeline", (
            f"Do not pipeline: it will not help here. The stages give {rate:.4g} frames/s, the unsplit model "
            f"{unsplit:.4g}. {replica_advice + '.' if replica_advice else ''}".strip()
        )
    if replica_advice:
        return "replicate instead", f"{replica_advice}, these stages {rate:.4g}."
    if not unsplit:
        can = "may run all of it, as it is pinned" if partial else "can run the whole model"
        return "pipeline", f"Pipeline: {rate:.4g} frames/s; no device {can}."
    gain = f"{rate / unsplit:.2f} times the best unsplit way"
    return "pipeline", f"Pipeline: {rate:.4g} frames/s, {gain}.{late_replicas}"


def goal_verdict(
    plan: Plan, goal: str, fps: float | None, prediction: Prediction, options: Sequence[Alternative]
) -> tuple[str, str]:
    """Return the verdict for another goal than frames per second."""
    latency_ms, joules = prediction.latency_s * 1e3, prediction.joules or 0.0
    figures = {"latency": f"{latency_ms:.3g} ms", "energy": f"{joules * 1e3:.3g} mJ per frame above rest"}
    limit = f" that keeps up with {fps:g} frames/s" if fps else ""
    stages = f"{len(plan.stages)} stage{'s' if len(plan.stages) > 1 else ''}"
    outcome = f"{figures[goal]}, at {prediction.frames_per_s:.4g} frames/s in {stages}"
    fastest = max(options, key=lambda alternative: alternative.frames_per_s)
    rival = f"the fastest way gives {fastest.frames_per_s:.4g} with {fastest.latency_s * 1e3:.3g} ms"
    return f"least {goal}", f"Planned for the least {goal}{limit}: {outcome}; {rival}."


def advice(  # noqa: PLR0913, PLR0917 - the plan's interval, and what to compare it with
    planner: Planner, problem: Problem, operator: str, interval: float, best: float, fastest: float
) -> Iterator[str]:
    """Yield the changes with the largest gains, found by planning again.

    `operator` is the slowest one of the slowest stage; `best` is the interval of the planner's choice, `fastest` the
    least.
    """
    if interval > best * NOTABLE:
        yield _gain("cuts, devices and replicas by the planner", interval / best)
    else:
        # The planner gives up some rate for latency, which changes do not: the fastest ways are compared.
        interval = best = fastest
    # `faster` is 0 where a change leads to no division at all.
    gains = [(interval / faster, change) for change, faster in _changes(planner, problem, operator) if faster]
    for gain, change in sorted(gains, reverse=True):
        if gain > NOTABLE * interval / best:
            yield _gain(change, gain)


def _gain(change: str, gain: float) -> str:
    return f"{change}: {gain:.2f} times the frames per second"


def _changes(planner: Planner, problem: Problem, operator: str) -> Iterator[tuple[str, float]]:
    """Yield changes with their intervals."""
    chain = shorten(problem)
    yield (
        "transfers that cost nothing",
        _interval(
            replace(chain, enter=_free(chain.enter), leave=_free(chain.leave), enter_loads={}, leave_loads={}),
        ),
    )
    group = next(candidate.group for candidate in planner.graph.operators if candidate.name == operator)
    # Half the time is what a faster kernel may reach; no time at all would praise every slow operator.
    factors = np.where(np.arange(problem.items) == group, 0.5, 1.0)
    yield f"{operator!r} in half its time", _interval(shorten(problem.scale_items(factors)))
    for index, processor in enumerate(chain.processors):
        if processor.units > 1:
            continue
        processors = (*chain.processors[:index], replace(processor, units=2), *chain.processors[index + 1 :])
        yield f"a second {processor.name!r}", _interval(replace(chain, processors=processors))


def _free(seconds: Array) -> Array:
    # Where there is no link, none is free either.
    return np.where(np.isfinite(seconds), 0.0, seconds)


def _interval(problem: Problem) -> float:
    division = Solver(problem).fastest()
    return 0.0 if division is None else division.interval
