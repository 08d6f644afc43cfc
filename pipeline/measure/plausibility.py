"""Plausibility: contradictory times from a machine busy otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.measure.finalists import Finalist, choose_runtimes
from pipeline.prediction.predict import predict

if TYPE_CHECKING:
    from pipeline.split.planning.planner import Planner
    from pipeline.split.planning.problem.request import PlanChoices

MOST_PER_CORE = 1.25
"""Largest credible gain per core. More than 1 is possible: the caches of several cores hold more."""


def choose_plausible(
    make: Callable[[bool], Planner],
    request: PlanChoices,
    *,
    fresh: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    warn: Callable[[str], None],
) -> Finalist:
    """Choose like `choose_runtimes`, repeating contradictory measurements once.

    `make` returns the planner, and takes whether all is to be measured again; `warn` gets a text if the times do not
    agree in the end.
    """
    choice = choose_runtimes(make(fresh), request, fresh=fresh, progress=progress)
    if not (reason := find_contradiction(choice)):
        return choice
    progress(f"measuring again: {reason}")
    choice = choose_runtimes(make(True), request, fresh=True, progress=progress)
    if reason := find_contradiction(choice):
        warn(f"do not believe this plan: {reason}; measure again when this machine has nothing else to do")
    return choice


def find_contradiction(choice: Finalist) -> str:
    """Explain contradictory times of a plan, else empty."""
    planner, plan = choice.planner, choice.plan
    devices = {name: plan.board.device(name) for name in {unit.device for unit in plan.units}}
    cores = {core for stage in plan.stages for core in stage.cores}
    on_cores = all(device.capabilities.occupies_cores for device in devices.values())
    if not plan.measured or not on_cores or not cores or not predict(plan).interval_s:
        return ""
    # Of several runtimes the fastest one for each group: no mixture of them does less work.
    times = [planner.isolated_seconds(device) for device in devices.values()]
    gain = sum(map(min, zip(*times, strict=True))) / predict(plan).interval_s
    if not math.isfinite(gain) or gain <= MOST_PER_CORE * len(cores):
        return ""
    plural = "s" * (len(cores) > 1)
    return f"the measured times make {len(cores)} core{plural} {gain:.2f} times as fast as one"
