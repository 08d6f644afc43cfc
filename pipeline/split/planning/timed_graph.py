"""Timed graph: a graph, a board, and groups' times by device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_options import NO_OPTIONS, StageOptions
from pipeline.prediction.predict import Prediction, predict
from pipeline.split.graph import Graph
from pipeline.split.offload import Refusals
from pipeline.split.orders import as_ordered, reorder
from pipeline.split.planning.borrowing.borrowing import board_borrowings
from pipeline.split.planning.borrowing.heterogeneous_choices import add_heterogeneous
from pipeline.split.planning.plan_builder import build_plan
from pipeline.split.planning.problem.arrays import span_sums
from pipeline.split.planning.problem.board_processors import board_processors
from pipeline.split.planning.problem.costs import estimate, parallel_seconds
from pipeline.split.planning.problem.group_work import group_works
from pipeline.split.planning.problem.pins import Pins
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.problem.problem_builder import build_problem
from pipeline.split.planning.problem.queues import TIME_CV
from pipeline.split.planning.problem.request import ANY_REQUEST, PlanRequest
from pipeline.split.planning.problem.spans import SpanTimes
from pipeline.split.planning.solver.obstacle import Obstacle
from pipeline.split.planning.solver.solution import Solution

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class TimedGraph:
    """A graph, a board, and groups' times by device."""

    graph: Graph
    board: Board
    isolated: Sequence[float] | Mapping[str, Sequence[float]] | None = None
    """Measured seconds of each fused group on one core while the others rest: of the first device, or by the device's
    name; estimates where there are none."""
    queue_depth: int | str = "auto"
    """Number of frames that may wait in front of each stage. ``"auto"`` chooses as many as `cv` asks for, as far as
    there is memory; cuts are chosen with room for one."""
    cv: float = TIME_CV
    """Coefficient of variation of a stage's time: its standard deviation, as a share of it."""
    contended: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Seconds on one core while its other cores are busy, by the device's name; `isolated` where it is not in it."""
    pins: Pins = field(default_factory=dict)
    """Devices that may run a fused group; groups without a pin run anywhere."""
    spans: Mapping[str, SpanTimes] = field(default_factory=dict)
    """Measured times of spans, where these are not sums, by the name of a device with its runtime."""
    notes: Sequence[str] = ()
    """Sentences on the origin of times."""
    refusals: Mapping[str, Refusals] = field(default_factory=dict)
    """Fused groups that a device does not run by its own word, with reasons, by the name of a device with its
    runtime."""
    estimates: Mapping[str, Sequence[float]] = field(default_factory=dict, repr=False)
    """Estimated seconds of each fused group, if they are known already, by the name of a device with its runtime, and
    behind it the number of threads if several."""
    compiled: Collection[str] = ()
    """Devices whose `estimates` have the cycles that their compiler counts."""
    options: StageOptions = NO_OPTIONS
    """Options of all stages, with which times are estimated, or were measured."""

    def reorder(self, order: Sequence[int]) -> Self:
        """Return it with its groups in another topological order."""
        numbers = {group: number for number, group in enumerate(order)}

        def arrange(seconds: Sequence[float]) -> list[float]:
            return [float(seconds[group]) for group in order]

        return replace(
            self,
            graph=reorder(self.graph, order),
            isolated=self._map_isolated(arrange),
            contended={name: arrange(times) for name, times in self.contended.items()},
            pins={numbers[group]: pin for group, pin in self.pins.items()},
            refusals={
                name: {numbers[group]: reason for group, reason in refusals.items()}
                for name, refusals in self.refusals.items()
            },
            estimates={name: arrange(times) for name, times in self._estimates.items()},
        )

    def scale_times(self, factor: float) -> Self:
        """Return it with all measured times multiplied by a factor."""

        def scale(times: Sequence[float]) -> list[float]:
            return [seconds * factor for seconds in times]

        contended = {name: scale(times) for name, times in self.contended.items()}
        spans = {name: times.scale(factor) for name, times in self.spans.items()}
        return replace(self, isolated=self._map_isolated(scale), contended=contended, spans=spans)

    def _map_isolated(
        self, change: Callable[[Sequence[float]], list[float]]
    ) -> Sequence[float] | dict[str, list[float]] | None:
        if isinstance(self.isolated, Mapping):
            return {name: change(times) for name, times in self.isolated.items()}
        return None if self.isolated is None else change(self.isolated)

    def of_plan(self, plan: Plan) -> Self:
        """Return it in a plan's order."""
        graph = as_ordered(self.graph, plan)
        if graph is self.graph:
            return self
        groups = {operator.name: operator.group for operator in self.graph.operators}
        return self.reorder(list(dict.fromkeys(groups[operator.name] for operator in graph.operators)))

    def build(self, solution: Solution) -> Plan:
        """Return the plan of a solution."""
        return build_plan(solution, self.graph, self.board, measured=self.measured).complete_options(self.options)

    @property
    def least_depth(self) -> int:
        """Least queue depth of each stage."""
        # Depths are chosen for cuts that are there; until then there is room for one.
        return self.queue_depth if isinstance(self.queue_depth, int) else 1

    @property
    def obstacle(self) -> Obstacle:
        """Explainer of missing divisions."""
        return Obstacle(self.graph, self.board, self.pins, self.seconds, self.refusals, self.variants)

    def predict(self, solution: Solution) -> Prediction:
        """Return the prediction of a solution's plan."""
        return predict(self.build(solution))

    def problem(self, request: PlanRequest = ANY_REQUEST, *, replicas: bool = True, borrowing: bool = False) -> Problem:
        """Return the solver's problem; replicas only without fixed stages."""
        return build_problem(
            self.graph,
            self.board,
            self.seconds,
            variants=self.variants,
            spans=self._device_spans,
            queue_depth=self.least_depth,
            # Each replica would keep a state of its own, of some of the frames.
            replicas=replicas and not request.devices and not self.graph.keeps_state,
            request=request,
            extend=partial(self.add_heterogeneous, request, replicas=replicas)
            if borrowing
            else lambda problem: problem,
        )

    def add_heterogeneous(self, request: PlanRequest, problem: Problem, *, replicas: bool) -> Problem:
        """Return the problem with borrowing stages too, if useful."""
        # A compiled file is a stage, and no step.
        if self.graph.compiled:
            return problem
        # Workers of a stage that is asked for may be several: that is what makes it fast.
        replicas = replicas and not self.graph.keeps_state
        processors = board_processors(self.board)
        borrowings = board_borrowings(processors, request, replicas=replicas)
        return add_heterogeneous(problem, list(borrowings))

    def variants(self, device: Device) -> Sequence[str]:
        """Return a device's names with measured runtimes, else the first.

        Estimates are the same for all of them.
        """
        names = {*self.spans, *(self.isolated if isinstance(self.isolated, Mapping) else ())}
        return [name for name in device.variants if name in names] or device.variants[:1]

    @property
    def measured(self) -> bool:
        """Return True if the seconds of all devices are measured."""
        # A bare sequence is of the first device, as on boards with only one.
        names = set(self.isolated) if isinstance(self.isolated, Mapping) else {self.board.devices[0].name}
        return self.isolated is not None and all(
            names & {*device.variants, device.name} for device in self.board.devices
        )

    def basis(self, device: str) -> str:
        """Return the origin of a device's times: measured, compiled or estimated."""
        if self.measured:
            return "measured"
        return "compiled" if device in self.compiled else "estimated"

    def seconds(self, device: Device, threads: int = 1) -> Sequence[float]:
        """Return each group's seconds on some cores, others busy.

        Seconds are infinite where the group is pinned elsewhere.
        """
        seconds = self.seconds_anywhere(device, threads)
        # A pin to a device holds whichever runtime executes the stage.
        elsewhere = {
            group
            for group, pin in self.pins.items()
            if not any(self.board.device(name).is_called(device.name) for name in pin.devices)
        }
        return _exclude(seconds, elsewhere)

    def isolated_seconds(self, device: Device, threads: int = 1) -> Sequence[float]:
        """Return each group's seconds on some cores, others at rest. Measured seconds replace estimates."""
        if isinstance(self.isolated, Mapping) and device.name in self.isolated:
            seconds = _parallel(self.isolated[device.name], threads)
        elif self.isolated is not None and not isinstance(self.isolated, Mapping) and device is self.board.devices[0]:
            seconds = _parallel(self.isolated, threads)
        else:
            seconds = self._estimate(device, threads)
        return _exclude(seconds, self.refusals.get(device.name, ()))

    def seconds_anywhere(self, device: Device, threads: int = 1) -> Sequence[float]:
        """Return each group's seconds on some cores, without pins."""
        # A core that has no neighbours is slowed by none.
        if len(device.cores) > 1 and device.name in self.contended:
            return _exclude(_parallel(self.contended[device.name], threads), self.refusals.get(device.name, ()))
        return self.isolated_seconds(device, threads)

    @cached_property
    def _estimates(self) -> dict[str, Sequence[float]]:
        return dict(self.estimates)

    def _estimate(self, device: Device, threads: int) -> Sequence[float]:
        # Each takes a moment in a graph of thousands of operators, and most runtimes of a device are not asked for.
        key = device.name if threads == 1 else f"{device.name} {threads}"
        if key not in self._estimates:
            self._estimates[key] = estimate(self.graph, device, self.options, threads)
        return self._estimates[key]

    def _device_spans(self, device: Device) -> SpanTimes | None:
        """Return the times of spans that are not sums of groups' times."""
        compiled = [group for group, work in enumerate(group_works(self.graph)) if work.compiled]
        seconds = np.asarray(self.seconds(device), np.float64)
        is_bound = device.capabilities.computes and np.isfinite(seconds[compiled]).any()
        if device.name in self.spans or not is_bound:
            return self.spans.get(device.name)
        # A compiled file is a stage of its own.
        sums, positions = span_sums(seconds), np.arange(len(seconds) + 1)
        for group in compiled:
            within = (positions[:, None] > group) & (positions <= group)
            within[group + 1, group] = False
            sums[within] = np.inf
        return SpanTimes(tuple(positions.tolist()), sums)

    @property
    def unsplit_seconds(self) -> float:
        """Return the unsplit seconds on the first able device, or 0."""
        seconds = (float(np.sum(self.isolated_seconds(device))) for device in self.board.devices)
        return next((time for time in seconds if np.isfinite(time)), 0.0)


def _parallel(seconds: Sequence[float], threads: int) -> Sequence[float]:
    return seconds if threads <= 1 else parallel_seconds(np.asarray(seconds, np.float64), threads).tolist()


def _exclude(seconds: Sequence[float], groups: Collection[int]) -> Sequence[float]:
    """Return the seconds with infinite ones for some groups."""
    return [np.inf if group in groups else time for group, time in enumerate(seconds)] if groups else seconds
