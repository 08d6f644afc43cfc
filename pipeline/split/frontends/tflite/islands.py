"""Islands: operators that LiteRT computes, each group of them a TFLite file of its own."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.core.optional import require
from pipeline.split.frontends import grouping
from pipeline.split.frontends.tflite.flatbuffer import IDENTIFIER, TfliteGraph, TfliteOperator, TfliteTensor
from pipeline.split.frontends.tflite.importer import IslandNode
from pipeline.split.model import Island

# Fields of options that name another graph of the file.
_SUBGRAPH_FIELDS = (
    "bodySubgraphIndex", "condSubgraphIndex", "decompositionSubgraphIndex", "elseSubgraphIndex", "initSubgraphIndex",
    "subgraph", "thenSubgraphIndex",
)  # fmt: skip

# They share what they keep, so that all of a model's are in one island.
STATE_KINDS = frozenset({
    "ASSIGN_VARIABLE", "CALL_ONCE", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE",
    "READ_VARIABLE", "VAR_HANDLE",
})  # fmt: skip


class IslandWriter:
    """Writes groups of a graph's operators as files.

    Parameters
    ----------
    graph : TfliteGraph
    """

    def __init__(self, graph: TfliteGraph) -> None:
        self._graph = graph
        # The object interface, which LiteRT's package has of just the schema that it reads.
        self._schema = require("ai_edge_litert.schema_py_generated", "litert", "operators that LiteRT computes")

    @functools.cached_property
    def _model(self) -> Any:
        return self._schema.ModelT.InitFromObj(self._schema.Model.GetRootAs(self._graph.content, 0))

    def write(self, operators: Sequence[TfliteOperator], read_elsewhere: Collection[int]) -> IslandNode:
        """Return the node that stands for operators, of which others read some tensors, by number."""
        made = {tensor.number: tensor for operator in operators for tensor in operator.outputs}
        read = {tensor.number: tensor for operator in operators for tensor in operator.operands}
        inputs = [
            tensor for number, tensor in read.items()
            if number not in made and not tensor.is_constant and not tensor.is_variable
        ]  # fmt: skip
        outputs = [tensor for number, tensor in made.items() if number in read_elsewhere]
        name = operators[0].outputs[0].name if operators[0].outputs else outputs[0].name
        source = self._model.subgraphs[0].operators
        numbers = [int(number) for operator in operators for number in _intermediates(source[operator.number])]
        tensors = [*read.values(), *made.values(), *(self._graph.tensors[number] for number in numbers)]
        return IslandNode(name, self._file(operators, tensors, inputs, outputs), inputs, outputs)

    def _file(
        self,
        operators: Sequence[TfliteOperator],
        tensors: Iterable[TfliteTensor],
        inputs: Sequence[TfliteTensor],
        outputs: Sequence[TfliteTensor],
    ) -> bytes:
        """Return a file of operators."""
        import flatbuffers

        source, schema = self._model.subgraphs[0], self._schema
        model, graph = schema.ModelT(), schema.SubGraphT()
        model.version, model.subgraphs, model.buffers = self._model.version, [graph], [schema.BufferT()]
        numbers: dict[int, int] = {}
        graph.tensors = []
        for tensor in tensors:
            if tensor.number not in numbers:
                numbers[tensor.number] = len(graph.tensors)
                graph.tensors.append(self._tensor(tensor, model.buffers))
        graph.inputs = [numbers[tensor.number] for tensor in inputs]
        graph.outputs = [numbers[tensor.number] for tensor in outputs]
        graph.operators = [_renumber(source.operators[operator.number], numbers) for operator in operators]
        self._add_codes(model, graph)
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(model.Pack(builder), IDENTIFIER)
        return bytes(builder.Output())

    def _tensor(self, tensor: TfliteTensor, buffers: list[Any]) -> Any:
        copy = _copy(self._model.subgraphs[0].tensors[tensor.number])
        copy.shape, copy.shapeSignature, copy.name = list(tensor.shape), None, tensor.name
        if not tensor.is_constant:
            copy.buffer = 0
            return copy
        data = self._graph.stored_bytes(tensor)
        # One that was folded has none.
        if not data.size and tensor.values is not None:
            data = np.frombuffer(tensor.values.tobytes(), np.uint8)
        buffer = self._schema.BufferT()
        buffer.data = data
        copy.buffer = len(buffers)
        buffers.append(buffer)
        return copy

    def _add_codes(self, model: Any, graph: Any) -> None:
        """Give the file the codes of its operators, and the graphs that they run, if they run some."""
        if any(_runs_graphs(operator) for operator in graph.operators):
            # As they are: they name each other by their places.
            first = len(model.buffers)
            model.buffers += self._model.buffers
            for subgraph in self._model.subgraphs[1:]:
                copy = _copy(subgraph)
                copy.tensors = [_copy(tensor) for tensor in subgraph.tensors or []]
                for tensor in copy.tensors:
                    # The first one says that there are no values.
                    tensor.buffer += first if tensor.buffer else 0
                model.subgraphs.append(copy)
            model.operatorCodes = self._model.operatorCodes
            return
        codes = sorted({operator.opcodeIndex for operator in graph.operators})
        model.operatorCodes = [self._model.operatorCodes[code] for code in codes]
        for operator in graph.operators:
            operator.opcodeIndex = codes.index(operator.opcodeIndex)


def _copy(table: Any) -> Any:
    copy = type(table)()
    copy.__dict__.update(table.__dict__)
    return copy


def _renumber(operator: Any, numbers: Mapping[int, int]) -> Any:
    copy = _copy(operator)
    # An optional operand that is missing has the number -1.
    copy.inputs = [numbers.get(int(number), -1) for number in ([] if operator.inputs is None else operator.inputs)]
    copy.outputs = [numbers[int(number)] for number in ([] if operator.outputs is None else operator.outputs)]
    copy.intermediates = [numbers[int(number)] for number in _intermediates(operator)]
    return copy


def _intermediates(operator: Any) -> Iterable[int]:
    """Return the tensors inside of an operator, whose quantisation the file states."""
    return [] if operator.intermediates is None else operator.intermediates


def _runs_graphs(operator: Any) -> bool:
    options = (operator.builtinOptions, operator.builtinOptions2)
    return any(hasattr(each, field) for each in options if each is not None for field in _SUBGRAPH_FIELDS)


def replace_by_islands(
    graph: TfliteGraph,
    operators: Sequence[TfliteOperator],
    reasons: Mapping[int, str],
) -> tuple[list[TfliteOperator | IslandNode], list[Island]]:
    """Return the nodes to import, in order, and the islands among them.

    Parameters
    ----------
    graph : TfliteGraph
    operators : sequence of TfliteOperator
        All that an output depends on.
    reasons : mapping of int to str
        From places in `operators` to the reason, of those that have to be in an island.
    """
    links = [_links(operator) for operator in operators]
    states = [place for place, operator in enumerate(operators) if operator.kind in STATE_KINDS]
    members = grouping.grow(links, [*reasons, *states], lambda number: not graph.tensors[number].in_frames)
    groups = grouping.join(links, members, [states] if states else [])
    writer = IslandWriter(graph) if groups else None
    nodes: list[TfliteOperator | IslandNode] = []
    islands = []
    group_of = {place: group for group in groups for place in group}
    for place, operator in enumerate(operators):
        group = group_of.get(place)
        if group is None:
            nodes.append(operator)
        elif place == group[0] and writer is not None:
            inside = set(group)
            read = {number for other, link in enumerate(links) if other not in inside for number in link.reads}
            read |= {tensor.number for tensor in graph.outputs}
            node = writer.write([operators[number] for number in group], read)
            if node.outputs:
                nodes.append(node)
                islands.append(_describe(node, [operators[number] for number in group], _reason(group, reasons)))
    return [nodes[place] for place in grouping.sort_topologically([_links(node) for node in nodes])], islands


def _reason(group: Iterable[int], reasons: Mapping[int, str]) -> str:
    return next((reasons[place] for place in group if place in reasons), "it keeps state between frames")


def _describe(node: IslandNode, operators: Iterable[TfliteOperator], reason: str) -> Island:
    kinds = tuple(
        f"{operator.kind} ({operator.outputs[0].name})" if operator.outputs else operator.kind for operator in operators
    )
    return Island(node.outputs[0].name, kinds, reason)


def _links(node: TfliteOperator | IslandNode) -> grouping.Links:
    operands = node.inputs if isinstance(node, IslandNode) else node.operands
    return grouping.Links(
        tuple(tensor.number for tensor in operands if not tensor.is_constant),
        tuple(tensor.number for tensor in node.outputs),
    )
