"""Quantised softmax: tabled exponentials and reciprocal sums in fixed point."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.operators.converter import Converter
from pipeline.frontends.tflite.operators.quantized_values import BYTES, object_to, scale_of
from pipeline.model.passes.bindings import constant
from pipeline.model.requantization import Multiplier, Requantization

op = relax.op

_ONE = (1 << 31) - 1
_SCALED_BITS = 5
"""Bits before the point of the differences from the largest element."""

_SUM_BITS = 12
"""Bits before the point of the sum of exponentials."""

# exp(-1/8), 1/3, and exp(-1/4), exp(-1/2), exp(-1), ... with 31 bits behind the point, as gemmlowp has them.
_EXP_EIGHTH, _THIRD = (round(np.exp(-1 / 8) * 2.0**31), round(2.0**31 / 3))
_FACTORS = [round(float(np.exp(-(2.0**power))) * 2.0**31) for power in range(-2, _SCALED_BITS)]


def softmax(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``SOFTMAX`` of bytes over the last axis."""
    bb, source, output = importer.bb, operator.operands[0], operator.outputs[0]
    x = bb.emit(op.astype(importer.value(source), "int32"))
    index = bb.emit(op.add(op.subtract(x, op.max(x, [-1], keepdims=True)), constant(np.int32(255))))
    table = exponentials(source, operator.options.Beta())
    terms = op.take(constant(_divide(table, _SUM_BITS).astype(np.int32)), index, axis=0)
    total = bb.emit(op.astype(op.sum(terms, [-1], keepdims=True), "int64"))
    reciprocal, headroom = _reciprocal(bb, total)
    shift = op.subtract(constant(np.int64(_SUM_BITS + 31 - np.iinfo(output.dtype).bits)), headroom)
    shift = bb.emit(shift)
    half = op.right_shift(op.left_shift(constant(np.int64(1)), shift), constant(np.int64(1)))
    exps = op.astype(op.take(constant(table.astype(np.int32)), index, axis=0), "int64")
    share = op.right_shift(op.add(_product(reciprocal, exps), half), shift)
    limits = np.iinfo(output.dtype)
    stored = Requantization(
        zero=int(limits.min), low=int(limits.min), high=int(limits.max), dtype=output.dtype,
        # Beta is a part of what the exponentials are of.
        operator="Softmax", operand_scale=float(scale_of(source)) * float(operator.options.Beta()),
    )  # fmt: skip
    return stored.call(bb, op.astype(share, "int32"))


def exponentials(source: TfliteTensor, beta: float) -> np.ndarray:
    """Return exp of differences -255 to 0, in 31 fraction bits."""
    factor = min(float(np.float32(beta)) * float(scale_of(source)) * (1 << (31 - _SCALED_BITS)), 2.0**31 - 1)
    multiplier = Multiplier.of(factor)
    mantissa, shift = int(multiplier.mantissa), int(multiplier.shift)
    # Beyond this radius the exponential counts as 0.
    radius = np.floor(((1 << _SCALED_BITS) - 1) * (1 << (31 - _SCALED_BITS)) / 2**shift)
    differences = np.arange(-255, 1, dtype=np.int64)
    is_in_range = differences >= -radius
    scaled = ((np.where(is_in_range, differences, 0) << shift) * mantissa + (1 << 30)) >> 31
    table: np.ndarray = np.where(is_in_range, _exponential(scaled), 0)
    return table


def _exponential(x: np.ndarray) -> np.ndarray:
    """Return exp(x) in 31 fraction bits for negative x in 26.

    The result is a polynomial, times a factor for each bit.
    """
    quarter = 1 << (31 - _SCALED_BITS - 2)
    remainder = (x & (quarter - 1)) - quarter
    result = _exponential_of_rest(remainder << _SCALED_BITS)
    for number, factor in enumerate(_FACTORS):
        bit = 1 << (31 - _SCALED_BITS - 2 + number)
        result = np.where((remainder - x) & bit, _high(result, factor), result)
    return np.where(x == 0, _ONE, result)


def _exponential_of_rest(x: np.ndarray) -> np.ndarray:
    """Return exp(x) in [-1/4, 0] by four terms around -1/8."""
    x = x + (1 << 28)
    square = _high(x, x)
    cube, fourth = _high(square, x), _high(square, square)
    series = _divide(_high(_divide(fourth, 2) + cube, _THIRD) + square, 1)
    result: np.ndarray = _EXP_EIGHTH + _high(np.int64(_EXP_EIGHTH), x + series)
    return result


def _high(a: Any, b: Any) -> Any:
    return (a * b + (1 << 30)) >> 31


def _divide(values: np.ndarray, exponent: int) -> np.ndarray:
    """Divide by a power of two, halves away from zero."""
    quotient: np.ndarray = np.sign(values) * ((np.abs(values) + (1 << (exponent - 1))) >> exponent)
    return quotient


def _product(a: Any, b: Any) -> Any:
    """Return the rounded upper half of a product, as int64."""
    return op.right_shift(op.add(op.multiply(a, b), constant(np.int64(1 << 30))), constant(np.int64(31)))


def _shift_left(x: Any, bits: int) -> Any:
    """Return int64 numbers shifted left within int32's bounds."""
    shifted = op.multiply(x, constant(np.int64(1 << bits)))
    return op.minimum(op.maximum(shifted, constant(np.int64(-(1 << 31)))), constant(np.int64(_ONE)))


def headroom_of(bb: Any, total: Any) -> Any:
    """Return the leading zeros of 32-bit sums in int64.

    The last axis has one element.
    """
    powers = constant(np.left_shift(np.int64(1), np.arange(31, dtype=np.int64)))
    bits = op.sum(op.astype(op.greater_equal(total, powers), "int64"), [-1], keepdims=True)
    return bb.emit(op.subtract(constant(np.int64(32)), bits))


def _reciprocal(bb: Any, total: Any) -> tuple[Any, Any]:
    """Return 1 / total in (1/2, 1] and its leading zeros. The quotient comes from three steps of Newton's method."""
    headroom = headroom_of(bb, total)
    # The total as 1 + a, of which (1 + a) / 2 is needed.
    half = bb.emit(op.right_shift(op.left_shift(total, headroom), constant(np.int64(1))))
    # 48/17 and 32/17 with two bits before the point, the start with the smallest largest error.
    start = _product(half, constant(np.int64(-round(32 / 17 * 2**29))))
    x = bb.emit(op.add(start, constant(np.int64(round(48 / 17 * 2**29)))))
    for _ in range(3):
        error = bb.emit(op.subtract(constant(np.int64(1 << 29)), _product(half, x)))
        x = bb.emit(op.add(x, _shift_left(_product(x, error), 2)))
    return bb.emit(_shift_left(x, 1)), headroom


def _why_not(_importer: Any, operator: TfliteOperator) -> str:
    if operator.outputs[0].dtype == "int16":
        return "it has 16 bits" if operator.operands[0].dtype == "int16" else object_to(operator, same=False)
    return object_to(operator, BYTES)


CONVERTERS: dict[str, Converter] = {"SOFTMAX": Converter(softmax, _why_not)}
