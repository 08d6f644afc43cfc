"""Softmax of 16-bit tensors by interpolated tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators.converter import Converter
from pipeline.frontends.tflite.operators.lookup import round_away
from pipeline.frontends.tflite.operators.quantized_softmax import headroom_of
from pipeline.frontends.tflite.operators.quantized_values import object_to, scale_of
from pipeline.model.passes.bindings import constant
from pipeline.model.requantization import TWICE, Multiplier, Requantization

op = relax.op

_LOWEST, _HIGHEST = -(1 << 15), (1 << 15) - 1
_SPAN = _HIGHEST - _LOWEST
_STEPS, _STEP_BITS = 512, 7


def interpolated_table(function: Callable[[np.ndarray], np.ndarray], scale: float, zero: int) -> np.ndarray:
    """Return a function of all 16-bit integers, interpolated like LiteRT.

    Results are between -1 and 1, with 15 bits behind the point.
    """
    first, last = scale * (_LOWEST - zero), scale * (_HIGHEST - zero)
    step = (last - first) / _STEPS
    points = first + np.arange(_STEPS + 1) * step
    values = function(points) * (1 << 15)
    middles = function(points[:-1] + step / 2) * (1 << 15)
    # Half of the error in the middle of a step is taken off its ends.
    error = round_away((values[1:] + round_away(values[:-1])) / 2) - round_away(middles)
    ends = np.append(
        round_away(values[:-1]) - round_away(error / 2), round_away(function(np.array([last])) * (1 << 15))
    )
    knots = np.clip(ends, _LOWEST, _HIGHEST).astype(np.int64)
    integers = np.arange(_LOWEST, _HIGHEST + 1)
    index, offset = (_STEPS // 2) + (integers >> _STEP_BITS), integers & ((1 << _STEP_BITS) - 1)
    slope = knots[index + 1] - knots[index]
    table: np.ndarray = knots[index] + ((slope * offset + (1 << (_STEP_BITS - 1))) >> _STEP_BITS)
    return table


# Of numbers between -10 and 0, and of the sum less 1, which is between 0 and 1 behind its highest bit.
_EXPONENTIALS = interpolated_table(np.exp, 10 / _SPAN, _HIGHEST)
_RECIPROCALS = interpolated_table(lambda numbers: 1 / (1 + numbers), 1 / _SPAN, _LOWEST)


def softmax(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``SOFTMAX`` of 16 bits over the last axis."""
    bb, source, output = importer.bb, operator.operands[0], operator.outputs[0]
    x = bb.emit(op.astype(importer.value(source), "int32"))
    scale = np.float64(scale_of(source) * np.float32(operator.options.Beta()))
    difference = op.subtract(x, op.max(x, [-1], keepdims=True))
    scaled = Multiplier.of(scale / (10 / _SPAN)).scale(TWICE).call(bb, difference)
    exps = bb.emit(_look_up(_EXPONENTIALS, op.add(scaled, constant(np.int32(_HIGHEST)))))
    total = bb.emit(op.astype(op.sum(exps, [-1], keepdims=True), "int64"))
    headroom = headroom_of(bb, total)
    shifted = op.left_shift(total, op.subtract(headroom, constant(np.int64(1))))
    # The highest bit of the sum is its 1, less which the table has it, around the middle of 16 bits.
    fraction = op.right_shift(op.add(shifted, constant(np.int64(1 << 13))), constant(np.int64(14)))
    centered = op.subtract(op.astype(fraction, "int32"), constant(np.int32((1 << 15) + (1 << 16))))
    product = op.astype(op.multiply(exps, _look_up(_RECIPROCALS, centered)), "int64")
    shift = bb.emit(op.subtract(constant(np.int64(31)), headroom))
    half = op.right_shift(op.left_shift(constant(np.int64(1)), shift), constant(np.int64(1)))
    share = op.astype(op.right_shift(op.add(product, half), shift), "int32")
    return Requantization(high=_HIGHEST, low=0, dtype=output.dtype).call(bb, share)


def _look_up(table: np.ndarray, x: Any) -> Any:
    bounded = op.minimum(op.maximum(x, constant(np.int32(_LOWEST))), constant(np.int32(_HIGHEST)))
    return op.take(constant(table.astype(np.int32)), op.subtract(bounded, constant(np.int32(_LOWEST))), axis=0)


def _why_not(_importer: Any, operator: TfliteOperator) -> str:
    return object_to(operator, ("int16",))


CONVERTERS: dict[str, Converter] = {"SOFTMAX": Converter(softmax, _why_not)}
