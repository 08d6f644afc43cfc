"""Orders: topological orders of a graph for cuts, and its reordering.

A cut divides a graph into a downset (with each fused group all that it reads) and the rest.  One order has one downset
of each size; over all orders, groups of parallel branches may lie on either side of a cut in any combination.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.core.plan.plan import Plan
from pipeline.errors import PlanError
from pipeline.split.graph import Graph


@dataclass(frozen=True)
class GroupDag:
    """Reads between the fused groups of a graph."""

    predecessors: tuple[tuple[int, ...], ...]
    successors: tuple[tuple[int, ...], ...]
    """Neighbours of each group, in ascending order."""
    tensors: tuple[tuple[int, int, tuple[int, ...]], ...]
    """Maker, bytes and readers of each tensor that crosses borders between groups."""

    @staticmethod
    def of(graph: Graph) -> GroupDag:
        """Return the groups of a graph."""
        makers = {name: operator.group for operator in graph.operators for name in operator.outputs}
        readers: dict[str, set[int]] = {}
        for operator in graph.operators:
            for name in operator.inputs:
                if makers.get(name, operator.group) != operator.group:
                    readers.setdefault(name, set()).add(operator.group)
        count = len(graph.group_ends)
        edges = {(makers[name], group) for name, groups in readers.items() for group in groups}
        predecessors: list[list[int]] = [[] for _ in range(count)]
        successors: list[list[int]] = [[] for _ in range(count)]
        for maker, reader in sorted(edges):
            predecessors[reader].append(maker)
            successors[maker].append(reader)
        tensors = tuple((makers[name], graph.tensors[name].nbytes, tuple(groups)) for name, groups in readers.items())
        return GroupDag(tuple(map(tuple, predecessors)), tuple(map(tuple, successors)), tensors)

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.predecessors)

    @cached_property
    def is_chain(self) -> bool:
        """True if only one order exists: each group reads its predecessor."""
        return all(group - 1 in predecessors for group, predecessors in enumerate(self.predecessors) if group)

    def orders(self, begin: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
        """Yield all topological orders with these first groups."""
        if len(begin) == len(self):
            yield begin
        for group, reads in enumerate(self.predecessors):
            if group not in begin and all(maker in begin for maker in reads):
                yield from self.orders((*begin, group))

    def downsets(self, limit: int) -> list[int] | None:
        """Return all downsets as bits, ascending; None beyond `limit`.

        No set is before one that it contains.
        """
        masks = self._needs
        ready = sum(1 << group for group, mask in enumerate(masks) if not mask)
        level, result = {0: ready}, [0]
        while level:
            larger: dict[int, int] = {}
            for downset, ready in level.items():
                for group in set_bits(ready):
                    extended = downset | 1 << group
                    if extended not in larger:
                        enabled = [
                            successor for successor in self.successors[group] if not masks[successor] & ~extended
                        ]
                        larger[extended] = (ready & ~(1 << group)) | sum(1 << successor for successor in enabled)
            result += larger
            if len(result) > limit:
                return None
            level = larger
        return result

    def coarse_downsets(self, limit: int) -> list[int]:
        """Return all downsets with coarse branches; none beyond `limit`."""
        chains = self._chains()
        for step in range(2, max(map(len, chains)) + 1):
            chunks = [chain[start : start + step] for chain in chains for start in range(0, len(chain), step)]
            number = {group: index for index, chunk in enumerate(chunks) for group in chunk}
            edges = {
                (number[group], number[successor])
                for chunk in chunks
                for group in chunk
                for successor in self.successors[group]
            }
            predecessors: list[list[int]] = [[] for _ in chunks]
            successors: list[list[int]] = [[] for _ in chunks]
            for maker, reader in sorted(edge for edge in edges if edge[0] != edge[1]):
                predecessors[reader].append(maker)
                successors[maker].append(reader)
            downsets = GroupDag(tuple(map(tuple, predecessors)), tuple(map(tuple, successors)), ()).downsets(limit)
            if downsets is not None:
                masks = [sum(1 << group for group in chunk) for chunk in chunks]
                return [sum(masks[index] for index in set_bits(downset)) for downset in downsets]
        return []

    def _chains(self) -> list[list[int]]:
        """Return the groups as runs of sole readers of each other."""
        chains: dict[int, list[int]] = {}
        for group, predecessors in enumerate(self.predecessors):
            is_next = len(predecessors) == 1 and len(self.successors[predecessors[0]]) == 1
            chain = chains.pop(predecessors[0]) if is_next else []
            chains[group] = [*chain, group]
        return list(chains.values())

    def around(self, downsets: Sequence[int], limit: int) -> list[int]:
        """Return these downsets and about `limit` neighbours.

        The neighbours have more or less of one branch, then of two.
        """
        result: dict[int, None] = {}
        for downset in downsets:
            reached, pending = {downset: None}, deque([downset])
            while pending and len(reached) * len(downsets) < limit:
                current = pending.popleft()
                for group in range(len(self)):
                    steps = [neighbour for neighbour in self._along(current, group) if neighbour not in reached]
                    reached |= dict.fromkeys(steps)
                    pending += steps
            result |= reached
        return list(result)

    def _along(self, downset: int, group: int | None) -> Iterator[int]:
        """Yield a downset's changes along one group's branch."""
        leaves = group is not None and bool(downset >> group & 1)
        needs, onwards = (self._readers, self.predecessors) if leaves else (self._needs, self.successors)
        while group is not None and not needs[group] & (downset if leaves else ~downset):
            downset ^= 1 << group
            yield downset
            group = next(
                (neighbour for neighbour in onwards[group] if not needs[neighbour] & (downset if leaves else ~downset)),
                None,
            )

    @cached_property
    def _needs(self) -> list[int]:
        return [sum(1 << predecessor for predecessor in groups) for groups in self.predecessors]

    @cached_property
    def _readers(self) -> list[int]:
        return [sum(1 << successor for successor in groups) for groups in self.successors]

    def prefixes(self, order: Sequence[int]) -> list[int]:
        """Return an order's downsets, from empty to all groups."""
        result = [0]
        for group in order:
            result.append(result[-1] | 1 << group)
        return result

    def membership(self, downsets: Sequence[int]) -> NDArray[np.bool_]:
        """Return the groups of downsets, shape (downsets, groups)."""
        width = -(-len(self) // 8)
        data = b"".join(downset.to_bytes(width, "little") for downset in downsets)
        rows = np.frombuffer(data, np.uint8).reshape(len(downsets), width)
        return np.unpackbits(rows, axis=1, bitorder="little")[:, : len(self)].astype(bool)

    def crossing(self, members: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return bytes and tensors read outside each downset, shape (downsets,)."""
        total, counts = np.zeros(len(members)), np.zeros(len(members))
        for maker, nbytes, readers in self.tensors:
            crosses = members[:, maker] & ~members[:, list(readers)].all(axis=1)
            total += nbytes * crosses
            counts += crosses
        return total, counts

    def order_by(self, keys: Sequence[float], *, backwards: bool = False) -> list[int]:
        """Return the order by the smallest available key.

        With `backwards` it is made from its end, where the largest key that may come last does.
        """
        predecessors, successors = (
            (self.successors, self.predecessors) if backwards else (self.predecessors, self.successors)
        )
        sign = -1 if backwards else 1
        missing = [len(groups) for groups in predecessors]
        heap = [(sign * keys[group], sign * group) for group, count in enumerate(missing) if not count]
        heapq.heapify(heap)
        order = []
        while heap:
            group = sign * heapq.heappop(heap)[1]
            order.append(group)
            for successor in successors[group]:
                missing[successor] -= 1
                if not missing[successor]:
                    heapq.heappush(heap, (sign * keys[successor], sign * successor))
        return order[::-1] if backwards else order

    def depth_first(self, keys: Sequence[float]) -> list[int]:
        """Return the order branch by branch, the smallest key first."""
        missing = [len(predecessors) for predecessors in self.predecessors]
        stack = sorted((group for group, count in enumerate(missing) if not count), key=lambda group: -keys[group])
        order = []
        while stack:
            group = stack.pop()
            order.append(group)
            for successor in self.successors[group]:
                missing[successor] -= 1
            stack += sorted(
                (successor for successor in self.successors[group] if not missing[successor]),
                key=lambda group: -keys[group],
            )
        return order


def set_bits(bits: int) -> Iterator[int]:
    """Yield the numbers of the set bits."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def reorder(graph: Graph, order: Sequence[int]) -> Graph:
    """Return the graph with its groups in another topological order."""
    operators: list[list[int]] = [[] for _ in graph.group_ends]
    for index, operator in enumerate(graph.operators):
        operators[operator.group].append(index)
    arranged = tuple(
        replace(graph.operators[index], group=number)
        for number, group in enumerate(order)
        for index in operators[group]
    )
    return replace(graph, operators=arranged, model_digest=graph.digest)


def as_ordered(graph: Graph, plan: Plan) -> Graph:
    """Return the graph in a plan's order, by default its own, or raise `PlanError`."""
    if not plan.order or plan.order == tuple(operator.name for operator in graph.operators):
        return graph
    groups = {operator.name: operator.group for operator in graph.operators}
    order = list(dict.fromkeys(groups[name] for name in plan.order if name in groups))
    arranged = reorder(graph, order) if len(order) == len(graph.group_ends) else graph
    is_same = plan.order == tuple(operator.name for operator in arranged.operators)
    early = _find_early(arranged) if is_same else None
    if not is_same or early:
        reason = f": {early[0]!r} comes before what makes {early[1]!r}, which it reads" if early else ""
        raise PlanError(f"the plan's order is none in which {graph.name!r} can be computed{reason}; plan again")
    return arranged


def _find_early(graph: Graph) -> tuple[str, str] | None:
    """Return the first operator before its input, with that tensor."""
    tensors = {spec.name for spec in graph.inputs}
    for operator in graph.operators:
        if missing := [name for name in operator.inputs if name not in tensors]:
            return operator.name, missing[0]
        tensors.update(operator.outputs)
    return None
