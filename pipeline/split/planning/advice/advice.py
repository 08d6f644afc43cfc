"""Advice: alternatives, a verdict on pipelining, and the largest gains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.core.plan.plan import Plan
from pipeline.prediction.predict import Prediction
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.chain_solver import shorten
from pipeline.split.planning.solver.solution import Solution
from pipeline.split.planning.solver.solver import Solver
from pipeline.split.planning.solver.trade_off import POSITIONS, front, knee
from pipeline.split.planning.split_gain import SplitGain, is_split

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
    chain = shorten(planner.problem(replicas=False))
    division = Solver(chain).fastest()
    if division is not None and len(division.stages) == 1:
        # Two stages are shown also where one with threads is faster.
        anywhere = tuple(range(len(chain.processors)))
        division = Solver(replace(chain, stages=(anywhere, anywhere))).fastest() if chain.items > 1 else None
    if division is not None:
        stages = len(division.stages)
        results.append(Alternative("stages", stages, 1, 1 / division.interval, division.latency))
    return tuple(results)


def trade_offs(problem: Problem, plan: Alternative) -> tuple[Alternative, ...]:
    """Return the fastest way, the knee, and the least late, `plan` among them."""
    solver = Solver(problem.merge_items(problem.spread_positions(POSITIONS)))
    fastest = solver.fastest()
    if fastest is None:
        return ()
    solutions = front(solver, fastest)
    # The solver sees fewer orders and cuts than the plan's search.
    ways = [*map(_way, solutions), plan]
    quickest, promptest = max(ways, key=lambda way: way.frames_per_s), min(ways, key=lambda way: way.latency_s)
    if quickest.latency_s <= promptest.latency_s:
        return (replace(quickest, name=BOTH_ENDS),)
    # Without a solution between the ends there is no knee.
    bend = replace(_way(knee(solutions)), name="knee") if len(solutions) > 2 else None
    ends = replace(quickest, name="fastest"), replace(promptest, name="least latency")
    return (ends[0], bend, ends[1]) if bend else ends


def _way(solution: Solution) -> Alternative:
    replicas = max(stage.choice.replicas for stage in solution.stages)
    rate = 1 / solution.interval if solution.interval else 0.0
    return Alternative("", len(solution.stages), replicas, rate, solution.latency)


def _unsplit(problem: Problem, choice: Choice) -> Solution | None:
    """Return the unsplit model as a solution, or None."""
    # With the limits of what replicas share, such as the bytes per second of their memory.
    return Solver(replace(problem, choices=(choice,), stages=()).merge_items([0, problem.items])).fastest()


def verdict(  # noqa: PLR0913 - a plan, and what to compare it with
    plan: Plan,
    rate: float,
    gain: SplitGain | None,
    alternatives: Sequence[Alternative],
    *,
    partial: bool = False,
    is_asked: bool = False,
) -> tuple[str, str]:
    """Return the verdict on a plan, as a word and a sentence.

    The gain is that of the plan, or of the fastest split where the plan is none, over the best unsplit way. `partial`:
    pins keep some devices from running all of the model. `is_asked`: the fastest plan was asked for, however little it
    gains.
    """
    if not is_split(plan):
        return _unsplit_verdict(plan.stages[0].replicas, rate, gain, alternatives)
    if gain is None:
        can = "may run all of it, as it is pinned" if partial else "can run the whole model"
        return "pipeline", f"Pipeline: {rate:.4g} frames/s; no device {can}."
    if gain.pays:
        return "pipeline", f"Pipeline: {rate:.4g} frames/s, {gain}."
    if is_asked:
        return "pipeline", f"The fastest plan, as asked for: {rate:.4g} frames/s, {gain}."
    figures = f"{gain.unsplit_frames_per_s:.4g} frames/s with {gain.unsplit_latency_s * 1e3:.3g} ms"
    these = f"these stages {rate:.4g}, {gain}"
    if gain.unsplit_replicas > 1:
        way = f"{gain.unsplit_replicas} replicas of the whole model give {figures}"
        return "replicate instead", f"Replicate instead: {way}, {these}."
    return "do not pipeline", f"Do not pipeline: the unsplit model gives {figures}, {these}."


def _unsplit_verdict(
    replicas: int, rate: float, gain: SplitGain | None, alternatives: Sequence[Alternative]
) -> tuple[str, str]:
    """Return the verdict on a plan without a split."""
    division = next((way for way in alternatives if way.name == "stages"), None)
    split = ""
    if gain:
        split = f" The fastest split gives {gain.frames_per_s:.4g}, {gain}."
    elif division:
        split = f" The best division into {division.stages} stages gives {division.frames_per_s:.4g}."
    if replicas > 1:
        way = f"{replicas} replicas of the whole model give {rate:.4g} frames/s"
        return "replicas", f"Replicate instead of pipelining: {way}.{split}"
    title = "One stage, as asked for:" if gain and gain.pays else "Do not pipeline: one stage,"
    return "one stage", f"{title} nothing is pipelined, {rate:.4g} frames/s.{split}"


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
    gains = [(interval / faster, change) for change, faster in _changes(planner, problem, operator) if faster]
    for gain, change in sorted(gains, reverse=True):
        if gain > NOTABLE * interval / best:
            yield _gain(change, gain)


def _gain(change: str, gain: float) -> str:
    return f"{change}: {gain:.2f} times the frames per second"


def _changes(planner: Planner, problem: Problem, operator: str) -> Iterator[tuple[str, float]]:
    """Yield changes with their intervals."""
    chain = shorten(problem)
    # Where there is no link, none is free either.
    enter, leave = (np.where(np.isfinite(seconds), 0.0, seconds) for seconds in (chain.enter, chain.leave))
    unmoved = replace(chain, enter=enter, leave=leave, enter_loads={}, leave_loads={})
    yield "transfers that cost nothing", fastest_interval(unmoved)
    group = next(candidate.group for candidate in planner.graph.operators if candidate.name == operator)
    # Half the time is what a faster kernel may reach; no time at all would praise every slow operator.
    factors = np.where(np.arange(problem.items) == group, 0.5, 1.0)
    yield f"{operator!r} in half its time", fastest_interval(problem.scale_items(factors))
    # Equal devices are one kind: a further one is the same change for all.
    kinds = {device.name: device.likeness for device in planner.board.devices}
    names = list(kinds)
    for index, processor in enumerate(chain.processors):
        kind = kinds.get(processor.name)
        if processor.units > 1 or (kind and kind in map(kinds.get, names[: names.index(processor.name)])):
            continue
        processors = (*chain.processors[:index], replace(processor, units=2), *chain.processors[index + 1 :])
        yield f"a second {processor.name!r}", fastest_interval(replace(chain, processors=processors))


def fastest_interval(problem: Problem) -> float:
    """Return the interval of the fastest division, infinity without one."""
    division = Solver(shorten(problem)).fastest()
    return np.inf if division is None else division.interval
