"""Operators on bits of integers, and signs, infinities and shifts."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

from pipeline.frontends.onnx.operators.node_call import NodeCall, scalar

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


CONVERTERS = {"BitCast": _reinterpret, "BitShift": _shift_bits, "IsInf": _is_infinite, "Sign": _sign}
