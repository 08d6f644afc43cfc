"""Graph + board -> Plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from pipeline.board import Board, Device
from pipeline.errors import PlanError
from pipeline.plans import Plan
from pipeline.split import queues
from pipeline.split.costs import estimate
from pipeline.split.cuts import resolve
from pipeline.split.division import Division
from pipeline.split.graph import Graph
from pipeline.split.planning.bound import relaxed
from pipeline.split.planning.problem import Problem
from pipeline.split.planning.queues import VARIANCE
from pipeline.split.planning.solution import Solution
from pipeline.split.planning.solve import WORTH_IT, Solver
from pipeline.split.resources import places, problem
from pipeline.split.solved import plan_of

MOST_ITEMS = 500
"""In longer chains, cuts are looked for at so many positions; the solver's time grows with their square."""

OBJECTIVES = ("throughput", "latency", "energy")


def make_plan(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph,
    board: Board,
    *,
    stages: int | str = "auto",
    cuts: Sequence[str | int] | None = None,
    devices: Sequence[str] | None = None,
    queue_depth: int | str = "auto",
    variance: float = VARIANCE,
    seconds: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
    objective: str | None = None,
    fps: float | None = None,
    replicas: bool = True,
) -> Plan:
    """Divide `graph` among the devices of `board`.

    Parameters
    ----------
    graph : Graph
    board : Board
    stages : int or "auto"
        How many stages.  ``"auto"`` chooses cuts, devices, cores, threads and replicas; a number does so without
        replicas, on a board of several devices or clusters of cores.
    cuts : sequence of str or int, optional
        Cuts by tensor name, operator name or position instead.
    devices : sequence of str, optional
        Device of each stage, which also says how many.
    queue_depth : int or "auto"
        How many frames may wait in front of each stage.  ``"auto"`` chooses as many as `variance` asks for, as far as
        there is memory; cuts are chosen with room for one.
    variance : float
        Standard deviation of a stage's time, as a share of it.
    seconds : sequence of float, or mapping of str to that, optional
        Measured seconds of each fused group on one core of the first device, or by the device's name; estimates where
        there are none.
    objective : str, optional
        What ``"auto"`` makes as good as possible: ``"throughput"``, ``"latency"`` or ``"energy"`` (of one frame, above
        rest).  By default throughput; latency if `fps` is given.
    fps : float, optional
        How many frames per second it has to keep up with.
    replicas : bool
        Whether a stage may run on several frames at once, each on cores of its own.

    Returns
    -------
    Plan

    Raises
    ------
    PlanError
        If a cut is unknown, there are fewer legal cuts than asked for, `stages`, `cuts` and `devices` disagree, or the
        board cannot run the model, or not as fast as asked for.
    """
    return Planner(graph, board, seconds, queue_depth, variance).plan(
        stages=stages, cuts=cuts, devices=devices, objective=objective, fps=fps, replicas=replicas
    )


