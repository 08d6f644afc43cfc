"""Real numbers: a quantised ONNX model with limits, without rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

_OLDEST = 13
"""Oldest version of the operators with limits as operands."""


def without_rounding(model: Any) -> Any:
    """Return a copy that scales and limits without rounding, or None.

    Two ways to compute the quantised model round in different places; by the distance to this one they compare.
    """
    from onnx import numpy_helper

    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    version = max((opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")), default=0)
    result = type(model)()
    result.CopyFrom(model)
    real_names: set[str] = set()
    nodes: list[Any] = []
    for node in model.graph.node:
        is_quantize, is_dequantize = node.op_type == "QuantizeLinear", node.op_type == "DequantizeLinear"
        if is_quantize or (is_dequantize and node.input[0] in real_names):
            if version < _OLDEST or any(constants.get(name, np.zeros(0)).size != 1 for name in node.input[1:]):
                return None
            nodes += _scale(node, constants) if is_quantize else _unscale(node, constants)
        elif "Integer" in node.op_type or node.op_type.startswith(("QLinear", "QGemm", "QAttention")):
            return None
        else:
            nodes.append(node)
        if is_quantize or (not is_dequantize and any(name in real_names for name in node.input)):
            real_names |= set(node.output)
    if not real_names:
        return None
    del result.graph.node[:], result.graph.value_info[:]
    result.graph.node.extend(nodes)
    names = [output.name for output in result.graph.output]
    # Their types are other ones now; ONNX Runtime finds them.
    del result.graph.output[:]
    for name in names:
        result.graph.output.add(name=name)
    return result


def _scale(node: Any, constants: dict[str, np.ndarray]) -> list[Any]:
    """Return nodes for ``limit(x / scale + zero)``."""
    zero = _zero(node, constants)
    limits = np.iinfo(zero.dtype)
    name = node.output[0]
    return [
        _node("Div", [node.input[0], node.input[1]], f"{name}:units"),
        *_with_constant("Add", f"{name}:units", float(zero), f"{name}:shifted"),
        *_with_constant("Max", f"{name}:shifted", float(limits.min), f"{name}:above"),
        *_with_constant("Min", f"{name}:above", float(limits.max), name),
    ]


def _unscale(node: Any, constants: dict[str, np.ndarray]) -> list[Any]:
    """Return nodes for ``(x - zero) * scale``."""
    name = node.output[0]
    return [
        *_with_constant("Sub", node.input[0], float(_zero(node, constants)), f"{name}:centred"),
        _node("Mul", [f"{name}:centred", node.input[1]], name),
    ]


def _zero(node: Any, constants: dict[str, np.ndarray]) -> np.ndarray:
    return constants[node.input[2]].reshape(()) if len(node.input) > 2 else np.zeros((), np.uint8)


def _with_constant(kind: str, source: str, value: float, result: str) -> list[Any]:
    from onnx import helper

    constant = f"{result}:{kind}"
    return [helper.make_node("Constant", [], [constant], value_float=value), _node(kind, [source, constant], result)]


def _node(kind: str, inputs: list[str], result: str) -> Any:
    from onnx import helper

    return helper.make_node(kind, inputs, [result])
