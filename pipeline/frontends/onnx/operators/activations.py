"""Activations and other functions of single elements."""

from __future__ import annotations

from typing import Any

from tvm import relax

from pipeline.frontends.onnx.operators.node_call import Converter, NodeCall, scalar


def _thresholded_relu(call: NodeCall) -> Any:
    """Return ``ThresholdedRelu`` as a choice.

    TVM's product with 0 or 1 makes NaN of NaN and of minus infinity.
    """
    data = call.inputs[0]
    threshold = scalar(float(call.attributes.get("alpha", 1.0)), data)
    return relax.op.where(relax.op.greater(data, threshold), data, scalar(0, data))


def _power(call: NodeCall) -> Any:
    """Return ``Pow`` of integers or mixed dtypes, in double precision.

    ONNX Runtime does the same.
    """
    base, exponent = call.inputs
    dtype = call.dtype()
    if "int" in dtype:
        power = relax.op.power(relax.op.astype(base, "float64"), relax.op.astype(exponent, "float64"))
        return relax.op.astype(power, dtype)
    return None if call.dtype(1) == dtype else relax.op.power(base, relax.op.astype(exponent, dtype))


def _gelu(call: NodeCall) -> Any:
    """Return ``Gelu`` with an optional bias before it."""
    data = call.inputs[0] if call.input(1) is None else relax.op.add(call.inputs[0], call.inputs[1])
    return relax.op.nn.gelu(data)


def _fast_gelu(call: NodeCall) -> Any:
    """Return ``FastGelu``: the approximation by a hyperbolic tangent."""
    data = call.inputs[0] if call.input(1) is None else relax.op.add(call.inputs[0], call.inputs[1])
    return relax.op.nn.gelu_tanh(data)


def _quick_gelu(call: NodeCall) -> Any:
    data = call.inputs[0]
    factor = scalar(float(call.attributes.get("alpha", 1.702)), data)
    return relax.op.multiply(data, relax.op.sigmoid(relax.op.multiply(data, factor)))


CONVERTERS: dict[str, Converter] = {
    "Pow": _power,
    "ThresholdedRelu": _thresholded_relu,
    "com.microsoft.BiasGelu": _gelu,
    "com.microsoft.FastGelu": _fast_gelu,
    "com.microsoft.Gelu": _gelu,
    "com.microsoft.QuickGelu": _quick_gelu,
}
