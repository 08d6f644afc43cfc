"""Element-wise operators."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import number
from pipeline.export.relax_onnx.tensors import Tensor, constant


def _plain(kind: str, graph: GraphWriter, call: Any) -> Tensor:
    return graph.elementwise(kind, *(graph.tensor(operand) for operand in call.args))


def _test(kind: str, graph: GraphWriter, call: Any) -> Tensor:
    return graph.elementwise(kind, *(graph.tensor(operand) for operand in call.args), dtype="bool")


def _not_equal(graph: GraphWriter, call: Any) -> Tensor:
    return graph.node("Not", [_test("Equal", graph, call)])


def _where(graph: GraphWriter, call: Any) -> Tensor:
    condition, *values = (graph.tensor(operand) for operand in call.args)
    return graph.elementwise("Where", graph.cast(condition, "bool"), *values, dtype=values[0].dtype)


def _astype(graph: GraphWriter, call: Any) -> Tensor:
    return graph.cast(graph.tensor(call.args[0]), str(call.attrs.dtype))


def _rsqrt(graph: GraphWriter, call: Any) -> Tensor:
    return graph.node("Reciprocal", [graph.node("Sqrt", [graph.tensor(call.args[0])])])


def _square(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return graph.node("Mul", [source, source])


def _silu(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return graph.node("Mul", [source, graph.node("Sigmoid", [source])])


def _gelu(graph: GraphWriter, call: Any) -> Tensor:
    # In parts: as one operator it needs version 20.
    source = graph.tensor(call.args[0])
    inner = graph.node("Erf", [graph.elementwise("Mul", source, graph.scalar(math.sqrt(0.5), source))])
    return _half_gate(graph, source, inner)


def _gelu_tanh(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    cube = graph.node("Mul", [graph.node("Mul", [source, source]), source])
    bent = graph.node("Add", [source, graph.elementwise("Mul", cube, graph.scalar(0.044715, source))])
    inner = graph.node("Tanh", [graph.elementwise("Mul", bent, graph.scalar(math.sqrt(2 / math.pi), source))])
    return _half_gate(graph, source, inner)


def _half_gate(graph: GraphWriter, source: Tensor, inner: Tensor) -> Tensor:
    gate = graph.elementwise("Add", inner, graph.scalar(1, source))
    return graph.elementwise("Mul", graph.node("Mul", [source, gate]), graph.scalar(0.5, source))


def _clip(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return clip(graph, source, number(call.args[1]), number(call.args[2]))


def clip(graph: GraphWriter, source: Tensor, low: float, high: float) -> Tensor:
    """Write a clip, without the limits of the dtype itself."""
    kind = np.dtype(source.dtype) if source.dtype != "bfloat16" else np.dtype("float32")
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        low, high = max(math.ceil(low), limits.min), min(math.floor(high), limits.max)
    return graph.node("Clip", [source, graph.scalar(low, source), graph.scalar(high, source)])


def _relu6(graph: GraphWriter, call: Any) -> Tensor:
    return clip(graph, graph.tensor(call.args[0]), 0, 6)


def _leaky_relu(graph: GraphWriter, call: Any) -> Tensor:
    return graph.node("LeakyRelu", [graph.tensor(call.args[0])], alpha=float(call.attrs.alpha))


def _prelu(graph: GraphWriter, call: Any) -> Tensor:
    source, slope = (graph.tensor(operand) for operand in call.args)
    rank, axis = len(source.shape), int(call.attrs.axis) % max(len(source.shape), 1)
    if slope.shape not in ((), (1,)):
        slope = graph.reshape(slope, [-1 if dimension == axis else 1 for dimension in range(axis, rank)])
    return graph.node("PRelu", [source, slope])


def _softplus(graph: GraphWriter, call: Any) -> Tensor:
    source, beta = graph.tensor(call.args[0]), float(call.attrs.beta)
    if beta == 1:
        return graph.node("Softplus", [source])
    curve = graph.node("Softplus", [graph.elementwise("Mul", source, graph.scalar(beta, source))])
    return graph.elementwise("Div", curve, graph.scalar(beta, source))


def _trunc(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    size = graph.node("Floor", [graph.node("Abs", [source])])
    return graph.node("Mul", [size, graph.node("Sign", [source])])


def _isfinite(graph: GraphWriter, call: Any) -> Tensor:
    # Neither infinite nor NaN: of such the size compares as less.
    source = graph.tensor(call.args[0])
    return graph.elementwise("Less", graph.node("Abs", [source]), graph.scalar(math.inf, source), dtype="bool")


def _fused_multiply_add(graph: GraphWriter, call: Any) -> Tensor:
    first, second, third = (graph.tensor(operand) for operand in call.args)
    return graph.elementwise("Add", graph.elementwise("Mul", first, second), third)


def _log_add_exp(graph: GraphWriter, call: Any) -> Tensor:
    first, second = (graph.tensor(operand) for operand in call.args)
    gap = graph.node("Neg", [graph.node("Abs", [graph.elementwise("Sub", first, second)])])
    correction = graph.node("Log", [graph.elementwise("Add", graph.node("Exp", [gap]), graph.scalar(1, gap))])
    return graph.elementwise("Add", graph.elementwise("Max", first, second), correction)


def is_real(tensor: Tensor) -> bool:
    """Check for floating-point numbers."""
    return tensor.dtype.startswith(("float", "bfloat"))


def half_turn(graph: GraphWriter, numerator: Tensor, denominator: Tensor) -> Tensor:
    """Write a quotient's angle, corrected for the denominator's sign."""
    angle = graph.node("Atan", [graph.elementwise("Div", numerator, denominator)])
    pi = graph.elementwise(
        "Where",
        graph.elementwise("Less", numerator, graph.scalar(0, numerator), dtype="bool"),
        graph.scalar(-math.pi, numerator), graph.scalar(math.pi, numerator), dtype=numerator.dtype,
    )  # fmt: skip
    is_behind = graph.elementwise("Less", denominator, graph.scalar(0, denominator), dtype="bool")
    shift = graph.elementwise("Where", is_behind, pi, graph.scalar(0, pi), dtype=pi.dtype)
    return graph.elementwise("Add", angle, shift)


def _atan2(graph: GraphWriter, call: Any) -> Tensor:
    numerator, denominator = (graph.tensor(operand) for operand in call.args)
    angle = half_turn(graph, numerator, denominator)
    # Of zero by zero, where the quotient is no number.
    zeros = [
        graph.elementwise("Equal", operand, graph.scalar(0, operand), dtype="bool")
        for operand in (numerator, denominator)
    ]
    return graph.elementwise(
        "Where", graph.elementwise("And", *zeros), constant(0, angle.dtype), angle, dtype=angle.dtype
    )


_PLAIN = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "divide": "Div", "erf": "Erf", "exp": "Exp",
    "floor": "Floor", "log": "Log", "maximum": "Max", "minimum": "Min", "multiply": "Mul", "negative": "Neg",
    "nn.relu": "Relu", "nn.selu": "Selu", "power": "Pow", "round": "Round", "sigmoid": "Sigmoid", "sign": "Sign",
    "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "subtract": "Sub", "tan": "Tan", "tanh": "Tanh",
    "logical_not": "Not", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor",
}  # fmt: skip
_TESTS = {
    "equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual", "isinf": "IsInf", "isnan": "IsNaN",
    "less": "Less", "less_equal": "LessOrEqual",
}  # fmt: skip

WRITERS = {
    **{name: functools.partial(_plain, kind) for name, kind in _PLAIN.items()},
    **{name: functools.partial(_test, kind) for name, kind in _TESTS.items()},
    "not_equal": _not_equal,
    "where": _where,
    "astype": _astype,
    "rsqrt": _rsqrt,
    "square": _square,
    "nn.silu": _silu,
    "nn.gelu": _gelu,
    "nn.gelu_tanh": _gelu_tanh,
    "clip": _clip,
    "nn.relu6": _relu6,
    "nn.leakyrelu": _leaky_relu,
    "nn.prelu": _prelu,
    "nn.softplus": _softplus,
    "trunc": _trunc,
    "isfinite": _isfinite,
    "ewise_fma": _fused_multiply_add,
    "log_add_exp": _log_add_exp,
    "atan2": _atan2,
}
