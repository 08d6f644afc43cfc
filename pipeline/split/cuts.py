"""Legal cuts of a graph, their crossing tensors and their names."""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import PlanError, near
from pipeline.split.graph import Graph

_PART = re.compile(r"(.+):[a-z]\w*", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Cut:
    """A position where a graph may be divided."""

    position: int
    """Number of operators in front of it."""
    after: str
    """Name of the last of these operators."""
    crossing: tuple[TensorSpec, ...]
    """Tensors made in front of it and read behind it; model inputs do not cross, each stage gets its own."""

    @property
    def nbytes(self) -> int:
        """Bytes per frame across the cut."""
        return sum(spec.nbytes for spec in self.crossing)


def legal_cuts(graph: Graph) -> list[Cut]:
    """Return all cuts between fused groups, in order."""
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
    """Return the crossing bytes of all legal cuts, without tensors' names."""
    return _crossing_sums(graph, lambda spec: spec.nbytes)


def crossing_counts(graph: Graph) -> list[int]:
    """Return how many tensors cross every legal cut, in order."""
    return _crossing_sums(graph, lambda _: 1)


def _crossing_sums(graph: Graph, amount: Callable[[TensorSpec], int]) -> list[int]:
    # By how much the sum changes at each position: one pass, where lists of what is alive grow with both.
    change = [0] * (len(graph.operators) + 2)
    last_use = _last_uses(graph)
    for index, operator in enumerate(graph.operators):
        for name in operator.outputs:
            if last_use.get(name, -1) > index:
                change[index + 1] += amount(graph.tensors[name])
                change[last_use[name] + 1] -= amount(graph.tensors[name])
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
    """Return cuts by tensor, operator or position as sorted positions.

    A name inside a fused group stands for the end of that group, and a former part of an operator for the operator.
    Raises `PlanError` if a name is unknown, a position is not a legal cut, or two cuts are the same.
    """
    return _different((_position(graph, cut), cut) for cut in cuts)


def positions_anywhere(graph: Graph, cuts: Iterable[str | int]) -> list[int]:
    """Return positions as `resolve`, also inside groups.

    A name stands for just behind its operator. Raises `PlanError` if a name is unknown, a stage would be empty, or two
    cuts are the same.
    """
    return _different((_anywhere(graph, cut), cut) for cut in cuts)


def _different(cuts: Iterable[tuple[int, str | int]]) -> list[int]:
    positions: dict[int, str | int] = {}
    for position, cut in cuts:
        if position in positions:
            raise PlanError(
                f"cuts {positions[position]!r} and {cut!r} are at the same place ({position}); give one of them"
            )
        positions[position] = cut
    return sorted(positions)


def _position(graph: Graph, cut: str | int) -> int:
    operators = operators_by_name(graph)
    cut = _present_name(cut, operators)
    # Names first: a tensor may be called "2".
    if isinstance(cut, str) and cut in operators:
        return _end(graph, cut, graph.operators[operators[cut]].group)
    return _legal(graph, _number(graph, cut, operators))


def _anywhere(graph: Graph, cut: str | int) -> int:
    operators = operators_by_name(graph)
    cut = _present_name(cut, operators)
    position = operators[cut] + 1 if isinstance(cut, str) and cut in operators else _number(graph, cut, operators)
    if not 0 < position < len(graph.operators):
        raise PlanError(f"a cut at {cut!r} would leave a stage empty; there are {len(graph.operators)} operators")
    return position


def _present_name(cut: str | int, operators: Container[str]) -> str | int:
    if not isinstance(cut, str) or cut in operators:
        return cut
    return enclosing_operator(operators, cut) or cut


def enclosing_operator(operators: Container[str], name: str) -> str:
    """Return the operator with a former part, such as ``conv:astype3``.

    The name is empty if there is none.  Quantised operators once had such parts, which earlier plans and cuts name.
    """
    while match := _PART.fullmatch(name):
        name = match[1]
        if name in operators:
            return name
    return ""


def _number(graph: Graph, cut: str | int, names: Iterable[str]) -> int:
    """Return a cut's stated position; raise `PlanError` for unknown names."""
    if not isinstance(cut, str):
        return _check_integer(cut)
    # What has more digits is no position, and Python refuses to read it.
    if cut.isdecimal() and len(cut) < 10:
        return int(cut)
    if graph.aliases.get(cut, cut) in {spec.name for spec in graph.inputs}:
        raise PlanError(f"{cut!r} is a model input; a cut there would leave the first stage empty")
    raise PlanError(f"unknown cut {cut!r}{near(cut, names) or '; list the cuts with soc-pipeline inspect'}")


def operators_by_name(graph: Graph) -> dict[str, int]:
    """Return operators' indices by their names, tensors' and folded names."""
    # Aliases first and operators last in the union: the model's present names win over those that were folded away.
    names = {operator.name: index for index, operator in enumerate(graph.operators)}
    names.update({name: index for index, operator in enumerate(graph.operators) for name in operator.outputs})
    return {alias: names[target] for alias, target in graph.aliases.items() if target in names} | names


def _end(graph: Graph, name: str, group: int) -> int:
    if group == len(graph.group_ends) - 1:
        raise PlanError(
            f"a cut at {name!r} would leave the last stage empty{_fuse_hint(graph, name)}; choose one further in front"
        )
    return graph.group_ends[group]


def _fuse_hint(graph: Graph, name: str) -> str:
    if operators_by_name(graph)[name] == len(graph.operators) - 1:
        return ""
    return (
        ", since it is fused with all that follows it; allow cuts inside of fused groups (allow_unfused=True, "
        "--allow-unfused)"
    )


def _check_integer(cut: object) -> int:
    # True is an integer to Python, and no position to anybody.
    if isinstance(cut, bool) or not isinstance(cut, numbers.Integral):
        raise PlanError(f"{cut!r} is not a cut; give the name of a tensor or an operator, or a position")
    return int(cut)


def _legal(graph: Graph, position: int) -> int:
    legal = graph.group_ends[:-1]
    if position not in legal:
        nearest = sorted(legal, key=lambda candidate: abs(candidate - position))[:2]
        hint = f"the nearest are {' and '.join(map(str, sorted(nearest)))}" if nearest else "this graph has none"
        is_position = 0 < position < len(graph.operators)
        allow = "; allow_unfused=True or --allow-unfused allows cuts inside of fused groups" if is_position else ""
        raise PlanError(f"position {position} is not a legal cut; {hint}{allow}")
    return position


def bounds(graph: Graph, positions: Sequence[int]) -> list[tuple[int, int]]:
    """Return the range of operators of each stage."""
    edges = [0, *positions, len(graph.operators)]
    return list(pairwise(edges))
