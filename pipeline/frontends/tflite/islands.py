"""Islands: groups of operators for LiteRT, one TFLite file each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

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

    An output depends on all of `operators`; `reasons` are by position of those that have to be in an island.
    """
    ties = list(find_ties(operators))
    outputs = {tensor.number for tensor in graph.outputs}
    writer = IslandWriter(graph)
    islands = []

    def write(group: list[int], results: set[int]) -> IslandNode | None:
        members = [operators[number] for number in group]
        node = writer.write(members, outputs | results)
        if not node.outputs:
            return None
        reason = next((reasons[number] for number in group if number in reasons), STATE)
        kinds, keeps_state = tuple(map(_describe, members)), writer.keeps_state(members)
        islands.append(Island(node.outputs[0].name, kinds, reason, keeps_state=keeps_state))
        return node

    nodes = grouping.replace_groups(
        operators,
        _links,
        seeds=itertools.chain(reasons, *ties),
        is_open=lambda number: not graph.tensors[number].in_frames,
        write=write,
        ties=ties,
    )
    return nodes, islands


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


def _describe(operator: TfliteOperator) -> str:
    return f"{operator.kind} ({operator.outputs[0].name})" if operator.outputs else operator.kind


def _links(node: TfliteOperator | IslandNode) -> grouping.Links:
    operands = node.inputs if isinstance(node, IslandNode) else node.operands
    return grouping.Links(
        tuple(tensor.number for tensor in operands if not tensor.is_constant),
        tuple(tensor.number for tensor in node.outputs),
    )
