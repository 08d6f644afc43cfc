"""Products of real numbers and 8-bit weights, for which LiteRT quantises each row or frame anew.

The operands are integers, so that the sums are LiteRT's own; its factors are real numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.operators.converter import Converter
from pipeline.frontends.tflite.operators.quantized_products import convolve
from pipeline.frontends.tflite.operators.quantized_values import scales_of
from pipeline.model.passes.bindings import constant

op = relax.op


def dense(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``FULLY_CONNECTED``, each row with a scale of its own."""
    weights = operator.operands[1]
    rows = op.reshape(importer.value(operator.operands[0]), (-1, weights.shape[-1]))
    integers, scale = _quantize(importer, rows, [1])
    matrix = constant(np.asarray(weights.values).T.astype(np.int16))
    return _finish(importer, operator, op.matmul(integers, matrix, out_dtype="int32"), scale)


def convolution(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``CONV_2D`` or ``DEPTHWISE_CONV_2D``, each picture with a scale of its own."""
    integers, scale = _quantize(importer, importer.value(operator.operands[0]), [1, 2, 3])
    sums = convolve(operator, integers, np.asarray(operator.operands[1].values), "int32")
    return _finish(importer, operator, sums, scale)


def _quantize(importer: Any, values: Any, axes: list[int]) -> tuple[Any, Any]:
    """Return integers without their zero point, and the scale of each slice."""
    # Scale and zero point are computed in 64 bits.
    low, high = op.min(values, axes, keepdims=True), op.max(values, axes, keepdims=True)
    low = importer.bb.emit(op.astype(op.minimum(low, _number(0)), "float64"))
    high = importer.bb.emit(op.astype(op.maximum(high, _number(0)), "float64"))
    span = op.subtract(high, low)
    is_zero = op.equal(span, _number(0, "float64"))
    step = importer.bb.emit(op.where(is_zero, _number(1, "float64"), op.divide(span, _number(255, "float64"))))
    below = op.subtract(_number(-128, "float64"), op.divide(low, step))
    above = op.subtract(_number(127, "float64"), op.divide(high, step))
    # Of two zero points that differ by rounding only, the one behind the smaller numbers.
    is_near = op.less(op.negative(op.add(low, high)), op.negative(step))
    offset = op.clip(_round(importer, op.where(is_near, above, below), "float64"), -128, 127)
    offset, scale = importer.bb.emit(op.astype(offset, "float32")), importer.bb.emit(op.astype(step, "float32"))
    scaled = _round(importer, op.add(offset, op.multiply(values, importer.bb.emit(op.divide(_number(1), scale)))))
    return op.astype(op.subtract(op.clip(scaled, -128, 127), offset), "int16"), scale


def _number(value: float, dtype: str = "float32") -> Any:
    return constant(np.array(value, dtype))


def _round(importer: Any, values: Any, dtype: str = "float32") -> Any:
    """Round halves away from zero."""
    values = importer.bb.emit(values)
    return op.multiply(op.sign(values), op.floor(op.add(op.abs(values), _number(0.5, dtype))))


def _finish(importer: Any, operator: TfliteOperator, sums: Any, scale: Any) -> Any:
    """Return sums as real numbers, with bias and activation."""
    weights, bias = operator.operands[1], operator.inputs[2] if len(operator.inputs) > 2 else None
    factors = op.multiply(scale, constant(scales_of(weights).astype(np.float32)))
    value = op.multiply(op.astype(sums, "float32"), factors)
    if bias is not None:
        value = op.add(value, op.reshape(importer.value(bias), (-1,)))
    value = op.reshape(value, operator.outputs[0].shape)
    activation = operator.options.FusedActivationFunction() if operator.options else 0
    return importer.convert_fused_activation_function(value, activation)


def _why_not(_importer: Any, operator: TfliteOperator) -> str:
    """Object to other operands than real data and constant signed bytes."""
    if not operator.quantizes_anew:
        return "not only its weights are quantised"
    weights, output = operator.operands[1], operator.outputs[0]
    if weights.dtype != "int8" or weights.values is None or weights.scale is None or weights.scale.zero_points.any():
        return "only its weights are quantised"
    if output.is_quantized or _is_by_blocks(weights):
        return "only its weights are quantised"
    if operator.kind == "DEPTHWISE_CONV_2D" and not weights.scale.per_channel:
        # LiteRT reads beyond the only scale.
        return "its weights have a single scale"
    activation = operator.options.FusedActivationFunction() if operator.options else 0
    return "" if activation in range(4) else "its activation is no clamping"


def _is_by_blocks(weights: TfliteTensor) -> bool:
    scale = weights.scale
    return scale is not None and scale.per_channel and len(scale.scales) not in weights.shape


CONVERTERS: dict[str, Converter] = {
    "CONV_2D": Converter(convolution, _why_not),
    "DEPTHWISE_CONV_2D": Converter(convolution, _why_not),
    "FULLY_CONNECTED": Converter(dense, _why_not),
}