@dataclass(frozen=True)
class Planner:
    """A graph, a board, and what each fused group takes on each device.

    Attributes
    ----------
    graph, board, given, queue_depth, variance
        As for `make_plan`; `given` are the seconds.
    crowded : mapping of str to sequence of float
        By the device's name, the seconds on one core while its other cores are busy; `given` where it is not in it.
    """

    graph: Graph
    board: Board
    given: Sequence[float] | Mapping[str, Sequence[float]] | None = None
    queue_depth: int | str = "auto"
    variance: float = VARIANCE
    crowded: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def plan(  # noqa: PLR0913 - all by keyword
        self,
        *,
        stages: int | str = "auto",
        cuts: Sequence[str | int] | None = None,
        devices: Sequence[str] | None = None,
        objective: str | None = None,
        fps: float | None = None,
        replicas: bool = True,
    ) -> Plan:
        """Return the plan; see `make_plan`."""
        queues.check(self.queue_depth, self.variance)
        goal = _goal(objective, fps)
        if cuts is not None:
            found = self._divided(self._positions(cuts, stages), devices)
        elif stages == "auto" and devices is None:
            found = self.of(self.solve(goal, fps, replicas=replicas))
        else:
            count = self._count(len(devices or ()) if stages == "auto" else stages)
            several = devices is None and len(places(self.board)) > 1
            found = (
                self.of(self.solve(goal, fps, stages=count, replicas=False))
                if several
                else self._divided(count, devices)
            )
        return queues.with_queues(found, self.graph, self.queue_depth, self.variance)

    def _positions(self, cuts: Sequence[str | int], stages: int | str) -> list[int]:
        positions = resolve(self.graph, cuts)
        if stages not in ("auto", len(positions) + 1):
            raise PlanError(
                f"{len(positions)} cuts make {len(positions) + 1} stages, not {stages!r}; give one of the two"
            )
        return positions

    def _divided(self, how: int | list[int], devices: Sequence[str] | None) -> Plan:
        """Return the plan with that number of stages, or with cuts at those positions."""
        division = Division(self.graph, self.board, devices, self.seconds, self.measured)
        found = division.plan(division.best_positions(how) if isinstance(how, int) else how)
        return replace(found, unsplit_seconds=self._unsplit())

    def _unsplit(self) -> float:
        """Return the seconds of the whole on one core of the first device that can run it; 0 if none can."""
        whole = (float(np.sum(self.alone(device))) for device in self.board.devices)
        return next((seconds for seconds in whole if np.isfinite(seconds)), 0.0)

    @property
    def measured(self) -> bool:
        """Whether all devices that count were measured."""
        known = self.given if isinstance(self.given, Mapping) else [self.board.devices[0].name]
        return self.given is not None and all(device.name in known for device in self.board.devices)

    def seconds(self, device: Device) -> Sequence[float]:
        """Return the seconds of each fused group on one core of a device, while its others do their part."""
        return self.crowded.get(device.name, self.alone(device)) if len(device.cores) > 1 else self.alone(device)

    def alone(self, device: Device) -> Sequence[float]:
        """Return the seconds of each fused group on one core of a device while its others rest, if they were given."""
        if isinstance(self.given, Mapping) and device.name in self.given:
            return self.given[device.name]
        if self.given is not None and not isinstance(self.given, Mapping) and device is self.board.devices[0]:
            return self.given
        return self._estimates[device.name]

    @cached_property
    def _estimates(self) -> dict[str, list[float]]:
        return {device.name: list(estimate(self.graph, device)) for device in self.board.devices}

    def problem(self, *, replicas: bool = True) -> Problem:
        """Return what the solver is given."""
        depth = self.queue_depth if isinstance(self.queue_depth, int) else 1
        return problem(self.graph, self.board, self.seconds, queue_depth=depth, replicas=replicas)

    def solve(
        self, goal: str = "throughput", fps: float | None = None, *, stages: int | None = None, replicas: bool = True
    ) -> Solution:
        """Return the best division.

        Raises
        ------
        PlanError
            If the board cannot run the model, or not as fast as asked for.
        """
        whole = self.problem(replicas=replicas)
        positions = whole.spread(max(MOST_ITEMS, stages or 0))
        solver = Solver(whole.merged(positions), stages)
        fastest = solver.fastest()
        if fastest is None:
            raise PlanError(self._impossible(stages))
        if fps and fastest.interval > 1 / fps:
            raise PlanError(
                f"{self.graph.name!r} reaches {1 / fastest.interval:.4g} frames/s on {self.board.name!r}, "
                f"not {fps:g}; ask for less, or for none with the objective 'throughput'"
            )
        limit = 1 / fps if fps else fastest.interval * WORTH_IT if goal == "throughput" else np.inf
        found = solver.least("size" if goal == "throughput" else goal, limit) or fastest
        bound = fastest.bound if len(positions) > whole.items else relaxed(whole)
        moved = [replace(each, begin=positions[each.begin], end=positions[each.end]) for each in found.stages]
        return replace(found, stages=tuple(moved), bound=bound)

    def of(self, solution: Solution) -> Plan:
        """Return a solution as a plan."""
        found = plan_of(solution, self.graph, self.board, measured=self.measured)
        return replace(found, unsplit_seconds=self._unsplit())

    def _count(self, stages: int | str) -> int:
        most = len(self.graph.group_ends)
        if not isinstance(stages, int) or isinstance(stages, bool) or stages < 1:
            raise PlanError(f"stages is {stages!r}; it must be a whole number of at least 1, or 'auto'")
        if stages > most:
            raise PlanError(
                f"{stages} stages need {stages - 1} cuts, but {self.graph.name!r} has {most - 1} legal ones: "
                f"at most {most} stages"
            )
        return stages

    def _impossible(self, stages: int | None) -> str:
        names = ", ".join(device.name for device in self.board.devices)
        for operator in self.graph.operators:
            if all(np.isinf(self.seconds(device)[operator.group]) for device in self.board.devices):
                return f"no device of board {self.board.name!r} ({names}) can run {operator.name!r} ({operator.kind})"
        wanted = f" in {stages} stages" if stages else ""
        return (
            f"{self.graph.name!r} cannot run on board {self.board.name!r}{wanted}: its devices ({names}) have too "
            "little memory, too few cores, or no links for what the others cannot run"
        )


def _goal(objective: str | None, fps: float | None) -> str:
    if fps is not None and not (np.isfinite(fps) and fps > 0):
        raise PlanError(f"fps is {fps}; it must be above 0")
    goal = objective or ("latency" if fps else "throughput")
    if goal not in OBJECTIVES:
        raise PlanError(f"objective is {objective!r}; it must be one of {', '.join(OBJECTIVES)}")
    return goal
