"""Quantised operators: byte products with fused requantisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst

from pipeline.executor.kernels.layout.expressions import AXIS, extents, is_image, is_static, name_of
from pipeline.executor.kernels.layout.rewriter import LineLayout, ModelLayout, Rewrite, Rewriter
from pipeline.executor.kernels.quantized import byte_lines, integer_operators, integer_sums, rescaling, whole_sums
from pipeline.executor.kernels.quantized.integer_operators import ByteSource
from pipeline.executor.kernels.quantized.integer_sums import IntegerSums
from pipeline.executor.kernels.quantized.rescaling import QuantizationScale, scale_of
from pipeline.executor.kernels.quantized.whole_sums import PRODUCTS


@dataclass(frozen=True)
class QuantizedProduct:
    """Sums of a quantised product, bias in their unit, and rectification."""

    sums: IntegerSums
    bias: np.ndarray
    rectified: bool


class QuantizedOperators(Rewrite):
    """Products of quantised operands, and conversions to and from bytes.

    The sums of a product are kept as intermediates of its call, for the step that quantises them.
    """

    operators = frozenset({*PRODUCTS, "quantize", "dequantize"})

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match a product, or a conversion to or from bytes."""
        name = name_of(call)
        if name == "quantize":
            return _quantize(rewriter, call)
        return _dequantize(rewriter, call) if name == "dequantize" else self._multiply(rewriter, call)

    def _multiply(self, rewriter: Rewriter, call: Any) -> Any:
        operands = [rewriter.producer(operand, "dequantize") for operand in call.args]
        sums = None if None in operands else self._sum_products(rewriter, call, operands)
        if sums is not None:
            rewriter.intermediates[call] = sums
            # For readers other than a quantize; TVM removes it if there are none.
            numbers = rescaling.scale_sums(rewriter.builder, sums.sums, sums.correction, sums.scales, sums.axis)
            return sums.result(numbers)
        weights = operands[1] if len(operands) > 1 else None
        if weights is None or not all(isinstance(operand, GenericConst) for operand in weights.args):
            return None
        # A kernel of float32 packs the numbers that constant bytes stand for.
        constants = relax.const(integer_sums.constant_numbers(weights))
        call = rewriter.builder.normalize(Call(call.op, [call.args[0], constants], call.attrs, call.ty_args))
        return rewriter.match(call, previous=self)

    def _sum_products(self, rewriter: Rewriter, call: Any, operands: list[Any]) -> IntegerSums | None:
        sum_operands = _sum_line if name_of(call) == "nn.conv1d" else _sum_bytes
        if (sums := sum_operands(rewriter, call, operands)) is not None:
            return sums
        return whole_sums.sum_products(rewriter, call, operands, lambda value: rewriter.match_exactly(value, self))


def _sum_line(rewriter: Rewriter, call: Any, operands: list[Any]) -> IntegerSums | None:
    """Sum a one-axis convolution as an image of one row."""
    image = byte_lines.as_image(rewriter, call, operands)
    sums = None if image is None else _sum_bytes(rewriter, *image)
    return None if sums is None else replace(sums, result=LineLayout, model_axis=-2)


def _sum_bytes(rewriter: Rewriter, call: Any, operands: list[Any]) -> IntegerSums | None:
    product = integer_sums.read_product(call, operands)
    if product is None:
        return None
    if product.has_bytes:
        return integer_sums.sum_products(rewriter, product)
    source = ByteSource(product.data, product.scale.zero)
    sums = integer_operators.sum_products(rewriter, source, product.weights, product.conv, product.layout)
    return None if sums is None else product.sums(rewriter.builder.emit(sums), np.zeros(1, np.int64))


def _quantize(rewriter: Rewriter, call: Any) -> Any:
    """Quantise a product's sums directly, or any other values."""
    scale = scale_of(call)
    if scale is None:
        return None
    data = call.args[0]
    product = _quantized_product(rewriter, data)
    if product is None:
        if (joined := concatenate(rewriter, data, scale)) is not None:
            return joined
        if (total := _add(rewriter, data, scale)) is not None:
            return total
        fuses = rewriter.cpu.fuses
        return _in_layout(rewriter, data, lambda value: rescaling.quantize(rewriter.builder, value, scale, fuses=fuses))
    sums = product.sums
    # Both in units of the sums, so that one addition of integers does for them.  A factor is rounded twice, as ONNX
    # Runtime multiplies and divides scales in float32.
    linear = sums.correction + product.bias, sums.scales.astype(np.float32) / np.float32(scale.value)
    return sums.result(
        rescaling.requantize(
            rewriter.builder, sums.sums, linear, scale, rectified=product.rectified, axis=sums.axis,
            largest=None if sums.largest is None else sums.largest + np.abs(product.bias), begin=sums.begin,
        )
    )  # fmt: skip


