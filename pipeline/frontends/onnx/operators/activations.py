"""Activations, operators on bits, and other functions of single elements."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

from pipeline.frontends.onnx.operators.node_call import Converter, NodeCall, scalar


def _thresholded_relu(call: NodeCall) -> Any:
    """Return ``ThresholdedRelu`` as a choice. TVM's product with 0 or 1 makes NaN of NaN and of minus infinity."""
    data = call.inputs[0]
    threshold = scalar(float(call.attributes.get("alpha", 1.0)), data)
    return relax.op.where(relax.op.greater(data, threshold), data, scalar(0, data))


def _power(call: NodeCall) -> Any:
    """Return ``Pow`` of integers or mixed dtypes, in double precision. ONNX Runtime does the same."""
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


# BitShift takes unsigned types only (ONNX, operator BitShift, type T).
_DTYPE_BITS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}


def _is_infinite(call: NodeCall) -> Any:
    # TVM's IsInf reads neither attribute.
    data = call.inputs[0]
    kinds = int(call.attributes.get("detect_negative", 1)), int(call.attributes.get("detect_positive", 1))
    signs = {(1, 0): (relax.op.less,), (0, 1): (relax.op.greater,), (0, 0): (relax.op.less, relax.op.greater)}
    is_infinite = relax.op.isinf(data)
    for sign in signs.get(kinds, ()):
        is_infinite = relax.op.logical_and(is_infinite, sign(data, scalar(0, data)))
    return is_infinite


def _shift_bits(call: NodeCall) -> Any:
    """Return ``BitShift``; a full shift gives 0, not modulo as processors."""
    data, count = call.inputs
    # A shift by the width itself is undefined in C and in LLVM; x86 takes the count modulo the width.
    last = scalar(_DTYPE_BITS[call.dtype()] - 1, data)
    shift = relax.op.left_shift if call.text("direction", "") == "LEFT" else relax.op.right_shift
    shifted_bits = shift(data, relax.op.minimum(count, last))
    return relax.op.where(relax.op.greater(count, last), scalar(0, data), shifted_bits)


def _sign(call: NodeCall) -> Any:
    """Return ``Sign`` with NaN kept; TVM's is 0."""
    # With float16 it is 0 in ONNX Runtime as well, and integers have no NaN.
    data = call.inputs[0]
    if call.dtype() not in ("float32", "float64"):
        return None
    return relax.op.where(relax.op.isnan(data), data, relax.op.sign(data))


def _reinterpret(call: NodeCall) -> Any:
    """Return ``BitCast``."""
    result = call.results[0]
    dtype = str(result[1]) if result else ""
    from tvm import te

    return call.kernel(
        lambda data: te.compute(data.shape, lambda *index: tirx.reinterpret(dtype, data(*index)), "bit_cast"),
        call.inputs[0],
        name="bit_cast",
    )


CONVERTERS: dict[str, Converter] = {
    "BitCast": _reinterpret,
    "BitShift": _shift_bits,
    "IsInf": _is_infinite,
    "Sign": _sign,
    "Pow": _power,
    "ThresholdedRelu": _thresholded_relu,
    "com.microsoft.BiasGelu": _gelu,
    "com.microsoft.FastGelu": _fast_gelu,
    "com.microsoft.Gelu": _gelu,
    "com.microsoft.QuickGelu": _quick_gelu,
}
