"""Finalists: best plans of several runtimes, streamed in turns for fair comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipeline.errors import PlanError
from pipeline.measure.plan_rates import StreamPlans, find_rates, stream_in_turns
from pipeline.measure.sampling import FULL, Sampling
from pipeline.prediction.predict import predict

if TYPE_CHECKING:
    from pipeline.core.board.board import Board
    from pipeline.core.plan.plan import Plan
    from pipeline.core.plan.stage_plan import StagePlan, StepPlan
    from pipeline.measure.cost_cache import CostCache
    from pipeline.split.planning.planner import Planner
    from pipeline.split.planning.problem.request import PlanChoices

WORTH_IT = 1.01
"""Least speedup of a plan predicted slower. Medians of a few turns differ by less."""

LEAST_PROMISING = 0.5
"""Least share of the best predicted rate for building a plan.

Processors that change their clock were seen to run at half of their speed while one runtime was measured.
"""


@dataclass(frozen=True)
class Finalist:
    """Candidate for the fastest plan, with its planner."""

    planner: Planner
    """Planner of the board with one runtime, or with all."""
    plan: Plan

    def scale_times(self, factor: float) -> Finalist:
        """Scale all computing times, but not transfers."""
        stages = tuple(_scale(stage, factor) for stage in self.plan.stages)
        plan = replace(self.plan, stages=stages, unsplit_seconds=self.plan.unsplit_seconds * factor)
        return Finalist(self.planner.scale_times(factor), plan)


def choose_runtimes(  # noqa: PLR0913 - all but the first two by keyword
    planner: Planner,
    request: PlanChoices,
    *,
    fresh: bool = False,
    cache: CostCache | None = None,
    sampling: Sampling = FULL,
    stream: StreamPlans = stream_in_turns,
    progress: Callable[[str], None] = lambda _: None,
) -> Finalist:
    """Stream the best plans per runtime and combined; return the fastest.

    The plan's times are scaled to the measured ones. It is the planner's own plan where there is nothing to choose:
    with one runtime, without measured times, for another objective than frames per second, or where a plan cannot run
    here. Raises `PlanError` if no plan is possible at all. `sampling` is the number and length of the streams of each
    plan; `stream` returns the frames per second of each, 0 if it cannot run.
    """
    from pipeline.measure.cost_cache import CostCache

    finalist = Finalist(planner, planner.plan(**request))
    by_rate = request.get("objective") in {None, "throughput"} and not request.get("fps")
    if not by_rate or not planner.spans or not planner.measured:
        return finalist
    finalists = [finalist, *_find_rivals(finalist, request)]
    if len(finalists) == 1 or not all(_runs_here(rival.plan) for rival in finalists):
        return finalist
    cache = cache or CostCache.of_user(fresh=fresh)
    plans = [rival.plan for rival in finalists]
    rates = find_rates(plans, cache, lambda: stream(planner.graph, plans, sampling, progress))
    # The first one is the planner's own choice.
    best = max(range(len(rates)), key=lambda index: rates[index] * (1.0 if index else WORTH_IT))
    if not rates[best]:
        return finalist
    return finalists[best].scale_times(1 / rates[best] / predict(finalists[best].plan).interval_s)


def _find_rivals(finalist: Finalist, request: PlanChoices) -> Iterator[Finalist]:
    """Yield plans of one runtime predicted close to a finalist."""
    planner, stages = finalist.planner, [finalist.plan.stages]
    for runtime in dict.fromkeys(name for device in planner.board.devices for name in device.runtimes):
        restricted = replace(planner, board=_restrict(planner.board, runtime))
        try:
            plan = restricted.plan(**request)
        except PlanError:
            # It does not run all of the model, or the request names another one.
            continue
        promising = predict(plan).interval_s * LEAST_PROMISING <= predict(finalist.plan).interval_s
        if promising and plan.stages not in stages:
            stages.append(plan.stages)
            yield Finalist(restricted, plan)


def _restrict(board: Board, runtime: str) -> Board:
    devices = (
        replace(device, runtimes=(runtime,)) if runtime in device.runtimes else device for device in board.devices
    )
    return replace(board, devices=tuple(devices))


def _scale(stage: StagePlan, factor: float) -> StagePlan:
    steps = tuple(replace(step, seconds=_scale_seconds(step, step.seconds, factor)) for step in stage.steps)
    times = tuple(_scale_seconds(stage, seconds, factor) for seconds in stage.replica_seconds)
    seconds = sum(step.seconds for step in steps) if steps else _scale_seconds(stage, stage.seconds, factor)
    scaled = replace(stage, steps=steps, replica_seconds=times, seconds=seconds)
    # Of unlike replicas it is the mean, in which transfers weigh otherwise.
    return replace(scaled, seconds=scaled.mean_seconds)


def _scale_seconds(part: StagePlan | StepPlan, seconds: float, factor: float) -> float:
    return (seconds - part.transfer_s) * factor + part.transfer_s


def _runs_here(plan: Plan) -> bool:
    from pipeline.executor import devices

    # What was measured is here, or served by another machine.
    return not any(devices.is_remote(plan.board.device(stage.device)) for stage in plan.units)
