"""Islands of ONNX -> one model."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import compose, helper

from pipeline.core.packed_model import PackedPart

LARGEST_BYTES = 2**31 - 2**20
"""Size limit of all parts: protobuf writes no message of 2 GiB, and the merged model has some nodes more."""


def merge(parts: Sequence[PackedPart], inputs: Sequence[int], outputs: Sequence[int]) -> bytes | None:
    """Return one model of `parts`; None if impossible or too large."""
    if sum(len(part.model) for part in parts) > LARGEST_BYTES:
        return None
    models = [onnx.ModelProto.FromString(part.model) for part in parts]
    versions = {tuple(sorted((opset.domain, opset.version) for opset in model.opset_import)) for model in models}
    ends = [value.type for model in models for value in (*model.graph.input, *model.graph.output)]
    # The identities below are for tensors only.
    if len(versions) > 1 or any(model.functions for model in models) or not all(map(_is_tensor, ends)):
        return None
    types: dict[int, onnx.ValueInfoProto] = {}
    graph = onnx.GraphProto(name="island")
    for number, (part, model) in enumerate(zip(parts, models, strict=True)):
        # Two islands may use one name for different tensors, or hold one constant each.
        compose.add_prefix(model, f"{number}/", inplace=True)
        operands = list(zip(part.inputs, model.graph.input, strict=True))
        results = list(zip(part.outputs, model.graph.output, strict=True))
        types.update([*operands, *results])
        # ONNX Runtime takes the identities out again.
        graph.node.extend(_identity(_name(n), value.name) for n, value in operands)
        graph.node.extend(model.graph.node)
        graph.node.extend(_identity(value.name, _name(n)) for n, value in results)
        graph.initializer.extend(model.graph.initializer)
        graph.sparse_initializer.extend(model.graph.sparse_initializer)
    graph.input.extend(helper.make_value_info(_name(number), types[number].type) for number in inputs)
    graph.output.extend(helper.make_value_info(_name(number), types[number].type) for number in outputs)
    ir_version = max(model.ir_version for model in models)
    merged_model = helper.make_model(graph, opset_imports=models[0].opset_import, ir_version=ir_version)
    return bytes(merged_model.SerializeToString())


def _is_tensor(value_type: onnx.TypeProto) -> bool:
    return bool(value_type.WhichOneof("value") == "tensor_type")


def _name(number: int) -> str:
    return f"value{number}"


def _identity(source: str, target: str) -> onnx.NodeProto:
    return helper.make_node("Identity", [source], [target])
