"""Islands of TFLite -> one file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.core.packed_model import PackedPart
from pipeline.frontends.tflite.flatbuffer import IDENTIFIER
from pipeline.frontends.tflite.island_writer import copy_table, renumber, renumber_blocks
from pipeline.system.optional import require


def merge(parts: Sequence[PackedPart], inputs: Sequence[int], outputs: Sequence[int]) -> bytes | None:
    """Return one file of `parts`; None with subgraphs.

    Graphs know each other by their positions.
    """
    import flatbuffers

    schema = require("ai_edge_litert.schema_py_generated", "litert", "operators that LiteRT computes")
    models = [schema.ModelT.InitFromObj(schema.Model.GetRootAs(part.model, 0)) for part in parts]
    if any(len(model.subgraphs) > 1 for model in models):
        return None
    merged_model, graph = schema.ModelT(), schema.SubGraphT()
    merged_model.version, merged_model.subgraphs = models[0].version, [graph]
    merged_model.buffers, merged_model.operatorCodes = [schema.BufferT()], []
    graph.tensors, graph.operators = [], []
    shared_tensors: dict[int, int] = {}
    for part, model in zip(parts, models, strict=True):
        _append(merged_model, model, part, shared_tensors)
    graph.inputs = [shared_tensors[number] for number in inputs]
    graph.outputs = [shared_tensors[number] for number in outputs]
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(merged_model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())


def _append(target: Any, model: Any, part: PackedPart, shared_tensors: dict[int, int]) -> None:
    """Add a part's operators; `shared_tensors` has the existing tensors."""
    graph, source = target.subgraphs[0], model.subgraphs[0]
    ends = dict(zip(map(int, source.inputs), part.inputs, strict=True))
    ends.update(zip(map(int, source.outputs), part.outputs, strict=True))
    first_tensor, first_buffer, first_code = len(graph.tensors), len(target.buffers), len(target.operatorCodes)
    target.buffers += model.buffers
    target.operatorCodes += model.operatorCodes
    numbers: dict[int, int] = {}
    for number, tensor in enumerate(source.tensors):
        value = ends.get(number)
        if value is not None and value in shared_tensors:
            numbers[number] = shared_tensors[value]
            continue
        numbers[number] = len(graph.tensors)
        if value is not None:
            shared_tensors[value] = numbers[number]
        copy = copy_table(tensor)
        # The first buffer of each file is empty, and belongs to all tensors without values.
        copy.buffer = first_buffer + tensor.buffer if tensor.buffer else 0
        graph.tensors.append(copy)
    for tensor in graph.tensors[first_tensor:]:
        renumber_blocks(tensor, numbers)
    for operator in source.operators:
        copy = renumber(operator, numbers)
        copy.opcodeIndex += first_code
        graph.operators.append(copy)
