"""Groups of operators that are to become islands, whatever the model's format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

PART_OPERATORS = 8
"""Of a large island: a crossing costs some 10 us and copies, which are little beside so many."""


class Links(NamedTuple):
    """Tensors that one operator reads and makes, by names of any kind.

    Attributes
    ----------
    reads, makes : tuple
    """

    reads: tuple[Any, ...]
    makes: tuple[Any, ...]


def grow(nodes: Sequence[Links], seeds: Iterable[int], is_open: Callable[[Any], bool]) -> set[int]:
    """Return the operators in islands: those that have to be, and those that open tensors connect with them.

    Parameters
    ----------
    nodes : sequence of Links
    seeds : iterable of int
        Those that have to be.
    is_open : callable
        Whether a tensor may not leave an island: frames have tensors of fixed shapes only.
    """
    makers, readers = _makers(nodes), _readers(nodes)
    members = set(seeds)
    pending = list(members)
    while pending:
        node = nodes[pending.pop()]
        linked_nodes = [number for name in node.makes if is_open(name) for number in readers.get(name, ())]
        linked_nodes += [makers[name] for name in node.reads if name in makers and is_open(name)]
        for number in linked_nodes:
            if number not in members:
                members.add(number)
                pending.append(number)
    return members


def join(nodes: Sequence[Links], members: Collection[int], ties: Iterable[Collection[int]] = ()) -> list[list[int]]:
    """Return islands as numbers of operators, in order; none depends on itself by way of operators outside.

    Neighbours are one, because each crossing costs a copy.

    Parameters
    ----------
    nodes : sequence of Links
        In an order in which each comes behind those that it reads of.
    members : collection of int
        The operators that are in islands.
    ties : iterable of collections of int
        Members that have to be in one island.
    """
    makers = _makers(nodes)
    edges = [
        (number, makers[name]) for number in members for name in nodes[number].reads if makers.get(name) in members
    ]
    groups = _connect(members, [*edges, *((tie[0], other) for tie in map(list, ties) for other in tie[1:])])
    while True:
        closures = [_closure(nodes, makers, group) for group in groups]
        # What lies between members is one as well, and may belong to another group, or stand beside one.
        all_members = set().union(*closures) if closures else set()
        edges = [
            (number, makers[name])
            for number in all_members
            for name in nodes[number].reads
            if makers.get(name) in all_members
        ]
        links = [(numbers[0], other) for numbers in map(sorted, closures) for other in numbers[1:]]
        joined_groups = _connect(all_members, [*edges, *links])
        if joined_groups == groups:
            return groups
        groups = joined_groups


def _connect(members: Collection[int], edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the connected components, each in order, by their first members."""
    parents = {number: number for number in members}

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = number = parents[parents[number]]
        return number

    for first, second in edges:
        parents[root(second)] = root(first)
    groups: dict[int, list[int]] = {}
    for number in sorted(members):
        groups.setdefault(root(number), []).append(number)
    return list(groups.values())


def _closure(nodes: Sequence[Links], makers: dict[Any, int], members: Collection[int]) -> set[int]:
    """Return the members with all that lies on a way from one to another."""
    first, last = min(members), max(members)
    descendants = set(members)
    for number in range(first, last + 1):
        if any(makers.get(name, -1) in descendants for name in nodes[number].reads):
            descendants.add(number)
    ancestors = set(members)
    for number in range(last, first - 1, -1):
        if number in ancestors:
            ancestors.update(makers[name] for name in nodes[number].reads if makers.get(name, -1) in descendants)
    return ancestors


def divide(
    nodes: Sequence[Links], group: Sequence[int], is_open: Callable[[Any], bool], ties: Iterable[Collection[int]] = ()
) -> list[list[int]]:
    """Return a group in parts of some operators each, so that a model may be cut between them.

    Between two parts is at most one tensor, which is none that `is_open`; what is tied stays in one part.
    """
    spans = [(min(tie), max(tie)) for tie in ties if tie]
    last_reader = {name: number for number in group for name in nodes[number].reads}
    parts: list[list[int]] = [[]]
    crossing: set[Any] = set()
    for place, number in enumerate(group):
        parts[-1].append(number)
        crossing.update(name for name in nodes[number].makes if last_reader.get(name, -1) > number)
        crossing = {name for name in crossing if last_reader[name] > number}
        is_large = len(parts[-1]) >= PART_OPERATORS and len(group) - place > PART_OPERATORS // 2
        is_narrow = len(crossing) <= 1 and not any(map(is_open, crossing))
        if is_large and is_narrow and not any(first <= number < last for first, last in spans):
            parts.append([])
    return parts


def sort_topologically(nodes: Sequence[Links]) -> Iterator[int]:
    """Yield the numbers of operators so that each comes after those it reads of, otherwise in their order."""
    makers = _makers(nodes)
    yielded_numbers: set[int] = set()
    for start in range(len(nodes)):
        stack = [start]
        while stack:
            number = stack[-1]
            makers_read = [makers[name] for name in nodes[number].reads if name in makers]
            open_ones = [maker for maker in makers_read if maker not in yielded_numbers and maker != number]
            if number in yielded_numbers or not open_ones:
                stack.pop()
                if number not in yielded_numbers:
                    yielded_numbers.add(number)
                    yield number
            else:
                stack += reversed(open_ones)


def _makers(nodes: Sequence[Links]) -> dict[Any, int]:
    return {name: number for number, node in enumerate(nodes) for name in node.makes}


def _readers(nodes: Sequence[Links]) -> dict[Any, list[int]]:
    readers: dict[Any, list[int]] = {}
    for number, node in enumerate(nodes):
        for name in node.reads:
            readers.setdefault(name, []).append(number)
    return readers
