"""Legal cuts of a graph, the tensors that cross them, and the names that users give them."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.errors import PlanError, near
from pipeline.plans import TensorSpec
from pipeline.split.graph import Graph


@dataclass(frozen=True)
class Cut:
    """A position where a graph may be divided.

    Attributes
    ----------
    position : int
        Number of operators in front of it.
    after : str
        Name of the last of these operators.
    crossing : tuple of TensorSpec
        Tensors made in front of it and read behind it; model inputs do not cross, each stage gets its own.
    """

    position: int
    after: str
    crossing: tuple[TensorSpec, ...]

    @property
    def nbytes(self) -> int:
        """Bytes per frame that have to travel."""
        return sum(spec.nbytes for spec in self.crossing)


def legal_cuts(graph: Graph) -> list[Cut]:
    """Return every cut that separates no operators which the compiler would fuse, in order."""
    last_use = _last_uses(graph)
    ends = set(graph.group_ends[:-1])
    alive: dict[str, TensorSpec] = {}
    cuts = []
    for index, operator in enumerate(graph.operators):
        alive.update({name: graph.tensors[name] for name in operator.outputs if last_use.get(name, -1) > index})
        for name in operator.inputs:
            if last_use[name] == index:
                alive.pop(name, None)
        if index + 1 in ends:
            cuts.append(Cut(index + 1, operator.name, tuple(alive.values())))
    return cuts


def crossing_bytes(graph: Graph) -> list[int]:
    """Return the crossing bytes of every legal cut, in order, without listing the tensors."""
    change = [0] * (len(graph.operators) + 2)
    last_use = _last_uses(graph)
    for index, operator in enumerate(graph.operators):
        for name in operator.outputs:
            if last_use.get(name, -1) > index:
                change[index + 1] += graph.tensors[name].nbytes
                change[last_use[name] + 1] -= graph.tensors[name].nbytes
    ends = set(graph.group_ends[:-1])
    total, result = 0, []
    for position, difference in enumerate(change):
        total += difference
        if position in ends:
            result.append(total)
    return result


def _last_uses(graph: Graph) -> dict[str, int]:
    return {name: index for index, operator in enumerate(graph.operators) for name in operator.inputs}


def resolve(graph: Graph, cuts: Iterable[str | int]) -> list[int]:
    """Return the positions of cuts given by tensor name, operator name, or position, in ascending order.

    A name inside a fused group stands for the end of that group.

    Raises
    ------
    PlanError
        If a name is unknown, a position is not a legal cut, or two cuts are the same.
    """
    positions: dict[int, str | int] = {}
    for cut in cuts:
        position = _position(graph, cut)
        if position in positions:
            raise PlanError(
                f"cuts {positions[position]!r} and {cut!r} are at the same place ({position}); give one of them"
            )
        positions[position] = cut
    return sorted(positions)


def _position(graph: Graph, cut: str | int) -> int:
    if not isinstance(cut, str):
        return _legal(graph, _whole(cut))
    groups = _groups_by_name(graph)
    if cut in groups:
        return _end(graph, cut, groups[cut])
    if cut.isdecimal():
        return _legal(graph, int(cut))
    if graph.aliases.get(cut, cut) in {spec.name for spec in graph.inputs}:
        raise PlanError(f"{cut!r} is a model input; a cut there would leave the first stage empty")
    raise PlanError(f"unknown cut {cut!r}{near(cut, groups) or '; list the cuts with soc-pipeline inspect'}")


def _groups_by_name(graph: Graph) -> dict[str, int]:
    names = {each.name: each.group for each in graph.operators}
    names.update({name: each.group for each in graph.operators for name in each.outputs})
    return {alias: names[target] for alias, target in graph.aliases.items() if target in names} | names


def _end(graph: Graph, name: str, group: int) -> int:
    if group == len(graph.group_ends) - 1:
        raise PlanError(f"a cut at {name!r} would leave the last stage empty; choose one further in front")
    return graph.group_ends[group]


def _whole(cut: object) -> int:
    if isinstance(cut, bool) or not isinstance(cut, numbers.Integral):
        raise PlanError(f"{cut!r} is not a cut; give the name of a tensor or an operator, or a position")
    return int(cut)


def _legal(graph: Graph, position: int) -> int:
    legal = graph.group_ends[:-1]
    if position not in legal:
        nearest = sorted(legal, key=lambda each: abs(each - position))[:2]
        hint = f"the nearest are {' and '.join(map(str, sorted(nearest)))}" if nearest else "this graph has none"
        raise PlanError(f"position {position} is not a legal cut; {hint}")
    return position


def bounds(graph: Graph, positions: Sequence[int]) -> list[tuple[int, int]]:
    """Return the range of operators of each stage."""
    edges = [0, *positions, len(graph.operators)]
    return list(pairwise(edges))
