"""Islands: groups of operators for LiteRT, one TFLite file each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipeline.frontends import grouping
from pipeline.frontends.tflite.flatbuffer import TfliteGraph, TfliteOperator
from pipeline.frontends.tflite.importer import IslandNode
from pipeline.frontends.tflite.island_writer import IslandWriter
from pipeline.frontends.tflite.operators.converter import STATE
from pipeline.model.imported_model import Island

STATE_KINDS = frozenset({
    "ASSIGN_VARIABLE", "CALL_ONCE", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE",
    "READ_VARIABLE", "VAR_HANDLE",
})  # fmt: skip
"""Kinds with named shared state, all in one island."""


def replace_by_islands(
    graph: TfliteGraph,
    operators: Sequence[TfliteOperator],
    reasons: Mapping[int, str],
) -> tuple[list[TfliteOperator | IslandNode], list[Island]]:
    """Return the nodes to import in order, and their islands.

    Parameters
    ----------
    graph : TfliteGraph
    operators : sequence of TfliteOperator
        All that an output depends on.
    reasons : mapping of int to str
        From places in `operators` to the reason, of those that have to be in an island.
    """
    links = [_links(operator) for operator in operators]
    ties = list(find_ties(operators))
    seeds = itertools.chain(reasons, *ties)

    def is_open(number: int) -> bool:
        return not graph.tensors[number].in_frames

    groups = grouping.find_groups(links, seeds, is_open, ties)
    writer = IslandWriter(graph) if groups else None
    nodes: list[TfliteOperator | IslandNode] = []
    islands = []
    group_of = {number: group for group in groups for number in group}
    outputs = {tensor.number for tensor in graph.outputs}
    results = dict(zip([group[0] for group in groups], grouping.find_results(links, groups), strict=True))
    for position, operator in enumerate(operators):
        group = group_of.get(position)
        if group is None:
            nodes.append(operator)
        elif position == group[0] and writer is not None:
            members_of_group = [operators[number] for number in group]
            node = writer.write(members_of_group, outputs | results[position])
            if node.outputs:
                nodes.append(node)
                kinds = tuple(map(_describe, members_of_group))
                keeps_state = writer.keeps_state(members_of_group)
                islands.append(Island(node.outputs[0].name, kinds, _reason(group, reasons), keeps_state=keeps_state))
    return [nodes[number] for number in grouping.sort_topologically([_links(node) for node in nodes])], islands


def find_ties(operators: Sequence[TfliteOperator]) -> Iterator[list[int]]:
    """Yield the positions of operators with shared state."""
    if states := [number for number, operator in enumerate(operators) if operator.kind in STATE_KINDS]:
        yield states
    readers: dict[int, list[int]] = {}
    for number, operator in enumerate(operators):
        for tensor in operator.operands:
            if tensor.is_variable:
                readers.setdefault(tensor.number, []).append(number)
    yield from readers.values()


def _reason(group: Iterable[int], reasons: Mapping[int, str]) -> str:
    return next((reasons[number] for number in group if number in reasons), STATE)


def _describe(operator: TfliteOperator) -> str:
    return f"{operator.kind} ({operator.outputs[0].name})" if operator.outputs else operator.kind


def _links(node: TfliteOperator | IslandNode) -> grouping.Links:
    operands = node.inputs if isinstance(node, IslandNode) else node.operands
    return grouping.Links(
        tuple(tensor.number for tensor in operands if not tensor.is_constant),
        tuple(tensor.number for tensor in node.outputs),
    )
