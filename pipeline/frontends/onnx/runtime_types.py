"""Types inferred by ONNX Runtime, unknown to the onnx package."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper

from pipeline.frontends.onnx.reference import literal_options, open_session
from pipeline.frontends.onnx.simplification.tensors import is_external, static_shape, tensor_types

_ONNX_DOMAINS = ("", "ai.onnx")

# As a session describes what it returns.
_ELEMENT_TYPES = {f"tensor({name.lower()})": number for name, number in onnx.TensorProto.DataType.items()}


def state_types(model: Any) -> bool:
    """State unknown tensor types in place; True if any are new.

    The model has those that the onnx package infers.
    """
    types = tensor_types(model.graph)
    names = {
        name for node in model.graph.node for name in node.output if name and static_shape(types.get(name)) is None
    }
    makers = [node for node in model.graph.node if names.intersection(node.output)]
    if all(node.domain in _ONNX_DOMAINS for node in makers):
        return False
    try:
        session = open_session(_exposing(model, names), literal_options())
    except Exception:  # noqa: BLE001 - it raises several unrelated types; an island that it refuses is refused later
        return False
    values = [
        helper.make_tensor_value_info(result.name, _ELEMENT_TYPES[result.type], result.shape)
        for result in session.get_outputs()
        # No shape is how it describes one that it does not know, too.
        if result.name in names
        and result.type in _ELEMENT_TYPES
        and result.shape
        and all(map(_is_number, result.shape))
    ]
    outputs = {value.name: value for value in model.graph.output}
    for value in values:
        if value.name in outputs:
            outputs[value.name].CopyFrom(value)
    model.graph.value_info.extend(value for value in values if value.name not in outputs)
    return bool(values)


def _is_number(extent: Any) -> bool:
    return isinstance(extent, int)


def _exposing(model: Any, names: set[str]) -> Any:
    """Return a copy with these outputs, and external weights as inputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    known_names = {value.name for value in graph.output}
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names - known_names))
    weights = [tensor for tensor in graph.initializer if is_external(tensor)]
    graph.input.extend(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in weights)
    kept_tensors = [tensor for tensor in graph.initializer if not is_external(tensor)]
    del graph.initializer[:]
    graph.initializer.extend(kept_tensors)
    return copy
