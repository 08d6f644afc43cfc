"""Groups of operators for islands, in any format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pipeline.errors import ModelError


class Links(NamedTuple):
    """Tensors read and made by an operator, by any names."""

    reads: tuple[Any, ...]
    makes: tuple[Any, ...]


def replace_groups(  # noqa: PLR0913 - all but the first two by keyword
    nodes: Sequence[Any],
    links: Callable[[Any], Links],
    *,
    seeds: Iterable[int],
    is_open: Callable[[Any], bool],
    write: Callable[[list[int], set[Any]], Any],
    ties: Iterable[Collection[int]] = (),
) -> list[Any]:
    """Return islands as sorted operator numbers, without cycles between them.

    No island depends on itself by way of operators outside. Each operator is one of its own where it can be, so that a
    model may be cut there; those that a stage has side by side become one when it is built, see
    `pipeline.split.island_merging`. Each of `nodes` comes after those that it reads of, and `links` also takes an
    island's. `seeds` have to be in islands, each of the `ties` in one. A tensor that `is_open` may not leave an island:
    frames have tensors of fixed shapes only. `write` takes the numbers of an island's operators and the tensors that
    others read of it, and returns its node; None if it makes nothing.
    """
    all_links = [links(node) for node in nodes]
    groups = _join(all_links, _grow(all_links, seeds, is_open), is_open, ties)
    results = find_results(all_links, groups)
    islands = {group[0]: write(group, names) for group, names in zip(groups, results, strict=True)}
    outsiders = set(range(len(nodes))).difference(*groups)
    parts = [islands.get(n, node) for n, node in enumerate(nodes) if n in outsiders or islands.get(n) is not None]
    return [parts[number] for number in sort_topologically([links(part) for part in parts])]


def find_results(nodes: Sequence[Links], groups: Sequence[Collection[int]]) -> list[set[Any]]:
    """Return each group's tensors that outside operators read."""
    owners = {number: group_number for group_number, group in enumerate(groups) for number in group}
    makers = {name: group_number for number, group_number in owners.items() for name in nodes[number].makes}
    results: list[set[Any]] = [set() for _ in groups]
    for number, node in enumerate(nodes):
        for name in node.reads:
            maker_group = makers.get(name)
            if maker_group is not None and owners.get(number) != maker_group:
                results[maker_group].add(name)
    return results


def _grow(nodes: Sequence[Links], seeds: Iterable[int], is_open: Callable[[Any], bool]) -> set[int]:
    """Return the operators in islands: seeds, and neighbours by open tensors."""
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


def _join(
    nodes: Sequence[Links],
    members: Collection[int],
    is_open: Callable[[Any], bool],
    ties: Iterable[Collection[int]],
) -> list[list[int]]:
    makers = _makers(nodes)
    edges = _open_edges(nodes, makers, members, is_open)
    groups = _connect(members, [*edges, *((tie[0], member) for tie in map(list, ties) for member in tie[1:])])
    while True:
        closures = [_closure(nodes, makers, group) for group in groups]
        # What lies between members is one as well, and may belong to another group.
        all_members = set().union(*closures) if closures else set()
        edges = _open_edges(nodes, makers, all_members, is_open)
        links = [(numbers[0], member) for numbers in map(sorted, closures) for member in numbers[1:]]
        joined_groups = _connect(all_members, [*edges, *links])
        if joined_groups == groups:
            return groups
        groups = joined_groups


def find_neighbours(nodes: Sequence[Links], members: Collection[int]) -> list[list[int]]:
    """Return members grouped for merging, in order, single ones included.

    Along each way through the operators, members and others take turns in epochs: members have odd ones, others even
    ones, and none has an earlier epoch than what it reads of. Members of one epoch can wait for all that any of them
    reads, as nothing of that depends on one of them. Each node comes after those that it reads of.
    """
    makers = _makers(nodes)
    epochs: list[int] = []
    for number, node in enumerate(nodes):
        newest_epoch = max((epochs[makers[name]] for name in node.reads if name in makers), default=0)
        epochs.append(newest_epoch + ((newest_epoch % 2 == 1) != (number in members)))
    edges = [
        (number, makers[name])
        for number in members
        for name in nodes[number].reads
        if makers.get(name) in members and epochs[makers[name]] == epochs[number]
    ]
    return _connect(members, edges)


def _open_edges(
    nodes: Sequence[Links], makers: dict[Any, int], members: Collection[int], is_open: Callable[[Any], bool]
) -> list[tuple[int, int]]:
    """Return the members' pairs connected by open tensors."""
    return [
        (number, makers[name])
        for number in members
        for name in nodes[number].reads
        if makers.get(name) in members and is_open(name)
    ]


def _connect(members: Collection[int], edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the sorted connected components, by their first members."""
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
    """Return the members, and all operators on paths between them."""
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


def sort_topologically(nodes: Sequence[Links]) -> Iterator[int]:
    """Yield operator numbers in topological order, stable; `ModelError` if operators read each other's results."""
    makers = _makers(nodes)
    yielded_numbers: set[int] = set()
    for start in range(len(nodes)):
        stack = [start]
        # Operators that wait for what they read: from the start to the top of the stack.
        waiting: set[int] = set()
        while stack:
            number = stack[-1]
            makers_read = [makers[name] for name in nodes[number].reads if name in makers]
            open_ones = [maker for maker in makers_read if maker not in yielded_numbers and maker != number]
            if number in yielded_numbers or not open_ones:
                stack.pop()
                if number not in yielded_numbers:
                    yielded_numbers.add(number)
                    yield number
            elif not waiting.isdisjoint(open_ones):
                raise ModelError(f"operators read each other's results: one of them makes {nodes[number].makes[0]!r}")
            else:
                waiting.add(number)
                stack += reversed(open_ones)


def _makers(nodes: Sequence[Links]) -> dict[Any, int]:
    return {name: number for number, node in enumerate(nodes) for name in node.makes}


def _readers(nodes: Sequence[Links]) -> dict[Any, list[int]]:
    readers: dict[Any, list[int]] = {}
    for number, node in enumerate(nodes):
        for name in node.reads:
            readers.setdefault(name, []).append(number)
    return readers
