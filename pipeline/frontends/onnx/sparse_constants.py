"""Sparse constants of an ONNX model, made dense."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import numpy_helper


def fill_in(graph: Any) -> None:
    """Make a graph's sparse constants dense, in place."""
    graph.initializer.extend(_dense(tensor) for tensor in graph.sparse_initializer)
    del graph.sparse_initializer[:]
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "sparse_value":
                attribute.t.CopyFrom(_dense(attribute.sparse_tensor))
                attribute.ClearField("sparse_tensor")
                attribute.name, attribute.type = "value", attribute.TENSOR


def _dense(tensor: Any) -> Any:
    """Return a dense tensor; positions are flat or per axis."""
    values, indices = numpy_helper.to_array(tensor.values), numpy_helper.to_array(tensor.indices)
    shape = tuple(tensor.dims)
    elements = np.zeros(math.prod(shape), values.dtype)
    elements[indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)] = values
    return numpy_helper.from_array(elements.reshape(shape), tensor.values.name)
