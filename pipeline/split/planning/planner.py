"""Planner: graph + board -> plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import Plan
from pipeline.split.planning.arrangement import arrange, solve_ordered
from pipeline.split.planning.goal_search import GoalSearch
from pipeline.split.planning.placement import Placement
from pipeline.split.planning.problem import pins, queues
from pipeline.split.planning.problem.request import ANY_REQUEST, PlanRequest, check_watts, resolve_goal, resolve_request
from pipeline.split.planning.solver.solution import Solution
from pipeline.split.planning.split_gain import SplitGain, is_split
from pipeline.split.planning.timed_graph import TimedGraph


@dataclass(frozen=True)
class Planner(TimedGraph):
    """A graph with times, ready to plan. The attributes are those of `TimedGraph`."""

    def __post_init__(self) -> None:
        runnable = {device.name: np.isfinite(self.seconds_anywhere(device)).tolist() for device in self._pin_devices()}
        pins.check_pins(self.graph, self.pins, runnable)

    def _pin_devices(self) -> Iterator[Device]:
        names = {name for pin in self.pins.values() for name in pin.devices}
        return (device for device in self.board.devices if device.name in names)

    def plan(  # noqa: PLR0913 - all by keyword
        self,
        *,
        stages: int | str = "auto",
        cuts: Sequence[str | int] | None = None,
        devices: Sequence[str] | None = None,
        objective: str | None = None,
        fps: float | None = None,
        replicas: bool = True,
        heterogeneous: bool = True,
    ) -> Plan:
        """Return the best plan; parameters and errors as `pipeline.plan`."""
        # Before the search, which takes the longest.
        queues.check_depth(self.queue_depth, self.cv)
        goal = resolve_goal(objective, fps)
        request = resolve_request(self.graph, self.board, self.pins, stages, cuts, devices)
        if goal == "energy":
            check_watts(self.board, request)
        timed, solution = solve_ordered(GoalSearch(self, goal, fps, request, replicas), heterogeneous=heterogeneous)
        plan = timed.build(solution)
        is_free = request == ANY_REQUEST and objective is None and not fps
        gain = self.split_gain(plan, replicas=replicas) if is_free else None
        if gain and not gain.pays:
            # A gain smaller than the error of the rates is none.
            solution, timed, plan = gain.choice, self, self.build(gain.choice)
        order = () if timed is self else tuple(operator.name for operator in timed.graph.operators)
        plan = replace(plan, unsplit_seconds=self.unsplit_seconds, order=order)
        has_devices, has_cuts = devices is not None, cuts is not None
        plan = Placement(timed, plan, solution, goal, has_devices=has_devices, has_cuts=has_cuts).with_causes()
        return queues.add_queues(plan, timed.graph, self.queue_depth, self.cv)

    def split_gain(self, plan: Plan, *, replicas: bool = True) -> SplitGain | None:
        """Return a split's gain over the best unsplit way, None without one or the other."""
        unsplit = GoalSearch(self, "throughput", None, ANY_REQUEST, replicas).unsplit() if is_split(plan) else None
        return unsplit and SplitGain.of(plan, self.build(unsplit[1]), unsplit[0])

    def solve(
        self,
        goal: str = "throughput",
        fps: float | None = None,
        *,
        request: PlanRequest = ANY_REQUEST,
        replicas: bool = True,
        heterogeneous: bool = True,
    ) -> Solution:
        """Return the best division in the graph's own order.

        Raises `PlanError` if the board cannot run the model, or not as fast as asked for, or if the power of its
        devices is unknown where the energy matters.
        """
        if goal == "energy":
            check_watts(self.board, request)
        search = GoalSearch(self, goal, fps, request, replicas)
        return search.solve(arrange(search, is_free=False).division, heterogeneous=heterogeneous)
