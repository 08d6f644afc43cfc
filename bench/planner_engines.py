"""Worth of the planner's search engines: plans made with one engine left out, over plans made with all of them.

Small graphs are random, of 3 to 6 groups with tensors that skip stages, on a CPU of two kinds of cores and an
accelerator behind a slow link.  Networks are those of bench/models.py with estimated costs, on all boards that come
along.  Goals are the rate (with little latency, as docs/planning.md says), the latency, and on boards of known power
the energy.

plans          cases times goals
worse          plans that cost more than 1 % more without the engine
mean_ratio     cost without the engine over cost with it
worst_ratio    the same of the plan that loses most
time_ratio     processor time of planning, without over with
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple
from unittest.mock import patch

import models
import numpy as np
from report import Row, parser, report

import boards
import pipeline
from pipeline.core.plan.plan import Plan
from pipeline.errors import PlanError
from pipeline.prediction.predict import predict
from pipeline.split.planning import arrangement, goal_search, small_graph, timed_graph
from pipeline.split.planning.orders import division
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.solver import candidates, chain_solver, lagrangian, solver
from pipeline.split.planning.solver.labels import LabelResult
from pipeline.split.planning.solver.trade_off import LEAST_GAIN, MOST_LATENCY

# The cases are those of a test.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.support.small_cases import random_small_case

Replacement = tuple[Any, str, Callable[..., Any]]

ENGINES: dict[str, Replacement] = {
    "all divisions of small graphs": (small_graph.SmallGraph, "of", lambda *_, **__: None),
    "orders of branches": (arrangement, "may_reorder", lambda _: False),
    "orders of little latency": (division.Division, "prompt_order", lambda *_: (None, np.inf)),
    "borrowing": (timed_graph.TimedGraph, "add_heterogeneous", lambda _, __, problem, **___: problem),
    "refinement of borrowing": (goal_search, "refine", lambda *_: []),
    "candidates by prediction": (candidates, "_fast_candidates", lambda *_: []),
    "little latency": (goal_search, "prefer_prompt", lambda _, solution, *__: solution),
    "labels": (solver.Solver, "_search_labels", lambda _, __, low, *___: (LabelResult(None, complete=False), low)),
    "prices": (lagrangian.Lagrangian, "feasible", lambda *_: (None, 0.0)),
    "cuts anywhere in long chains": (chain_solver.ChainSolver, "_approach", lambda _: (None, 0.0)),
}
"""Search engine -> the name that it is called by, and what stands in its place without it."""

SMALL_GROUPS, SMALL_SEEDS = (3, 4, 5, 6), 12
LIMIT = 1.01
"""Cost ratio from which a plan counts as worse."""


class Case(NamedTuple):
    """A planner with one goal."""

    planner: Planner
    goal: str


class Outcome(NamedTuple):
    """A plan, None where there is none, and the processor time of planning."""

    plan: Plan | None
    seconds: float


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--engine", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="NAME",
                         help=", ".join(ENGINES))  # fmt: skip
    options.add_argument("--network", nargs="*", choices=models.NAMES, metavar="NAME", help=", ".join(models.NAMES))
    arguments = options.parse_args()
    small = list(small_cases(3 if arguments.quick else SMALL_SEEDS))
    networks = models.NAMES[:1] if arguments.quick else models.NAMES
    networks = networks if arguments.network is None else arguments.network
    names = (
        ("example", "rk3588")
        if arguments.quick
        else ["example", *(name for name in boards.names() if name != boards.HOST)]
    )
    rows = [*measure("small graphs", small, arguments.engine)]
    with tempfile.TemporaryDirectory() as folder:
        for network in networks:
            rows += measure(network, list(network_cases(network, names, Path(folder))), arguments.engine)
    report("Search engines of the planner", rows, (__doc__ or "").partition("\n\n")[2], arguments.json)


def small_cases(seeds: int) -> Iterator[Case]:
    """Yield random graphs of few groups."""
    for count, seed in product(SMALL_GROUPS, range(seeds)):
        case = random_small_case(seed, count)
        planner = Planner(case.graph, case.board, isolated=case.seconds)
        yield from (Case(planner, goal) for goal in ("throughput", "latency", "energy"))


def network_cases(name: str, board_names: Sequence[str], folder: Path) -> Iterator[Case]:
    """Yield a network on boards."""
    graph = pipeline.read(models.write(name, folder))
    for board in map(boards.get, board_names):
        has_watts = all(device.watts_busy for device in board.devices)
        goals = ("throughput", "latency", "energy") if has_watts else ("throughput", "latency")
        yield from (Case(Planner(graph, board), goal) for goal in goals)


def measure(title: str, cases: Sequence[Case], engines: Sequence[str]) -> Iterator[Row]:
    """Plan all cases with all engines and without each, and yield a row for each engine."""
    outcomes = [plan_without(case, [None, *engines]) for case in cases]
    for engine in engines:
        ratios = [cost_ratio(case, outcome, engine) for case, outcome in zip(cases, outcomes, strict=True)]
        with_s, without_s = (sum(outcome[name].seconds for outcome in outcomes) for name in (None, engine))
        yield {
            "cases": title,
            "engine": engine,
            "plans": len(ratios),
            "worse": sum(ratio > LIMIT for ratio in ratios),
            "mean_ratio": float(np.mean(ratios)),
            "worst_ratio": max(ratios),
            "time_ratio": without_s / with_s,
        }


def plan_without(case: Case, engines: Sequence[str | None]) -> dict[str | None, Outcome]:
    """Plan a case without each engine, with all of them for None."""
    outcomes: dict[str | None, Outcome] = {}
    # What is computed once for a planner counts for none of them.
    case.planner.problem()
    for engine in engines:
        with ExitStack() as stack:
            if engine is not None:
                target, name, replacement = ENGINES[engine]
                stack.enter_context(patch.object(target, name, replacement))
            begin = process_time()
            try:
                plan = case.planner.plan(objective=case.goal)
            except PlanError:
                plan = None
            outcomes[engine] = Outcome(plan, process_time() - begin)
    return outcomes


def cost_ratio(case: Case, outcomes: Mapping[str | None, Outcome], engine: str) -> float:
    """Return the cost of a plan without an engine over that with it."""
    latencies = [predict(outcome.plan).latency_s for outcome in outcomes.values() if outcome.plan]
    before, after = (cost(outcomes[name].plan, case.goal, min(latencies, default=0.0)) for name in (None, engine))
    return 1.0 if before == after else after / before


def cost(plan: Plan | None, goal: str, least_latency: float) -> float:
    """Return what a goal wants the least of, infinite without a plan."""
    if plan is None:
        return np.inf
    prediction = predict(plan)
    if goal != "throughput":
        return prediction.latency_s if goal == "latency" else prediction.joules or np.inf
    # A plan of much latency has to be that much faster.
    is_late = prediction.latency_s > MOST_LATENCY * least_latency * LIMIT
    return prediction.interval_s * (LEAST_GAIN if is_late else 1.0)


if __name__ == "__main__":
    main()
