"""Cuts inside fused groups on request: divided groups and their costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.core.plan.plan import Plan
from pipeline.errors import PlanError
from pipeline.split.cuts import positions_anywhere
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator, fused_with
from pipeline.split.planning.problem.group_work import GroupWork, groups


@dataclass(frozen=True)
class DividedGroup:
    """A group divided by cuts, with the bytes saved undivided."""

    cuts: tuple[str, ...]
    """Operators behind which it is cut."""
    operators: int
    kernels: int
    """Number of further kernels for each frame."""
    nbytes: int
    """Number of further bytes per frame that the kernels write to memory and read again."""

    def __str__(self) -> str:
        """Return the cost as a sentence."""
        kernels = f"{self.kernels} kernel{'s' if self.kernels != 1 else ''} more per frame"
        names = ", ".join(map(repr, self.cuts))
        return (
            f"The cut{'s' if len(self.cuts) > 1 else ''} behind {names} divide{'' if len(self.cuts) > 1 else 's'} a "
            f"fused group of {self.operators} operators: {kernels}, and {self.nbytes} bytes more written to memory and "
            "read again."
        )


def unfuse(graph: Graph, cuts: Sequence[str | int]) -> Graph:
    """Return the graph whose groups end at each cut as well.

    Raises `PlanError` if a name is unknown, a stage would be empty, or two cuts are the same.

    `cuts`: names of tensors or operators, each of which stands for the position behind exactly this one, or positions.
    """
    return _divide_groups(graph, [cut for cut in positions_anywhere(graph, cuts) if cut not in graph.group_ends])


def as_planned(graph: Graph, plan: Plan) -> Graph:
    """Return the graph with groups divided as the plan's; `PlanError` if the graph has no such operators."""
    index = {operator.name: number for number, operator in enumerate(graph.operators)}
    if unknown := [name for name in plan.unfused if name not in index]:
        raise PlanError(f"the plan cuts behind {unknown[0]!r}, which {graph.name!r} does not have; plan again")
    return _divide_groups(graph, [index[name] + 1 for name in plan.unfused])


def _divide_groups(graph: Graph, positions: Sequence[int]) -> Graph:
    unfused_positions = sorted({*positions, *graph.unfused})
    if tuple(unfused_positions) == graph.unfused:
        return graph
    ends = {*graph.group_ends, *unfused_positions}
    operators: list[Operator] = []
    number = 0
    for position, operator in enumerate(graph.operators, start=1):
        operators.append(replace(operator, group=number))
        number += position in ends
    return replace(graph, operators=tuple(operators), unfused=tuple(unfused_positions))


def divided_groups(graph: Graph) -> Iterator[DividedGroup]:
    """Yield the divided groups in order."""
    run: list[list[Operator]] = []
    for end, group in zip(graph.group_ends, groups(graph), strict=True):
        run.append(group)
        # A group ends where the compiler's own does; up to there, these are pieces of one.
        if end not in graph.unfused:
            if len(run) > 1:
                yield _cost(graph, run)
            run = []


def _cost(graph: Graph, pieces: Sequence[Sequence[Operator]]) -> DividedGroup:
    operators = [operator for piece in pieces for operator in piece]
    return DividedGroup(
        cuts=tuple(piece[-1].name for piece in pieces[:-1]),
        operators=len(operators),
        kernels=sum(_kernels(graph, piece) for piece in pieces) - _kernels(graph, operators),
        nbytes=sum(_traffic(graph, piece) for piece in pieces) - _traffic(graph, operators),
    )


def _kernels(graph: Graph, operators: Sequence[Operator]) -> int:
    calls = [call for operator in operators for call in operator.calls]
    return len(set(fused_with(calls, _read_outside(graph, operators), frozenset())))


def _traffic(graph: Graph, operators: Sequence[Operator]) -> int:
    """Return a group's bytes, outputs read inside included."""
    names_read = {name for operator in operators for name in operator.inputs}
    # It takes what is made and read inside for no traffic, also if it leaves as well.
    inner_results = names_read & {name for operator in operators for name in operator.outputs}
    crossing_names = inner_results & _read_outside(graph, operators)
    return GroupWork.of(graph, operators).traffic + sum(graph.tensors[name].nbytes for name in crossing_names)


def _read_outside(graph: Graph, operators: Sequence[Operator]) -> set[str]:
    names = {operator.name for operator in operators}
    read = {name for operator in graph.operators if operator.name not in names for name in operator.inputs}
    return read | {spec.name for spec in graph.outputs}
