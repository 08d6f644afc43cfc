"""Shapes of loop results, where steps keep the carried shapes.

The onnx package infers no such shapes, since a step might change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .tensors import infer_types, static_shape, tensor_types, tensors_read
from .trips import count_trips

MOST_TRIPS = 4096
"""Bound on counted steps of a loop, for the extent of stacked results."""


def state_loop_types(model: Any, constants: Mapping[str, np.ndarray], version: int) -> bool:
    """State inferable types of loop results in place; True for new ones."""
    has_stated_types = False
    for node in model.graph.node:
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
            types = tensor_types(model.graph)
            if any(name and static_shape(types.get(name)) is None for name in node.output):
                has_stated_types |= _state(model, node, types, count_trips(node, constants, MOST_TRIPS, version))
    return has_stated_types


def _state(model: Any, node: Any, types: Mapping[str, Any], steps: int | None) -> bool:
    has_stated_types = False
    initial_types = [types.get(name) for name in node.input[2:]]
    results = _infer_results(model, node, types, initial_types)
    for number, (name, result) in enumerate(zip(node.output, results, strict=False)):
        shape = static_shape(result)
        if number >= len(initial_types):
            shape = None if shape is None or steps is None else (steps, *shape)
        if name and shape is not None and static_shape(types.get(name)) is None:
            _set_type(model.graph, name, helper.make_tensor_type_proto(result.tensor_type.elem_type, shape))
            has_stated_types = True
    return has_stated_types


def _infer_results(model: Any, node: Any, types: Mapping[str, Any], initial_types: Sequence[Any]) -> list[Any]:
    """Return a step's result types; carried ones only if stable."""
    assumed_types = [value_type if static_shape(value_type) is not None else None for value_type in initial_types]
    while True:
        results = _infer_body(model, node, types, assumed_types)
        kept_types = [
            assumed if assumed is not None and static_shape(assumed) == static_shape(result) else None
            for assumed, result in zip(assumed_types, results, strict=False)
        ]
        if kept_types == assumed_types:
            return [*kept_types, *results[len(kept_types) :]]
        # Without an assumption that does not hold, others may not either.
        assumed_types = kept_types


def _infer_body(model: Any, node: Any, types: Mapping[str, Any], carried_types: Sequence[Any]) -> list[Any]:
    """Return the types of a step's results, but its condition."""
    body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
    graph = onnx.GraphProto(name="step")
    graph.node.extend(body.node)
    graph.initializer.extend(body.initializer)
    number, condition, *states = body.input
    graph.input.extend(
        [
            helper.make_tensor_value_info(number.name, onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info(condition.name, onnx.TensorProto.BOOL, []),
        ]
    )
    for state, carried_type in zip(states, carried_types, strict=True):
        graph.input.append(onnx.ValueInfoProto(name=state.name, type=carried_type or _without_shape(state.type)))
    outer_names = [name for name in tensors_read(node) if name in types and name not in node.input[:2]]
    graph.input.extend(onnx.ValueInfoProto(name=name, type=types[name]) for name in outer_names)
    graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in body.output)
    step = infer_types(helper.make_model(graph, opset_imports=list(model.opset_import)))
    step_types = tensor_types(step.graph)
    return [step_types.get(value.name) for value in body.output[1:]]


def _without_shape(value_type: Any) -> Any:
    result = onnx.TypeProto()
    result.CopyFrom(value_type)
    if result.HasField("tensor_type"):
        result.tensor_type.ClearField("shape")
    return result


def _set_type(graph: Any, name: str, value_type: Any) -> None:
    for value in (*graph.output, *graph.value_info):
        if value.name == name:
            value.type.CopyFrom(value_type)
            return
    graph.value_info.append(onnx.ValueInfoProto(name=name, type=value_type))
