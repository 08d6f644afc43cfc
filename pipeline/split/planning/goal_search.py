"""Goal search: best divisions for a goal, judged by their plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pipeline.core.board.board import Board
from pipeline.errors import PlanError
from pipeline.prediction.predict import Prediction
from pipeline.split.graph import Graph
from pipeline.split.planning.borrowing.heterogeneous_search import (
    FORMULA,
    compare,
    has_many_workers,
    refine,
    search_problems,
    slowest_useful,
)
from pipeline.split.planning.orders.division import Division
from pipeline.split.planning.problem.board_processors import board_processors
from pipeline.split.planning.problem.footprint import Footprint
from pipeline.split.planning.problem.limits import ROUNDING
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.problem.problem_builder import memory_sizes
from pipeline.split.planning.problem.request import PlanRequest
from pipeline.split.planning.solver.bound import relaxed_interval
from pipeline.split.planning.solver.candidates import Candidate, Predict, choose, keep_up, prefer_predicted
from pipeline.split.planning.solver.chain_solver import ChainSolver
from pipeline.split.planning.solver.solution import Solution, StageSolution
from pipeline.split.planning.solver.trade_off import prefer_prompt
from pipeline.split.planning.timed_graph import TimedGraph

WORTH_IT = 1.02
"""Fewer stages and cores are chosen unless more of them are this much faster."""


@dataclass(frozen=True)
class GoalSearch:
    """The search for one plan."""

    timed: TimedGraph
    goal: str
    """Goal of `pipeline.split.planning.problem.request.OBJECTIVES`."""
    fps: float | None
    """Frames per second that have to be kept."""
    request: PlanRequest
    replicas: bool = True
    """True if a stage may run on several frames at once."""

    def problem(self, *, borrowing: bool = False) -> Problem:
        """Return the problem for the solver."""
        return self.timed.problem(self.request, replicas=self.replicas, borrowing=borrowing)

    def solve(self, division: Division, *, heterogeneous: bool = True) -> Solution:
        """Return the best solution; `division` has the homogeneous one."""
        problem = division.problem
        if self.request.borrowed:
            problem = self.problem(borrowing=True)
        elif heterogeneous and not self.request.devices:
            problem = self.timed.add_heterogeneous(self.request, problem, replicas=self.replicas)
        if any(choice.paths for choice in problem.choices):
            return self._best_with_borrowing(problem, division)
        return self.best_of(division)

    def candidate(self, division: Division) -> Candidate | None:
        """Return a division's best plan with its prediction, or None."""
        try:
            solution = self.best_of(division)
        except PlanError:
            return None
        return Candidate(solution, self.timed.predict(solution))

    def unsplit(self) -> tuple[Solution, Solution] | None:
        """Return the best and the fastest unsplit way, None without one."""
        edges = (0, len(self.timed.graph.group_ends))
        search = replace(self, request=PlanRequest(edges=edges))
        division = Division.of(search.problem())
        if division.fastest is None:
            return None
        return search.best_of(division), division.fastest.at_positions(edges)

    def best_of(self, division: Division) -> Solution:
        """Return the best solution of a division without heterogeneous stages.

        Raises `PlanError` if there is none, or none that is fast enough.
        """
        return self._solve_problem(division.problem, division)[0]

    def _best_with_borrowing(self, problem: Problem, division: Division) -> Solution:
        """Return the best solution of a problem with heterogeneous stages."""
        has_chains = not self.request.borrowed
        # To keep up is a matter of the rate first.
        pace = "throughput" if self.fps else self.goal
        problems = [division.problem, *search_problems(problem, pace)] if has_chains else [problem]
        lent_memory = LentMemory(self.timed.graph, self.timed.board)
        candidates = compare(
            problems,
            partial(self._solve_fitting, lent_memory, division),
            self.timed.predict,
            partial(slowest_useful, goal=self.goal, fps=self.fps),
        )
        if not self.request.edges:
            refined = refine(problem, candidates, self.timed.predict, self.goal, self.fps)
            candidates += [candidate for candidate in refined if not lent_memory.describe_shortage(candidate.solution)]
        is_exact = self.request.devices or self.goal != "throughput"
        best = choose(candidates, self.goal, self.fps, 1.0 if is_exact else WORTH_IT)
        if self.fps and best.prediction.interval_s > 1 / self.fps * (1 + ROUNDING):
            raise self._too_slow(best.prediction.interval_s)
        # A formula for waiting proves nothing; a relaxation in which nobody waits does.
        fastest = min(candidate.prediction.interval_s for candidate in candidates)
        return replace(best.solution, bound=relaxed_interval(problem), fastest=fastest)

    def _solve_fitting(self, lent_memory: LentMemory, division: Division, problem: Problem) -> tuple[Solution, ...]:
        """Return the best divisions with enough borrowed memory."""
        solutions = self._solve_problem(problem, division)
        shortages = [lent_memory.describe_shortage(solution) for solution in solutions]
        if all(shortages):
            raise PlanError(f"{self.timed.graph.name!r} on {self.timed.board.name!r}: {shortages[0]}")
        return tuple(solution for solution, shortage in zip(solutions, shortages, strict=True) if not shortage)

    def _too_slow(self, interval: float) -> PlanError:
        return PlanError(
            f"{self.timed.graph.name!r} reaches {1 / interval:.4g} frames/s on {self.timed.board.name!r}, "
            f"not {self.fps:g}; ask for less, or for none with the objective 'throughput'"
        )

    def _solve_problem(self, problem: Problem, division: Division | None = None) -> tuple[Solution, ...]:
        """Return the best division, and rivals where borrowers wait."""
        if division is None or division.problem is not problem:
            division = Division.of(problem)
        if (self.goal, self.fps) not in division.solutions:
            division.solutions[self.goal, self.fps] = tuple(self._choose_solutions(division))
        return division.solutions[self.goal, self.fps]

    def _choose_solutions(self, division: Division) -> Iterator[Solution]:
        problem, solver, fastest = division.problem, division.solver, division.fastest
        if fastest is None:
            raise PlanError(self.timed.obstacle.describe(self.request, problem))

        def at_positions(solution: Solution) -> Solution:
            # What is proved of the fastest holds for all; a smaller one may be slower, a prompt one by more.
            solution = replace(solution, bound=fastest.bound, fastest=fastest.interval)
            return solution.at_positions(self.request.edges) if self.request.edges else solution

        def predict(solution: Solution) -> Prediction:
            return self.timed.predict(at_positions(solution))

        # Stages that borrow are compared with others by what their plans take later.
        borrows = any(choice.paths for choice in problem.choices)
        if has_many_workers(problem) and not self.fps and not self.request.devices:
            # One of several problems; others have few workers, and less latency.
            yield at_positions(solver.least("size", fastest.interval * WORTH_IT) or fastest)
            return
        if self.fps:
            solution = self._keep_up(solver, fastest, None if borrows else predict)
        elif self.goal == "throughput":
            # Whoever fixes the stages wants the best of them; otherwise fewer are worth a little.
            slack = 1.0 if self.request.devices else WORTH_IT
            solution = solver.least("size", fastest.interval * slack) or fastest
            if not self.request.devices:
                solution = prefer_prompt(problem, solution, WORTH_IT, division.least_latency)
            if not borrows:
                solution = prefer_predicted(solver, solution, fastest, predict)
        else:
            solution = solver.least(self.goal, np.inf) or fastest
        yield at_positions(solution)
        if borrows:
            limits = (np.inf, FORMULA / self.fps) if self.fps else (np.inf,)
            yield at_positions(fastest)
            yield from (at_positions(solver.least("latency", limit) or fastest) for limit in limits)

    def _keep_up(self, solver: ChainSolver, fastest: Solution, predict: Predict | None) -> Solution:
        """Return the cheapest division that keeps up, by `predict` as well."""
        longest = 1 / self.fps if self.fps else np.inf
        if predict is None:
            # The formula for waiting may be wrong; who keeps up is seen later.
            return solver.least("size" if self.goal == "throughput" else self.goal, longest) or fastest
        best = keep_up(solver, fastest, self.goal, longest, predict)
        if best.prediction.interval_s > longest * (1 + ROUNDING):
            raise self._too_slow(best.prediction.interval_s)
        return best.solution


