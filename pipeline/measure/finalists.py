"""Finalists: the best plans of several runtimes, streamed in turns, since their times were measured minutes apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline.core.plan import encode
from pipeline.errors import BuildError, PlanError, StageError
from pipeline.measure.sampling import FULL, Sampling

if TYPE_CHECKING:
    from pipeline.core.board import Board
    from pipeline.core.plan import Plan
    from pipeline.measure.cost_cache import CostCache
    from pipeline.split.graph import Graph
    from pipeline.split.planning.planner import Planner

WORTH_IT = 1.01
"""A plan that was predicted to be slower has to be this much faster: medians of a few turns differ by less."""

LEAST_PROMISING = 0.5
"""Plans are not built that are predicted to reach less than this share of the best one's rate.

Processors that change their clock were seen to run at half of their speed while one runtime was measured.
"""


StreamPlans = Callable[["Graph", Sequence["Plan"], Sampling, Callable[[str], None]], Sequence[float]]


@dataclass(frozen=True)
class Finalist:
    """A plan that may be the fastest, with the planner that made it.

    Attributes
    ----------
    planner : Planner
        Of the board with one runtime, or with all.
    plan : Plan
    """

    planner: Planner
    plan: Plan


def stream_in_turns(
    graph: Graph, plans: Sequence[Plan], sampling: Sampling, progress: Callable[[str], None]
) -> list[float]:
    """Build plans, stream them in turns, and return the frames per second of each; 0 of what cannot be built or run.

    Parameters
    ----------
    graph : Graph
    plans : sequence of Plan
    sampling : Sampling
    progress : callable
        Gets a text for each step.
    """
    from pipeline.measure.comparison import build_unchecked
    from pipeline.measure.throughput import VariantRun, random_frames, turns

    # Two in turns: a single one would still be in the caches when it comes again.
    frames = random_frames(graph.inputs, 2)
    runs: dict[int, VariantRun] = {}
    for number, plan in enumerate(plans):
        progress(f"building plan {number + 1} of {len(plans)}")
        try:
            run = VariantRun(graph.name, build_unchecked(graph, plan), lambda _: None)
            run.warm_up(frames, None, sampling.stream_s)
        except (BuildError, StageError):
            # Whoever builds it is told; here others are left.
            continue
        runs[number] = run
    for turn, ordered_runs in enumerate(turns(list(runs.values()), sampling.turns), 1):
        progress(f"comparing plans, turn {turn} of {sampling.turns}")
        for run in ordered_runs:
            run.stream(frames)
    return [runs[number].result().frames_per_s if number in runs else 0.0 for number in range(len(plans))]


def choose_runtimes(  # noqa: PLR0913 - all but the first two by keyword
    planner: Planner,
    request: Mapping[str, Any],
    *,
    fresh: bool = False,
    cache: CostCache | None = None,
    sampling: Sampling = FULL,
    stream: StreamPlans = stream_in_turns,
    progress: Callable[[str], None] = lambda _: None,
) -> Planner:
    """Stream the best plan of each runtime alone, and of all together, in turns; return the fastest one's planner.

    Its times are scaled to what was measured.  The same planner is returned where there is nothing to choose: with one
    runtime, without measured times, for another objective than frames per second, or where a plan cannot run here.

    Parameters
    ----------
    planner : Planner
    request : mapping
        Arguments of `Planner.plan`.
    fresh : bool
        Measure again what is in the cache.
    cache : CostCache, optional
        Another place than the user's cache.
    sampling : Sampling, optional
        How often, and for how long, each plan streams.
    stream : callable, optional
        Gets graph, plans, sampling and progress; returns the frames per second of each plan, 0 if it cannot run.
    progress : callable, optional
        Gets a text for each step.

    Raises
    ------
    PlanError
        If no plan is possible at all.
    """
    from pipeline.measure.cost_cache import CostCache

    by_rate = request.get("objective") in {None, "throughput"} and not request.get("fps")
    if not by_rate or not planner.spans or not planner.measured:
        return planner
    finalists = list(_distinct(_find_finalists(planner, request)))
    if len(finalists) == 1 or not all(_runs_here(finalist.plan) for finalist in finalists):
        return planner
    cache = cache or CostCache.of_user(fresh=fresh)
    plans = [finalist.plan for finalist in finalists]
    rates = _rates(plans, cache, lambda: stream(planner.graph, plans, sampling, progress))
    # The first one is the planner's own choice.
    best = max(range(len(rates)), key=lambda index: rates[index] * (1.0 if index else WORTH_IT))
    if not rates[best]:
        return planner
    winner = finalists[best]
    return winner.planner.scale_times(1 / rates[best] / winner.plan.slowest)


def _find_finalists(planner: Planner, request: Mapping[str, Any]) -> Iterator[Finalist]:
    """Yield the planner's own plan, and then those with one runtime which come close to it by what is predicted."""
    own = Finalist(planner, planner.plan(**request))
    yield own
    for runtime in dict.fromkeys(name for device in planner.board.devices for name in device.runtimes):
        restricted = replace(planner, board=_restrict(planner.board, runtime))
        try:
            plan = restricted.plan(**request)
        except PlanError:
            # It does not run all of the model, or the request names another one.
            continue
        if plan.slowest * LEAST_PROMISING <= own.plan.slowest:
            yield Finalist(restricted, plan)


def _restrict(board: Board, runtime: str) -> Board:
    devices = (
        replace(device, runtimes=(runtime,)) if runtime in device.runtimes else device for device in board.devices
    )
    return replace(board, devices=tuple(devices))


def _distinct(finalists: Iterator[Finalist]) -> Iterator[Finalist]:
    stages = []
    for finalist in finalists:
        if finalist.plan.stages not in stages:
            stages.append(finalist.plan.stages)
            yield finalist


def _runs_here(plan: Plan) -> bool:
    from pipeline.executor import devices

    # What was measured is here, or served by another machine.
    return not any(devices.is_remote(plan.board.device(stage.device)) for stage in plan.units)


def _rates(plans: Sequence[Plan], cache: CostCache, measure: Callable[[], Sequence[float]]) -> Sequence[float]:
    """Return the frames per second of each plan, from the cache or as they are measured now."""
    from pipeline.measure.cost_cache import TimeRecord

    keys = _keys(plans)
    records = [record for key in keys if (record := cache.get(key)) is not None]
    # All or none, since only those that took turns can be compared.
    if len(records) == len(keys):
        return [1 / record.seconds if record.seconds else 0.0 for record in records]
    rates = measure()
    for key, rate in zip(keys, rates, strict=True):
        cache.put(TimeRecord(key, 1 / rate if rate else 0.0))
    return rates


def _keys(plans: Sequence[Plan]) -> list[str]:
    """Return a key for each plan, of everything that was measured before, and of what it is compared with."""
    from pipeline.executor import host_target
    from pipeline.measure.cost_cache import kernels_digest

    digest = hashlib.sha256(b"".join(encode(plan) for plan in plans)).hexdigest()
    facts = {"finalists": digest, "processor": host_target.full_name(), "kernels": kernels_digest()}
    return [msgspec.json.encode({**facts, "number": number}).decode() for number in range(len(plans))]
