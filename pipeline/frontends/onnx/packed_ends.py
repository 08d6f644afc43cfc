"""Inputs and outputs without a fixed tensor shape, as packed values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
from onnx import helper

from pipeline.core.packed_value import CAPACITY
from pipeline.frontends.onnx.simplification.tensors import static_shape, tensors_read


def why_packed(value_type: Any) -> str:
    """Describe a value type foreign to frames' tensors, else ""."""
    kind = value_type.WhichOneof("value")
    # A value may state no type at all; it is a tensor unless it says otherwise.
    if kind in (None, "tensor_type"):
        return "holds strings" if value_type.tensor_type.elem_type == onnx.TensorProto.STRING else ""
    return f"is no tensor, but {_KINDS.get(kind, 'of another type')}"


_KINDS = {
    "sequence_type": "a sequence",
    "map_type": "a map",
    "optional_type": "optional",
    "sparse_tensor_type": "a sparse tensor",
}


def reasons(graph: Any, inputs: Iterable[Any]) -> dict[int, str]:
    """Return nodes on packed inputs and outputs, with reasons."""
    texts = {value.name: why_packed(value.type) for value in (*inputs, *graph.output)}
    texts = {name: text for name, text in texts.items() if text}
    return {
        number: f"{name!r} {texts[name]}"
        for number, node in enumerate(graph.node)
        for name in (*tensors_read(node), *node.output)
        if name in texts
    }


def outputs_of_unknown_shape(node: Any, graph: Any) -> set[str]:
    """Return the maker's model outputs of unknown shape."""
    return {value.name for value in graph.output if value.name in node.output and static_shape(value.type) is None}


def model_inputs(model: Any) -> list[Any]:
    """Return a model's inputs without its parameters."""
    # Up to IR version 3 each initializer had to be an input as well.
    parameters = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in parameters]


def pack(graph: Any, inputs: Iterable[Any], open_outputs: Iterable[str]) -> list[str]:
    """Turn packed values into bytes; return remarks for the user.

    Only islands read and make the packed values; the shape of `open_outputs` depends on values.
    """
    notes = []
    for role, values in (("input", inputs), ("output", graph.output)):
        for value in values:
            text = why_packed(value.type)
            if role == "output" and value.name in open_outputs:
                text = "has a shape that depends on values"
            if text:
                notes.append(f"{role} {value.name!r} {text}; frames carry it as at most {CAPACITY} bytes")
                value.type.CopyFrom(helper.make_tensor_type_proto(onnx.TensorProto.UINT8, [CAPACITY]))
    return notes