class LentMemory:
    """Limited memories of a board, and needs of divisions."""

    def __init__(self, graph: Graph, board: Board) -> None:
        self._footprint, self._sizes = Footprint.of(graph), memory_sizes(board)
        self._memories = [processor.device.memory for processor in board_processors(board)]

    def describe_shortage(self, solution: Solution) -> str:
        """Return the memory too small for a division's loans, or ""."""
        for memory, size in self._sizes.items():
            lent_bytes = sum(self._lent_bytes(stage, memory) for stage in solution.stages)
            home_bytes = (stage.nbytes for stage in solution.stages if self._memories[stage.choice.processor] == memory)
            if lent_bytes and sum(home_bytes) + lent_bytes > size:
                return (
                    f"stages that borrow need {lent_bytes / 1e6:.3g} MB of the memory {memory!r} for the weights of "
                    f"their steps there, once for each worker, and it has {size / 1e6:.3g} MB; ask for fewer "
                    "replicas, or for no stages that borrow (--no-borrowing)"
                )
        return ""

    def _lent_bytes(self, stage: StageSolution, memory: str) -> float:
        """Return a stage's bytes in a foreign memory."""
        choice = stage.choice
        if choice.paths is None or self._memories[choice.processor] == memory:
            return 0.0
        steps = choice.paths.steps(stage.begin, stage.end)
        spans = [slice(step.begin, step.end) for step in steps if self._memories[step.processor] == memory]
        if not spans:
            return 0.0
        # A worker runs its steps one after the other: of what is alive meanwhile, the most counts.
        parameters = sum(float(self._footprint.parameters[span].sum()) for span in spans)
        workspace = max(float(self._footprint.workspace[span].max()) for span in spans)
        return choice.replicas * (parameters + workspace)
