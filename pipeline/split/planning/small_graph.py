"""Small graph: best divisions of a few groups in all orders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from pipeline.core.plan.moves import find_moves
from pipeline.errors import BoardError
from pipeline.prediction.predict import predict
from pipeline.split.graph import Graph
from pipeline.split.orders import GroupDag
from pipeline.split.planning.goal_search import WORTH_IT, GoalSearch
from pipeline.split.planning.orders.division_prefix import Prefix, PrefixBuilder
from pipeline.split.planning.orders.downsets import order_through
from pipeline.split.planning.orders.enumeration import TOLERANCE, Aim, Division, Enumeration
from pipeline.split.planning.problem.footprint import Footprint
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.bound import relaxed_interval
from pipeline.split.planning.solver.candidates import Candidate
from pipeline.split.planning.solver.solution import Solution, StageSolution
from pipeline.split.planning.solver.trade_off import longest_prompt, most_latency
from pipeline.split.planning.timed_graph import TimedGraph

MOST_GROUPS = 12
"""Graphs of more groups have more divisions than there is time for."""

_MOST_DOWNSETS = 200


@dataclass(eq=False)
class SmallGraph:
    """A graph of few groups, for one goal."""

    search: GoalSearch
    problem: Problem
    dag: GroupDag
    is_free: bool
    """True if other orders may be taken."""
    fastest: Candidate | None = field(default=None, init=False)
    quickest: Candidate | None = field(default=None, init=False)
    """The divisions of the least interval and of the least latency, once they are known."""
    _timed_graphs: dict[tuple[int, ...], TimedGraph] = field(default_factory=dict, init=False)
    _sizes: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict, init=False)

    @cached_property
    def enumeration(self) -> Enumeration:
        """All divisions."""
        prefixes = self.dag.prefixes(range(len(self.dag)))
        downsets = (self.dag.downsets(_MOST_DOWNSETS) if self.is_free else None) or prefixes
        return Enumeration(PrefixBuilder(self.problem, self.dag), downsets, self.evaluate, self.fits)

    @staticmethod
    def of(search: GoalSearch, problem: Problem, *, is_free: bool) -> SmallGraph | None:
        """Return a search's small graph; None if too large or fixed."""
        graph, request = search.timed.graph, search.request
        is_fixed = request.edges or request.borrowed or graph.model_ends or graph.unfused
        # Times of spans are no sums of those of groups.
        if is_fixed or problem.items > MOST_GROUPS or any(choice.spans is not None for choice in problem.choices):
            return None
        return SmallGraph(search, problem, GroupDag.of(graph), is_free)

    @property
    def is_exact(self) -> bool:
        """True if the solver counts exactly: one order, no passing tensors."""
        return self.dag.is_chain and not _may_pass_by(self.search.timed.graph)

    def best(self, incumbent: Candidate | None) -> Candidate | None:
        """Return the best division by its plan; `incumbent` is a start."""
        search, enumeration = self.search, self.enumeration
        longest = 1 / search.fps if search.fps else np.inf
        if search.fps and (incumbent is None or incumbent.prediction.interval_s > longest):
            # Whatever keeps up bounds the search for the least of it.
            incumbent = enumeration.best(Aim("interval"), incumbent)
        if search.goal != "throughput":
            return enumeration.best(Aim({"energy": "joules"}.get(search.goal, search.goal), longest), incumbent)
        if search.fps:
            return enumeration.best(Aim("size", longest), incumbent)
        fastest = self.fastest = enumeration.best(Aim("interval"), incumbent)
        # Whoever fixes the stages wants the best of them; otherwise fewer are worth a little.
        if fastest is None or search.request.devices:
            return fastest
        small = enumeration.best(Aim("size", fastest.prediction.interval_s * WORTH_IT), fastest) or fastest
        self.quickest = enumeration.best(Aim("latency"), small) or small
        return self._prompt(small, self.quickest)

    def _prompt(self, small: Candidate, quickest: Candidate) -> Candidate:
        """Return a division, or a prompt one hardly slower."""
        latency = most_latency(quickest.prediction.latency_s)
        if small.prediction.latency_s <= latency:
            return small
        slowest = longest_prompt(small.prediction.interval_s)
        prompt = self.enumeration.best(Aim("interval", slowest, latency), quickest)
        if prompt is None:
            return small
        aim = Aim("size", prompt.prediction.interval_s * WORTH_IT, latency)
        return self.enumeration.best(aim, prompt) or prompt

    def with_bound(self, solution: Solution, problem: Problem) -> Solution:
        """Return a solution in the problem's order, with its proof."""
        indices = {id(choice): index for index, choice in enumerate(self.problem.choices)}
        stages = tuple(
            replace(stage, choice=problem.choices[indices[id(stage.choice)]]) if id(stage.choice) in indices else stage
            for stage in solution.stages
        )
        bound = min(relaxed_interval(problem), solution.interval)
        fastest = self.fastest.prediction.interval_s if self.fastest else solution.interval
        if self.fastest and self.enumeration.is_complete:
            bound = min(solution.interval, fastest * (1 - TOLERANCE))
        return replace(solution, stages=stages, bound=bound, fastest=fastest)

    def evaluate(self, division: Division, *, waiting: bool = True) -> Candidate | None:
        """Return a division with its plan's prediction, or None without routes."""
        order = tuple(order_through([end for end, _ in division[:-1]], len(self.dag)))
        timed = self.arrange(order)
        stages = list(self._stages(division))
        try:
            plan = timed.build(Solution(tuple(stages), 0.0))
        except BoardError:
            return None
        prediction, moves = predict(plan, waiting=waiting), find_moves(plan)
        stages = [
            replace(stage, enter=move.enter_s, leave=move.leave_s, interval=prediction.stages[number].interval_s)
            for number, (stage, move) in enumerate(zip(stages, moves, strict=True))
        ]
        return Candidate(Solution(tuple(stages), prediction.interval_s), prediction, order)

    def arrange(self, order: tuple[int, ...]) -> TimedGraph:
        """Return the graph in an order, by default its own."""
        order = order or tuple(range(len(self.dag)))
        if order not in self._timed_graphs:
            timed = self.search.timed
            self._timed_graphs[order] = timed if order == tuple(range(len(order))) else timed.reorder(order)
        return self._timed_graphs[order]

    @property
    def least_latency(self) -> float:
        """Least latency of all divisions; infinite while unknown."""
        return self.quickest.prediction.latency_s if self.quickest else np.inf

    def _stages(self, division: Division) -> Iterator[StageSolution]:
        begin = 0
        for end, index in division:
            choice = self.problem.choices[index]
            groups = [group for group in range(len(self.dag)) if (end & ~begin) >> group & 1]
            compute = float(choice.seconds[groups].sum())
            yield StageSolution(begin.bit_count(), end.bit_count(), choice, compute, 0.0, 0.0, 0.0, 0.0)
            begin = end

    def fits(self, prefix: Prefix) -> bool:
        """Check the memory of a prefix's stages."""
        limits = self.problem.memories
        if not limits:
            return True
        choices = [self.problem.choices[index] for index in prefix.choices]
        sizes = []
        for choice, begin, end in zip(choices, (0, *prefix.ends), prefix.ends, strict=False):
            held, waiting = self._stage_bytes(begin, end)
            sizes.append((choice.processor, choice.replicas * held + self.search.timed.least_depth * waiting))
        return all(
            sum(size for position, size in sizes if position in limit.processors) <= limit.nbytes for limit in limits
        )

    def _stage_bytes(self, begin: int, end: int) -> tuple[float, float]:
        """Return the bytes of a replica and of a waiting frame."""
        if (begin, end) not in self._sizes:
            order = tuple(order_through([begin, end], len(self.dag)))
            footprint, span = Footprint.of(self.arrange(order).graph), (begin.bit_count(), end.bit_count())
            self._sizes[begin, end] = footprint.stage_bytes(*span), footprint.entry_bytes(*span)
        return self._sizes[begin, end]


def _may_pass_by(graph: Graph) -> bool:
    """Check for stages between a tensor's maker and reader."""
    makers = {name: operator.group for operator in graph.operators for name in operator.outputs}
    reads = ((operator.group, name) for operator in graph.operators for name in operator.inputs)
    last = len(graph.group_ends) - 1
    return any(group > makers.get(name, -1) + 1 for group, name in reads) or any(
        makers.get(spec.name, -1) != last for spec in graph.outputs
    )
