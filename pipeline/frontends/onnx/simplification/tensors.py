"""Tensors of an ONNX graph: readers, types, small constants."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MOST_ELEMENTS = 4096
"""Most elements of a constant folded here: shapes and axes have fewer; weights are folded later, by compiled code."""


NARROW_TYPES = {
    number: name.lower()
    for name, number in onnx.TensorProto.DataType.items()
    if re.match(r"FLOAT[48]|U?INT[24]$", name)
}
"""Types of eight bits or less without kernels, and their names."""


def opset(model: Any) -> int:
    """Return a model's version of ONNX's operators, or 0."""
    return max((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def tensors_read(node: Any) -> list[str]:
    """Return a node's inputs, subgraphs' included."""
    names = [name for name in node.input if name]
    for graph in subgraphs(node):
        local_names = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        local_names |= {name for inner_node in graph.node for name in inner_node.output}
        names += [name for inner_node in graph.node for name in tensors_read(inner_node) if name not in local_names]
        names += [value.name for value in graph.output if value.name not in local_names]
    return list(dict.fromkeys(names))


def subgraphs(node: Any) -> Iterator[Any]:
    """Yield a node's subgraphs."""
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.HasField("g") else attribute.graphs


def infer_types(model: Any) -> Any:
    """Return the model with types inferred from its inputs."""
    # What it cannot infer is left out, and a graph that contradicts itself is as it was.
    with contextlib.suppress(onnx.shape_inference.InferenceError):
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    return model


def tensor_types(graph: Any) -> dict[str, Any]:
    """Return the known types of a graph's tensors by name."""
    # Weights are declared nowhere else; their extents are asked for, too.
    weights = {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims) for tensor in graph.initializer
    }
    return weights | {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}


def static_shape(value_type: Any) -> tuple[int, ...] | None:
    """Return a tensor type's known extents, or None."""
    if value_type is None or not value_type.HasField("tensor_type") or not value_type.tensor_type.HasField("shape"):
        return None
    # Nor has a tensor of strings, or of parts of bytes, one that a frame could hold.
    if value_type.tensor_type.elem_type in (onnx.TensorProto.STRING, *NARROW_TYPES):
        return None
    dimensions = value_type.tensor_type.shape.dim
    if not all(dimension.HasField("dim_value") for dimension in dimensions):
        return None
    return tuple(int(dimension.dim_value) for dimension in dimensions)


def constants(graph: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the small constants of a graph."""
    for tensor in graph.initializer:
        if not is_external(tensor) and math.prod(tensor.dims) <= MOST_ELEMENTS:
            yield tensor.name, numpy_helper.to_array(tensor)
    for node in graph.node:
        value = constant_value(node)
        if value is not None and value.size <= MOST_ELEMENTS:
            yield node.output[0], value


def is_external(tensor: Any) -> bool:
    """Check for data outside a tensor's protobuf."""
    return bool(tensor.HasField("data_location") and tensor.data_location == tensor.EXTERNAL)


def constant_value(node: Any) -> np.ndarray | None:
    """Return a ``Constant`` node's own numbers, or None."""
    if node.op_type != "Constant" or not node.attribute:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value":
        return None if is_external(attribute.t) else numpy_helper.to_array(attribute.t)
    dtypes = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    dtype = dtypes.get(attribute.name)
    return None if dtype is None else np.array(helper.get_attribute_value(attribute), dtype)
