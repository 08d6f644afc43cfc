"""Experimental operators of early opsets, from CoreML's converter, decomposed.

The onnx package has forgotten them, and infers no shape behind them; ONNX Runtime still computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from pipeline.frontends.onnx.simplification.tensors import opset

# Later opsets state the ends of a slice by operands; no converter wrote these operators for them.
_NEWEST_OPSET = 9

# An end behind the last element means that.
_END = 2**31 - 1


def replace_experimental(model: Any) -> Any:
    """Return the model with experimental operators as products, sums and slices."""
    if opset(model) > _NEWEST_OPSET or not any(_is_experimental(node) for node in model.graph.node):
        return model
    result = type(model)()
    result.CopyFrom(model)
    dtype = _dtype(model.graph)
    nodes: list[Any] = []
    for node in model.graph.node:
        nodes += _RULES[node.op_type](node, _attributes(node), dtype) if _is_experimental(node) else [node]
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result


def _is_experimental(node: Any) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in _RULES


def _attributes(node: Any) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _dtype(graph: Any) -> Any:
    """Return the dtype of the first input and so of activations."""
    return helper.tensor_dtype_to_np_dtype(graph.input[0].type.tensor_type.elem_type)


def _affine(node: Any, attributes: Mapping[str, Any], dtype: Any) -> list[Any]:
    return _scale(node, np.array(attributes.get("alpha", 1.0), dtype), np.array(attributes.get("beta", 0.0), dtype))


def _image_scaler(node: Any, attributes: Mapping[str, Any], dtype: Any) -> list[Any]:
    bias = np.array(attributes.get("bias", [0.0]), dtype).reshape(1, -1, 1, 1)
    return _scale(node, np.array(attributes.get("scale", 1.0), dtype), bias)


def _scale(node: Any, factor: np.ndarray, summand: np.ndarray) -> list[Any]:
    result = node.output[0]
    names = {part: f"{result}:{part}" for part in ("factor", "summand", "product")}
    return [
        *(
            helper.make_node("Constant", [], [names[part]], value=numpy_helper.from_array(values, names[part]))
            for part, values in (("factor", factor), ("summand", summand))
        ),
        helper.make_node("Mul", [node.input[0], names["factor"]], [names["product"]], name=node.name),
        helper.make_node("Add", [names["product"], names["summand"]], [result]),
    ]


def _crop(node: Any, attributes: Mapping[str, Any], _: Any) -> list[Any]:
    column, top, right, bottom = attributes["border"]
    ends = [-bottom or _END, -right or _END]
    # Instead of the borders behind it, the size of what is left may be stated.
    if "scale" in attributes:
        ends = [start + extent for start, extent in zip((top, column), attributes["scale"], strict=True)]
    return [
        helper.make_node("Slice", node.input, node.output, name=node.name, axes=[2, 3], starts=[top, column], ends=ends)
    ]


_RULES: Mapping[str, Callable[[Any, Mapping[str, Any], Any], list[Any]]] = {
    "Affine": _affine,
    "Crop": _crop,
    "ImageScaler": _image_scaler,
}