def _add(rewriter: Rewriter, data: Any, scale: QuantizationScale) -> Any:
    """Add dequantised images of one shape, of which only bytes are stored then, else None."""
    relu = rewriter.producer(data, "nn.relu")
    addition = rewriter.producer(data if relu is None else relu.args[0], "add")
    steps = [] if addition is None else [rewriter.producer(operand, "dequantize") for operand in addition.args]
    images = [step.args[0] for step in steps if step is not None and rewriter.is_last(step.args[0])]
    sources = [source for step in steps if step is not None and (source := scale_of(step)) is not None]
    if len(images) < 2 or len(sources) < 2 or not is_static(*images) or extents(images[0].ty) != extents(images[1].ty):
        return None
    operands, fuses = [rewriter.last(image) for image in images], rewriter.cpu.fuses
    return rescaling.add(rewriter.builder, operands, sources, scale, rectified=relu is not None, fuses=fuses)


def _dequantize(rewriter: Rewriter, call: Any) -> Any:
    """Return the numbers of bytes."""
    scale = scale_of(call)
    data = call.args[0]
    if scale is None or not isinstance(data, relax.Var) or str(call.attrs.out_dtype) != "float32":
        return None
    return _in_layout(rewriter, data, lambda value: rescaling.dequantize(rewriter.builder, value, scale))


def _quantized_product(rewriter: Rewriter, data: Any) -> QuantizedProduct | None:
    """Return the quantised product behind bias and rectification."""
    relu = rewriter.producer(data, "nn.relu")
    value = relu.args[0] if relu is not None else data
    addition = rewriter.producer(value, "add")
    product = rewriter.producer(addition.args[0] if addition is not None else value, *PRODUCTS)
    sums = None if product is None else rewriter.intermediates.get(product)
    if sums is None:
        return None
    bias = np.zeros(1, np.int64) if addition is None else _in_units(addition.args[1], sums)
    return None if bias is None else QuantizedProduct(sums, bias, relu is not None)


def _in_units(value: Any, sums: IntegerSums) -> np.ndarray | None:
    """Return a bias in sum units per channel, if nearly integral."""
    if not isinstance(value, GenericConst):
        return None
    array = np.asarray(value.value.numpy(), np.float64)
    if array.size != 1 and (array.ndim < -sums.model_axis or array.shape[sums.model_axis] != array.size):
        return None
    units = array.reshape(-1) / sums.scales
    integers = np.rint(units)
    # A bias is an integer of this unit stored as float32, so no more than rounding may part it from one; half of int32
    # is left to the sums.
    if np.any(np.abs(units - integers) > 1e-3 + 1e-6 * np.abs(units)) or np.any(np.abs(integers) >= 1 << 30):
        return None
    bias: np.ndarray = integers.astype(np.int64)
    return bias


def _in_layout(rewriter: Rewriter, data: Any, step: Callable[[Any], Any]) -> Any:
    """Return a step's result channels last, like its image."""
    if is_image(data.ty) and (rewriter.is_last(data) or (rewriter.turns and not isinstance(data, relax.DataflowVar))):
        return step(rewriter.last(data))
    if rewriter.is_line(data):
        return LineLayout(step(rewriter.line(data)))
    value = step(rewriter.plain(data))
    return ModelLayout(value) if is_image(data.ty) else value


def concatenate(rewriter: Rewriter, numbers: Any, scale: QuantizationScale) -> Any:
    """Concatenate dequantised images as channels-last bytes, else None."""
    concat = rewriter.producer(numbers, "concat")
    if concat is None or not isinstance(concat.args[0], relax.Tuple) or not is_image(concat.ty):
        return None
    steps = [rewriter.producer(field, "dequantize") for field in concat.args[0].fields]
    sources = [(step.args[0], scale_of(step)) for step in steps if step is not None and rewriter.is_last(step.args[0])]
    scaled_images = [(rewriter.last(image), own_scale) for image, own_scale in sources if own_scale is not None]
    if len(scaled_images) < len(steps):
        return None
    # Before they are joined: each conversion is fused to what makes the bytes.
    images = [
        rewriter.builder.emit(rescaling.change_scale(rewriter.builder, image, own_scale, scale))
        for image, own_scale in scaled_images
    ]
    return relax.op.concat(images, AXIS[int(concat.attrs.axis) % 4])
