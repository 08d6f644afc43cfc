"""TFLite files of some of a file's operators."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.errors import ModelError
from pipeline.frontends.tflite.flatbuffer import IDENTIFIER, TfliteGraph, TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.importer import IslandNode
from pipeline.system.optional import require

# Fields of options that name another graph of the file.
_SUBGRAPH_FIELDS = (
    "bodySubgraphIndex", "condSubgraphIndex", "decompositionSubgraphIndex", "elseSubgraphIndex", "initSubgraphIndex",
    "subgraph", "thenSubgraphIndex",
)  # fmt: skip

# They run other graphs of the file in each frame.
RUNNERS = frozenset({"CALL", "IF", "STABLEHLO_COMPOSITE", "WHILE"})


class IslandWriter:
    """Writes groups of a graph's operators as files."""

    def __init__(self, graph: TfliteGraph) -> None:
        self._graph = graph

    @functools.cached_property
    def _schema(self) -> Any:
        # The object interface, which LiteRT's package has of just the schema that it reads.
        return require("ai_edge_litert.schema_py_generated", "litert", "operators that LiteRT computes")

    @functools.cached_property
    def _model(self) -> Any:
        content = self._graph.content
        model = self._schema.ModelT.InitFromObj(self._schema.Model.GetRootAs(content, 0))
        # What a large file has behind its flatbuffer; nothing begins at the places 0 and 1.
        for buffer in model.buffers:
            if buffer.offset > 1:
                buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
                buffer.offset = buffer.size = 0
        for operator in (operator for graph in model.subgraphs for operator in graph.operators or []):
            if operator.largeCustomOptionsOffset > 1:
                begin, size = operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize
                operator.customOptions = np.frombuffer(content, np.uint8, size, begin)
                operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0
        return model

    def keeps_state(self, operators: Sequence[TfliteOperator]) -> bool:
        """Check for state between frames."""
        if any(tensor.is_variable for operator in operators for tensor in operator.operands):
            return True
        # CALL_ONCE assigns values as well, before the first frame.
        graphs = [self._model.subgraphs[0]] if any(operator.kind == "ASSIGN_VARIABLE" for operator in operators) else []
        if any(operator.kind in RUNNERS for operator in operators):
            graphs += self._model.subgraphs[1:]
        codes = {operator.opcodeIndex for graph in graphs for operator in graph.operators or []}
        assign = self._schema.BuiltinOperator.ASSIGN_VARIABLE
        return any(self._model.operatorCodes[code].builtinCode == assign for code in codes)

    def write(self, operators: Sequence[TfliteOperator], read_elsewhere: Collection[int]) -> IslandNode:
        """Return the island of operators with the tensors read elsewhere."""
        operators = self._with_constant_makers(operators)
        computed = {tensor.number: tensor for operator in operators for tensor in operator.outputs}
        read = {tensor.number: tensor for operator in operators for tensor in operator.operands}
        inputs = [
            tensor for number, tensor in read.items()
            if number not in computed and not tensor.is_constant and not tensor.is_variable
        ]  # fmt: skip
        outputs = [tensor for number, tensor in computed.items() if number in read_elsewhere and not tensor.is_constant]
        name = outputs[0].name if outputs else ""
        return IslandNode(name, self.write_file(operators, inputs, outputs), inputs, outputs)

    def write_file(
        self,
        operators: Sequence[TfliteOperator],
        inputs: Sequence[TfliteTensor],
        outputs: Sequence[TfliteTensor],
        names: Mapping[int, str] | None = None,
    ) -> bytes:
        """Return a file of operators and their constants' makers.

        `names` are those that some tensors, by number, have in the file instead of their own.
        """
        operators = self._with_constant_makers(operators)
        tensors = {
            tensor.number: tensor for operator in operators for tensor in (*operator.operands, *operator.outputs)
        }
        source = self._model.subgraphs[0].operators
        numbers = [int(number) for operator in operators for number in _intermediates(source[operator.number])]
        numbers += [number for tensor in tensors.values() for number in self._block_tensors(tensor)]
        inner_tensors = [self._graph.tensors[number] for number in numbers]
        return self._file(operators, [*inputs, *tensors.values(), *inner_tensors], inputs, outputs, names or {})

    def _with_constant_makers(self, operators: Sequence[TfliteOperator]) -> list[TfliteOperator]:
        """Return operators and the makers of their folded constants.

        LiteRT may compute an operator otherwise if it finds another constant than the file has.
        """
        makers = {tensor.number: operator for operator in self._graph.operators for tensor in operator.outputs}
        included = {operator.number: operator for operator in operators}
        pending = list(operators)
        while pending:
            for tensor in pending.pop().operands:
                maker = makers.get(tensor.number)
                if maker is None or maker.number in included or not tensor.is_constant:
                    continue
                # Not what asks for the shape of a tensor.
                if maker.operands and all(operand.is_constant for operand in maker.operands):
                    included[maker.number] = maker
                    pending.append(maker)
        return [included[number] for number in sorted(included)]

    def _file(
        self,
        operators: Sequence[TfliteOperator],
        tensors: Iterable[TfliteTensor],
        inputs: Sequence[TfliteTensor],
        outputs: Sequence[TfliteTensor],
        names: Mapping[int, str],
    ) -> bytes:
        """Return a file of operators."""
        import flatbuffers

        source, schema = self._model.subgraphs[0], self._schema
        model, graph = schema.ModelT(), schema.SubGraphT()
        model.version, model.subgraphs, model.buffers = self._model.version, [graph], [schema.BufferT()]
        numbers: dict[int, int] = {}
        computed = {tensor.number for operator in operators for tensor in operator.outputs}
        graph.tensors = []
        for tensor in tensors:
            if tensor.number not in numbers:
                numbers[tensor.number] = len(graph.tensors)
                graph.tensors.append(self._tensor(tensor, model.buffers, computed))
                graph.tensors[-1].name = names.get(tensor.number, tensor.name)
        for tensor in graph.tensors:
            renumber_blocks(tensor, numbers)
        graph.inputs = [numbers[tensor.number] for tensor in inputs]
        graph.outputs = [numbers[tensor.number] for tensor in outputs]
        graph.operators = [renumber(source.operators[operator.number], numbers) for operator in operators]
        self._add_codes(model, graph)
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(model.Pack(builder), IDENTIFIER)
        return bytes(builder.Output())

    def _block_tensors(self, tensor: TfliteTensor) -> list[int]:
        """Return the numbers of tensors with a tensor's block scales."""
        blocks = _blocks(self._model.subgraphs[0].tensors[tensor.number])
        # The tensor 0, which is an input, stands for none.
        if not blocks:
            return []
        if not 0 <= blocks.scales < len(self._graph.tensors) or blocks.zeroPoints >= len(self._graph.tensors):
            raise ModelError(
                f"it is no valid TFLite model: the blocks of {tensor.name!r} have no scales; convert it again"
            )
        return [number for number in (blocks.scales, blocks.zeroPoints) if number > 0]

    def _tensor(self, tensor: TfliteTensor, buffers: list[Any], computed: Collection[int]) -> Any:
        copy = copy_table(self._model.subgraphs[0].tensors[tensor.number])
        # Others keep what the file says of their shapes, also if that is nothing: LiteRT chooses kernels by it.
        if tensor.is_constant or tensor.number not in computed or self._graph.is_resized:
            copy.shape, copy.shapeSignature = list(tensor.shape), None
        if not tensor.is_constant or tensor.number in computed:
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
        """Add operators' codes and subgraphs to the file."""
        if any(_runs_graphs(operator) for operator in graph.operators):
            # As they are: they name each other by their places.
            first = len(model.buffers)
            model.buffers += self._model.buffers
            for subgraph in self._model.subgraphs[1:]:
                copy = copy_table(subgraph)
                copy.tensors = [copy_table(tensor) for tensor in subgraph.tensors or []]
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


