"""Planner: graph + board -> plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Real

import numpy as np

from pipeline.core.board import Board, Device
from pipeline.core.plan import Plan
from pipeline.core.prediction import Prediction, predict
from pipeline.errors import PlanError
from pipeline.split.graph import Graph
from pipeline.split.offload import Refusals
from pipeline.split.orders import GroupDag, as_ordered, reorder
from pipeline.split.planning import pins, queues
from pipeline.split.planning.board_processors import board_processors
from pipeline.split.planning.borrowing import board_borrowings
from pipeline.split.planning.bound import relaxed_interval
from pipeline.split.planning.candidates import Candidate, Predict, choose, keep_up, prefer_predicted
from pipeline.split.planning.chain_solver import ChainSolver
from pipeline.split.planning.costs import estimate
from pipeline.split.planning.division import MOST_GROUPS, ORDER_WORTH_IT, Division
from pipeline.split.planning.heterogeneous_choices import add_heterogeneous
from pipeline.split.planning.heterogeneous_search import (
    compare,
    refine,
    search_problems,
    slowest_useful,
    without_borrowing,
)
from pipeline.split.planning.lent_memory import LentMemory
from pipeline.split.planning.limits import ROUNDING
from pipeline.split.planning.obstacle import Obstacle
from pipeline.split.planning.pins import Pins
from pipeline.split.planning.plan_builder import build_plan
from pipeline.split.planning.problem import Problem
from pipeline.split.planning.problem_builder import build_problem
from pipeline.split.planning.queues import TIME_CV
from pipeline.split.planning.request import ANY_REQUEST, PlanRequest, resolve_request
from pipeline.split.planning.solution import Solution
from pipeline.split.planning.spans import SpanTimes
from pipeline.split.planning.trade_off import prefer_prompt

OBJECTIVES = ("throughput", "latency", "energy")

WORTH_IT = 1.02
"""Fewer stages and cores are chosen unless more of them are this much faster."""


@dataclass(frozen=True)
class Planner:
    """A graph, a board, and what each fused group takes on each device.

    Attributes
    ----------
    graph : Graph
    board : Board
    isolated : sequence of float, or mapping of str to that, optional
        Measured seconds of each fused group on one core while the others rest: of the first device, or by the device's
        name; estimates where there are none.
    queue_depth : int or "auto"
        How many frames may wait in front of each stage.  ``"auto"`` chooses as many as `cv` asks for, as far as
        there is memory; cuts are chosen with room for one.
    cv : float
        Coefficient of variation of a stage's time: its standard deviation, as a share of it.
    contended : mapping of str to sequence of float
        By the device's name, the seconds on one core while its other cores are busy; `isolated` where it is not in it.
    pins : mapping of int to Pin
        By the fused group, which devices may run it; groups without one run anywhere.
    spans : mapping of str to SpanTimes
        By the name of a device with its runtime, measured times of spans, where these are not sums.
    refusals : mapping of str to mapping of int to str
        By the name of a device with its runtime, the fused groups that it does not run, by its own word, and why.
    estimates : mapping of str to sequence of float, optional
        By the name of a device with its runtime, estimated seconds of each fused group, if they are known already.
    """

    graph: Graph
    board: Board
    isolated: Sequence[float] | Mapping[str, Sequence[float]] | None = None
    queue_depth: int | str = "auto"
    cv: float = TIME_CV
    contended: Mapping[str, Sequence[float]] = field(default_factory=dict)
    pins: Pins = field(default_factory=dict)
    spans: Mapping[str, SpanTimes] = field(default_factory=dict)
    refusals: Mapping[str, Refusals] = field(default_factory=dict)
    estimates: Mapping[str, Sequence[float]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        runnable = {device.name: np.isfinite(self._seconds_anywhere(device)).tolist() for device in self._pin_devices()}
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
        """Return the best plan; the parameters and errors are those of `pipeline.plan`."""
        # Before the search, which takes the longest.
        queues.check_depth(self.queue_depth, self.cv)
        goal = _goal(objective, fps)
        request = resolve_request(self.graph, self.board, self.pins, stages, cuts, devices)
        if goal == "energy":
            _check_watts(self.board, request)
        division, planner = None, self
        if self._has_orders(request):
            planner, division = self._arrange(goal, fps, request, replicas=replicas)
        solve = partial(
            Planner.solve, goal=goal, fps=fps, request=request, replicas=replicas, heterogeneous=heterogeneous
        )
        solution = solve(planner, division=division)
        if planner is not self and any(stage.choice.paths for stage in solution.stages):
            # Stages that borrow devices were not thought of when the order was chosen.
            planner, solution = _better((planner, solution), self, solve, goal)
        plan = build_plan(solution, planner.graph, self.board, measured=self.measured)
        order = () if planner is self else tuple(operator.name for operator in planner.graph.operators)
        plan = replace(plan, unsplit_seconds=self._unsplit_seconds(), order=order)
        return queues.add_queues(plan, planner.graph, self.queue_depth, self.cv)

    def _has_orders(self, request: PlanRequest) -> bool:
        """Return whether there are several orders to choose from."""
        # Cuts that a user gives are positions of the graph's own order, as are the ends of models; and the times of
        # spans are of groups that lie side by side in it.
        is_fixed = request.edges or request.borrowed or self.graph.model_ends or self.graph.unfused or self.spans
        is_worth_it = len(board_processors(self.board)) > 1 and len(self.graph.group_ends) <= MOST_GROUPS
        return is_worth_it and not is_fixed and not GroupDag.of(self.graph).is_chain

    def _arrange(
        self, goal: str, fps: float | None, request: PlanRequest, *, replicas: bool
    ) -> tuple[Planner, Division]:
        """Return the planner of the graph in the order in which it is divided best, with what was found of that."""
        own, dag = Division.of(self.problem(request, replicas=replicas)), GroupDag.of(self.graph)
        arrangements = [Arrangement(self, own, self.candidate(own, goal, fps, request))]

        def arrange(order: Sequence[int] | None, least_latency: float = np.inf) -> None:
            if order is not None:
                planner = self.reorder(order)
                division = Division.of(planner.problem(request, replicas=replicas), least_latency)
                arrangements.append(Arrangement(planner, division, planner.candidate(division, goal, fps, request)))

        arrange(own.better_order(dag, self.board, goal, fps))
        best = best_arrangement(arrangements, goal, fps)
        if goal == "throughput" and not fps and best.pays_for_latency:
            order, least_latency = own.prompt_order(dag, self.board, min(each.division.pace for each in arrangements))
            arrange(order, least_latency)
            best = best_arrangement(arrangements, goal, fps, least_latency)
        return best.planner, best.division

    def candidate(self, division: Division, goal: str, fps: float | None, request: PlanRequest) -> Candidate | None:
        """Return what is best of a division with what its plan takes, None where there is no plan."""
        try:
            solution = self._solve_problem(division.problem, goal, fps, request, division)[0]
        except PlanError:
            return None
        return Candidate(solution, self._predict(solution))

    def reorder(self, order: Sequence[int]) -> Planner:
        """Return the planner of the graph with its fused groups in another topological order."""
        numbers = {group: number for number, group in enumerate(order)}

        def arrange(seconds: Sequence[float]) -> list[float]:
            return [float(seconds[group]) for group in order]

        isolated = self.isolated
        if isinstance(isolated, Mapping):
            isolated = {name: arrange(each) for name, each in isolated.items()}
        elif isolated is not None:
            isolated = arrange(isolated)
        return replace(
            self,
            graph=reorder(self.graph, order),
            isolated=isolated,
            contended={name: arrange(each) for name, each in self.contended.items()},
            pins={numbers[group]: pin for group, pin in self.pins.items()},
            refusals={
                name: {numbers[group]: reason for group, reason in refusals.items()}
                for name, refusals in self.refusals.items()
            },
            estimates={name: arrange(each) for name, each in self._estimates.items()},
        )

    def scale_times(self, factor: float) -> Planner:
        """Return the planner with all measured times multiplied by a factor."""

        def scale(times: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
            return {name: [seconds * factor for seconds in group_seconds] for name, group_seconds in times.items()}

        isolated = self.isolated
        if isinstance(isolated, Mapping):
            isolated = scale(isolated)
        elif isolated is not None:
            isolated = [seconds * factor for seconds in isolated]
        spans = {name: times.scale(factor) for name, times in self.spans.items()}
        return replace(self, isolated=isolated, contended=scale(self.contended), spans=spans)

    def of_plan(self, plan: Plan) -> Planner:
        """Return the planner of the graph in the order that a plan cuts."""
        graph = as_ordered(self.graph, plan)
        if graph is self.graph:
            return self
        groups = {operator.name: operator.group for operator in self.graph.operators}
        return self.reorder(list(dict.fromkeys(groups[operator.name] for operator in graph.operators)))

    def solve(  # noqa: PLR0913 - all but the first two by keyword
        self,
        goal: str = "throughput",
        fps: float | None = None,
        *,
        request: PlanRequest = ANY_REQUEST,
        replicas: bool = True,
        heterogeneous: bool = True,
        division: Division | None = None,
    ) -> Solution:
        """Return the best division; `division` has what is known of the one without heterogeneous stages.

        Raises
        ------
        PlanError
            If the board cannot run the model, or not as fast as asked for, or if the power of its devices is unknown
            where the energy matters.
        """
        if goal == "energy":
            _check_watts(self.board, request)
        borrowing = request.borrowed or (heterogeneous and not request.devices)
        problem = self.problem(request, replicas=replicas, borrowing=bool(borrowing))
        if not any(choice.paths for choice in problem.choices):
            return self._solve_problem(division.problem if division else problem, goal, fps, request, division)[0]
        problems = [problem] if request.borrowed else [without_borrowing(problem), *search_problems(problem, goal)]
        lent_memory = LentMemory(self.graph, self.board)
        candidates = compare(
            problems,
            partial(self._solve_fitting, lent_memory, goal=goal, fps=fps, request=request),
            self._predict,
            partial(slowest_useful, goal=goal, fps=fps),
        )
        if goal == "throughput" and not request.edges:
            refined = self._refine(problem, candidates)
            candidates += [each for each in refined if not lent_memory.describe_shortage(each.solution)]
        best = choose(candidates, goal, fps, 1.0 if request.devices else WORTH_IT)
        if fps and best.prediction.interval_s > 1 / fps * (1 + 1e-9):
            raise self._too_slow(best.prediction.interval_s, fps)
        # A formula for waiting proves nothing; a relaxation in which nobody waits does.
        return replace(best.solution, bound=relaxed_interval(problem))

    def _solve_fitting(
        self, lent_memory: LentMemory, problem: Problem, goal: str, fps: float | None, request: PlanRequest
    ) -> tuple[Solution, ...]:
        """Return the best divisions of a problem for whose steps there is memory on what they borrow."""
        solutions = self._solve_problem(problem, goal, fps, request)
        shortages = [lent_memory.describe_shortage(solution) for solution in solutions]
        if all(shortages):
            raise PlanError(f"{self.graph.name!r} on {self.board.name!r}: {shortages[0]}")
        return tuple(solution for solution, shortage in zip(solutions, shortages, strict=True) if not shortage)

    def _refine(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return what is found near to the best candidates that borrow anything."""
        borrowing = [each for each in candidates if any(stage.choice.paths for stage in each.solution.stages)]
        borrowing.sort(key=lambda each: each.prediction.interval_s)
        return [refine(problem, candidate, self._predict) for candidate in borrowing[:2]]

    def _predict(self, solution: Solution) -> Prediction:
        return predict(build_plan(solution, self.graph, self.board, measured=self.measured))

    def _too_slow(self, interval: float, fps: float) -> PlanError:
        return PlanError(
            f"{self.graph.name!r} reaches {1 / interval:.4g} frames/s on {self.board.name!r}, "
            f"not {fps:g}; ask for less, or for none with the objective 'throughput'"
        )

    def _solve_problem(
        self, problem: Problem, goal: str, fps: float | None, request: PlanRequest, division: Division | None = None
    ) -> tuple[Solution, ...]:
        """Return the best division of a problem; where stages wait for what they borrow, others to compare it with."""
        if division is None or division.problem is not problem:
            division = Division.of(problem)
        if (goal, fps) not in division.solutions:
            solutions = self._choose_solutions(division, goal, fps, request)
            division.solutions[goal, fps] = tuple(solutions)
        return division.solutions[goal, fps]

    def _choose_solutions(
        self, division: Division, goal: str, fps: float | None, request: PlanRequest
    ) -> Iterator[Solution]:
        problem, solver, fastest = division.problem, division.solver, division.fastest
        if fastest is None:
            obstacle = Obstacle(self.graph, self.board, self.pins, self.seconds, self.refusals, self._variants)
            raise PlanError(obstacle.describe(request))

        def at_positions(solution: Solution) -> Solution:
            # What is proved of the fastest holds for all; a smaller one may be slower, a prompt one by more.
            solution = replace(solution, bound=fastest.bound, fastest=fastest.interval)
            return solution.at_positions(request.edges) if request.edges else solution

        def predict_solution(solution: Solution) -> Prediction:
            return self._predict(at_positions(solution))

        # Stages that borrow are compared with others by what their plans take later.
        borrows = any(choice.paths for choice in problem.choices)
        if fps:
            solution = self._keep_up(solver, fastest, goal, fps, None if borrows else predict_solution)
        elif goal == "throughput":
            # Whoever fixes the stages wants the best of them; otherwise fewer are worth a little.
            slack = 1.0 if request.devices else WORTH_IT
            solution = solver.least("size", fastest.interval * slack) or fastest
            if not request.devices:
                solution = prefer_prompt(problem, solution, WORTH_IT, division.least_latency)
            if not borrows:
                solution = prefer_predicted(solver, solution, fastest, predict_solution)
        else:
            solution = solver.least(goal, np.inf) or fastest
        yield at_positions(solution)
        if borrows:
            yield from (at_positions(fastest), at_positions(solver.least("latency", np.inf) or fastest))

    def _keep_up(
        self, solver: ChainSolver, fastest: Solution, goal: str, fps: float, predict: Predict | None
    ) -> Solution:
        """Return the division with the least of a goal that keeps up, and with `predict` its plan as well."""
        if predict is None:
            if fastest.interval > 1 / fps:
                raise self._too_slow(fastest.interval, fps)
            return solver.least("size" if goal == "throughput" else goal, 1 / fps) or fastest
        best = keep_up(solver, fastest, goal, 1 / fps, predict)
        if best.prediction.interval_s > 1 / fps * (1 + ROUNDING):
            raise self._too_slow(best.prediction.interval_s, fps)
        return best.solution

    def problem(self, request: PlanRequest = ANY_REQUEST, *, replicas: bool = True, borrowing: bool = False) -> Problem:
        """Return the problem for the solver; only where nothing is fixed, stages may have replicas."""
        # Depths are chosen for cuts that are there; until then there is room for one frame in front of each stage.
        depth = self.queue_depth if isinstance(self.queue_depth, int) else 1
        return build_problem(
            self.graph,
            self.board,
            self.seconds,
            variants=self._variants,
            spans=lambda device: self.spans.get(device.name),
            queue_depth=depth,
            # Each replica would keep a state of its own, of some of the frames.
            replicas=replicas and not request.devices and not self.graph.keeps_state,
            request=request,
            extend=partial(self._add_heterogeneous, request, replicas=replicas) if borrowing else lambda each: each,
        )

    def _add_heterogeneous(self, request: PlanRequest, problem: Problem, *, replicas: bool) -> Problem:
        # Workers of a stage that is asked for may be several: that is what makes it fast.
        replicas = replicas and not self.graph.keeps_state
        processors = board_processors(self.board)
        borrowings = board_borrowings(processors, request, replicas=replicas)
        return add_heterogeneous(problem, list(borrowings))

    def _variants(self, device: Device) -> Sequence[str]:
        """Return the names of a device with those of its runtimes that were measured; without any, with the first one.

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

    def seconds(self, device: Device) -> Sequence[float]:
        """Return the seconds of each fused group on one core of a device, while its others do their part.

        They are infinite where the group is pinned elsewhere.
        """
        seconds = self._seconds_anywhere(device)
        # A pin to a device holds whichever runtime executes the stage.
        elsewhere = {
            group
            for group, pin in self.pins.items()
            if not any(self.board.device(name).is_called(device.name) for name in pin.devices)
        }
        return _exclude(seconds, elsewhere)

    def isolated_seconds(self, device: Device) -> Sequence[float]:
        """Return the seconds of each fused group on one core of a device while its others rest, measured if known."""
        if isinstance(self.isolated, Mapping) and device.name in self.isolated:
            seconds = self.isolated[device.name]
        elif self.isolated is not None and not isinstance(self.isolated, Mapping) and device is self.board.devices[0]:
            seconds = self.isolated
        else:
            seconds = self._estimate(device)
        return _exclude(seconds, self.refusals.get(device.name, ()))

    def _seconds_anywhere(self, device: Device) -> Sequence[float]:
        seconds = self.isolated_seconds(device)
        # A core that has no neighbours is slowed by none.
        if len(device.cores) > 1 and device.name in self.contended:
            return _exclude(self.contended[device.name], self.refusals.get(device.name, ()))
        return seconds

    @cached_property
    def _estimates(self) -> dict[str, Sequence[float]]:
        return dict(self.estimates)

    def _estimate(self, device: Device) -> Sequence[float]:
        # Each takes a moment in a graph of thousands of operators, and most runtimes of a device are not asked for.
        if device.name not in self._estimates:
            self._estimates[device.name] = list(estimate(self.graph, device))
        return self._estimates[device.name]

    def _unsplit_seconds(self) -> float:
        """Return the seconds of the unsplit model on one core of the first device that can run it; 0 if none can."""
        seconds = (float(np.sum(self.isolated_seconds(device))) for device in self.board.devices)
        return next((each for each in seconds if np.isfinite(each)), 0.0)


@dataclass(frozen=True, eq=False)
class Arrangement:
    """A planner of a graph in some order, with its division and what is best of it; without a plan, None."""

    planner: Planner
    division: Division
    candidate: Candidate | None

    @property
    def pays_for_latency(self) -> bool:
        """Whether the plan may be late, or is slower than others so as not to be."""
        if self.candidate is None:
            return False
        is_slower = self.candidate.solution.interval > self.division.pace * WORTH_IT
        return is_slower or self.division.may_be_late(self.candidate.prediction.latency_s)


def best_arrangement(
    arrangements: Sequence[Arrangement], goal: str, fps: float | None, least_latency: float = np.inf
) -> Arrangement:
    """Return the best arrangement by what its plan takes; the first one, unless another is better by 1 %."""
    # An order was looked for without limits of memories and links.
    candidates = {id(each.candidate): each for each in arrangements if each.candidate}
    if candidates:
        in_reach = [each.candidate for each in candidates.values() if each.candidate]
        return candidates[id(choose(in_reach, goal, fps, ORDER_WORTH_IT, least_latency))]
    # What is told of the fastest one is why there is no plan.
    return min(arrangements, key=lambda each: each.division.pace)


def _better(
    arranged: tuple[Planner, Solution], planner: Planner, solve: Callable[[Planner], Solution], goal: str
) -> tuple[Planner, Solution]:
    """Return what was found in another order, or what a planner finds in its own one if that is better."""
    try:
        own = solve(planner)
    except PlanError:
        return arranged
    values = {"throughput": "interval", "latency": "latency", "energy": "joules"}
    is_better = getattr(own, values[goal]) < getattr(arranged[1], values[goal])
    return (planner, own) if is_better else arranged


def _exclude(seconds: Sequence[float], groups: Collection[int]) -> Sequence[float]:
    """Return the seconds with infinite ones for some groups."""
    return [np.inf if group in groups else each for group, each in enumerate(seconds)] if groups else seconds


def _is_rate(value: object) -> bool:
    return isinstance(value, Real) and 0 < float(value) < np.inf


def _goal(objective: str | None, fps: float | None) -> str:
    if fps is not None and not _is_rate(fps):
        raise PlanError(f"fps is {fps!r}; it must be a number above 0")
    goal = objective or ("latency" if fps else "throughput")
    if goal not in OBJECTIVES:
        raise PlanError(f"objective is {objective!r}; it must be one of {', '.join(OBJECTIVES)}")
    return goal


def _check_watts(board: Board, request: PlanRequest) -> None:
    """Raise `PlanError` if a device that a plan may use has no power: its stages would seem to cost nothing."""
    devices = {device.name: device for devices in request.devices or [board.devices] for device in devices}
    unknown = [repr(name) for name, device in devices.items() if not device.watts_busy]
    if unknown:
        raise PlanError(
            f"the objective 'energy' needs the power of all devices; board {board.name!r} has none of "
            f"{', '.join(unknown)}: give 'watts_idle' and 'watts_busy' in its file, or take another objective"
        )
