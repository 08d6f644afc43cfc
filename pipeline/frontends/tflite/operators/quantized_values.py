"""Quantised tensors as centred integers, and back with dtype and bounds, rounded as LiteRT."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.operators.converter import NOT_QUANTIZED
from pipeline.model.passes.bindings import constant
from pipeline.model.requantization import Requantization

op = relax.op

# Of the schema's enumeration ActivationFunctionType: the real numbers between which it leaves values.
_ACTIVATIONS = {0: (-math.inf, math.inf), 1: (0, math.inf), 2: (-1, 1), 3: (0, 6)}

BYTES = ("int8", "uint8")
INTEGERS = (*BYTES, "int16")


def scale_of(tensor: TfliteTensor) -> np.float32:
    """Return the only scale of a tensor."""
    scale: np.float32 = scales_of(tensor)[0]
    return scale


def scales_of(tensor: TfliteTensor) -> np.ndarray:
    """Return a tensor's scales, one or per channel."""
    return tensor.scale.scales  # type: ignore[union-attr]


def zero_of(tensor: TfliteTensor) -> int:
    """Return the only zero point of a tensor."""
    return int(tensor.scale.zero_points[0])  # type: ignore[union-attr]


def limits(tensor: TfliteTensor, activation: int = 0) -> tuple[int, int]:
    """Return a tensor's integer limits after an activation."""
    dtype = np.iinfo(tensor.dtype)
    low, high = _ACTIVATIONS[activation]
    return max(dtype.min, _quantize(low, tensor, dtype.min)), min(dtype.max, _quantize(high, tensor, dtype.max))


def _quantize(number: float, tensor: TfliteTensor, infinite: int) -> int:
    if math.isinf(number):
        return infinite
    # In float32, and halves away from zero, as LiteRT computes it.
    quotient = float(np.float32(number) / scale_of(tensor))
    return zero_of(tensor) + int(math.copysign(math.floor(abs(quotient) + 0.5), quotient))


def center(importer: Any, tensor: TfliteTensor, dtype: str = "int32", shape: tuple[int, ...] | None = None) -> Any:
    """Return a tensor's integers less its zero point, widened, maybe reshaped."""
    if tensor.values is not None:
        return constant(centered_values(tensor).astype(dtype).reshape(shape or tensor.shape))
    value, zero = importer.value(tensor), zero_of(tensor)
    value = op.astype(value if shape is None else op.reshape(value, shape), dtype)
    return op.subtract(value, constant(np.array(zero, dtype))) if zero else value


def centered_values(tensor: TfliteTensor) -> np.ndarray:
    """Return a constant's integers less their zero points, as int64."""
    values, scale = np.asarray(tensor.values).astype(np.int64), tensor.scale
    if scale is None:
        return values
    shape = [1] * values.ndim
    if scale.per_channel:
        shape[scale.axis] = -1
    centered: np.ndarray = values - scale.zero_points.astype(np.int64).reshape(shape if values.ndim else ())
    return centered


def store(bb: Any, x: Any, tensor: TfliteTensor, activation: int = 0, scale: Requantization | None = None) -> Any:
    """Return integers in a tensor's scale, zero point and bounds."""
    low, high = limits(tensor, activation)
    stored = dataclasses.replace(
        scale or Requantization(), zero=zero_of(tensor), low=low, high=high, dtype=tensor.dtype
    )
    return stored.call(bb, x)


def activation_of(operator: TfliteOperator) -> int:
    """Return an operator's fused activation number."""
    options = operator.options
    return 0 if options is None else int(options.FusedActivationFunction())


def object_to(
    operator: TfliteOperator,
    dtypes: tuple[str, ...] = INTEGERS,
    positions: tuple[int, ...] = (0,),
    *,
    same: bool = True,
) -> str:
    """Return the objection to unsuitable quantised tensors, else "".

    The first output has one of `dtypes`. The operands at `positions` have to be quantised, each with a single scale,
    and with `same` in the output's dtype.
    """
    tensors = [*(operator.inputs[position] for position in positions), operator.outputs[0]]
    for tensor in tensors:
        if tensor is None or not tensor.is_quantized or tensor.dtype not in {*INTEGERS, *dtypes}:
            return NOT_QUANTIZED
        if tensor.scale is None or tensor.scale.per_channel:
            return f"{tensor.name!r} has several scales"
    output = operator.outputs[0]
    if output.dtype not in dtypes or (same and any(tensor.dtype != output.dtype for tensor in tensors if tensor)):
        return f"{', '.join(tensor.dtype for tensor in tensors if tensor)} is no combination that LiteRT computes"
    activation = getattr(operator.options, "FusedActivationFunction", lambda: 0)()
    return "" if activation in _ACTIVATIONS else f"its activation is number {activation}"


def round_from_zero(bb: Any, x: Any) -> Any:
    """Return reals rounded to integers, halves away from zero."""
    x = bb.emit(x)
    dtype = x.ty.dtype
    half, zero = relax.const(0.5, dtype), relax.const(0, dtype)
    return op.where(op.less(x, zero), op.ceil(op.subtract(x, half)), op.floor(op.add(x, half)))


def rounded_product(x: Any) -> Any:
    """Return a float32 product rounded before any addition."""
    # They are all larger than this, which the compiler does not know: it would make one operation of product and sum.
    return op.maximum(x, relax.const(-1e30, "float32"))