def copy_table(table: Any) -> Any:
    """Return a shallow copy of an object-interface table."""
    copy = type(table)()
    copy.__dict__.update(table.__dict__)
    return copy


def _blocks(table: Any) -> Any:
    """Return a tensor's quantisation by blocks, or None."""
    details = None if table.quantization is None else table.quantization.details
    return details if hasattr(details, "blockSize") else None


def renumber_blocks(tensor: Any, numbers: Mapping[int, int]) -> None:
    """Renumber the tensors of a tensor's block scales."""
    if blocks := _blocks(tensor):
        tensor.quantization = copy_table(tensor.quantization)
        tensor.quantization.details = details = copy_table(blocks)
        details.scales, details.zeroPoints = numbers[blocks.scales], numbers.get(blocks.zeroPoints, 0)


def renumber(operator: Any, numbers: Mapping[int, int]) -> Any:
    """Return a copy of an operator with renumbered tensors."""
    copy = copy_table(operator)
    # An optional operand that is missing has the number -1.
    copy.inputs = [numbers.get(int(number), -1) for number in ([] if operator.inputs is None else operator.inputs)]
    copy.outputs = [numbers[int(number)] for number in ([] if operator.outputs is None else operator.outputs)]
    copy.intermediates = [numbers[int(number)] for number in _intermediates(operator)]
    return copy


def _intermediates(operator: Any) -> Iterable[int]:
    """Return the inner tensors of an operator with stated quantisation."""
    return [] if operator.intermediates is None else operator.intermediates


def _runs_graphs(operator: Any) -> bool:
    options = (operator.builtinOptions, operator.builtinOptions2)
    return any(hasattr(option, field) for option in options if option is not None for field in _SUBGRAPH_FIELDS)
