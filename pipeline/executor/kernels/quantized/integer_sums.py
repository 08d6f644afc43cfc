"""Integer sums: placeholders of byte products, weights packed in fours."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import structs
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.kernels.conv import DirectConvolution, conv_shape
from pipeline.executor.kernels.depthwise import DepthwiseConvolution, is_depthwise
from pipeline.executor.kernels.layout import channel_layout
from pipeline.executor.kernels.layout.channel_layout import ChannelLayout
from pipeline.executor.kernels.layout.expressions import constant, extents, is_static, name_of, pad_channels
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewriter
from pipeline.executor.kernels.matmul import Matmul, matmul_shape
from pipeline.executor.kernels.quantized import byte_depthwise, rescaling
from pipeline.executor.kernels.quantized.byte_depthwise import ByteDepthwise
from pipeline.executor.kernels.quantized.rescaling import QuantizationScale, scale_of
from pipeline.executor.kernels.tiles import amx_layout, byte_products, packing
from pipeline.executor.kernels.tiles.byte_products import BYTES
from pipeline.executor.kernels.tiles.conv_shape import ConvShape

_LARGEST = (1 << 31) - 1


@dataclass(frozen=True)
class IntegerSums:
    """Sums of products of bytes."""

    sums: Any
    """A `relax.Var`."""
    correction: np.ndarray
    """Addend for each output channel that removes the zero points from the sums."""
    scales: np.ndarray
    """Value of one unit of the sums, for each output channel. Array of float64."""
    result: Callable[[Any], Any]
    """Function from a value in the layout of the sums to a rewrite's result."""
    model_axis: int
    """Axis of the channels in the model's own layout, from the end."""
    axis: int = -1
    """The same in the layout of the sums."""
    largest: np.ndarray | None = None
    """Largest magnitude of the corrected sums, for each output channel."""
    begin: Callable[[np.ndarray], Any] | None = None
    """Function from a number for each output channel to the sums with it."""


@dataclass(frozen=True)
class ByteProduct:
    """Product of bytes by constant bytes."""

    data: Any
    """Bytes on the scale `scale`. A `relax.Var`."""
    scale: QuantizationScale
    weights: np.ndarray
    """Weights as (out, in of one group, kh, kw), without zero points."""
    scales: np.ndarray
    """Scales of the weights, for each output channel. Array of float32."""
    conv: ConvShape
    layout: ChannelLayout | None
    """Layout of a convolution in the model; None for a product."""

    @property
    def has_bytes(self) -> bool:
        """True for signed-byte weights without zero points."""
        return bool(self.weights.min() >= -128 and self.weights.max() <= 127)

    @property
    def unit(self) -> np.ndarray:
        """Scale per output channel; float32 products are exact in float64."""
        unit: np.ndarray = self.scale.value * self.scales.astype(np.float64)
        return unit

    def sums(self, value: Any, correction: np.ndarray) -> IntegerSums:
        """Return channels-last sums with their correction."""
        result, axis = (self.layout.result, self.layout.channels - 4) if self.layout else (ModelLayout, -1)
        return IntegerSums(value, correction, self.unit, result, axis)


def constant_numbers(dequantize: Any) -> np.ndarray:
    """Return the numbers of constant bytes."""
    differences, scale = integers_of(dequantize), dequantize.args[1].value.numpy()
    scales = _along(scale, differences.ndim, int(dequantize.attrs.axis))
    numbers: np.ndarray = differences.astype(np.float32) * scales
    return numbers


def integers_of(dequantize: Any) -> np.ndarray:
    """Return constant bytes less their zero points."""
    values, _, zero = (operand.value.numpy() for operand in dequantize.args)
    differences: np.ndarray = values.astype(np.int32) - _along(
        zero.astype(np.int32), values.ndim, int(dequantize.attrs.axis)
    )
    return differences


def read_product(call: Any, operands: list[Any]) -> ByteProduct | None:
    """Read a product of dequantised operands with constant weights, else None."""
    data, dequantize = operands
    scale = scale_of(data)
    layout = channel_layout.layout_of_call(call) if name_of(call) == "nn.conv2d" else None
    if scale is None or not is_static(call, data) or not isinstance(data.args[0], relax.Var):
        return None
    weights = _weights(dequantize, call, layout)
    conv = None if weights is None else shape_of(call, layout, weights)
    if weights is None or conv is None:
        return None
    scales = np.broadcast_to(dequantize.args[1].value.numpy().ravel(), (len(weights),))
    return ByteProduct(data.args[0], scale, weights, scales, conv, layout)


def sum_products(rewriter: Rewriter, product: ByteProduct) -> IntegerSums | None:
    """Sum a product by signed bytes, or None on overflow."""
    scale, values, conv, layout = product.scale, product.weights.astype(np.int8), product.conv, product.layout
    # The largest sum of bytes has to stay within int32, also before its correction.
    if math.prod(values.shape[1:]) * 255 * 128 * 2 > _LARGEST:
        return None
    source = layout.source(rewriter, product.data) if layout else rewriter.plain(product.data)
    begin = None
    # One channel has no four to be multiplied at once.
    if layout and is_depthwise(conv, rewriter.cpu):
        begin, zero = depthwise_sums(rewriter, source, scale.zero, values, conv)
        sums = begin(np.zeros(1))
    else:
        # Instructions take unsigned data: 128 is added to them and to their zero point.
        if scale.dtype == "int8":
            source = rewriter.builder.emit(rescaling.as_unsigned(rewriter.builder, source))
            scale = QuantizationScale(scale.value, scale.zero + 128, "uint8")
        sums = packed_sums(rewriter, source, scale.zero, values, conv, is_image=layout is not None)
        zero = scale.zero - byte_products.offset(rewriter.cpu)
    # The sum of (data - zero) * weight is that of data * weight, less zero times the weights' sum.
    weights = values.reshape(len(values), -1).astype(np.int64)
    result = product.sums(rewriter.builder.emit(sums), -zero * weights.sum(1))
    # Elsewhere, conversions of vectors cost no more than other instructions.
    is_arm = rewriter.cpu.lane_products
    return replace(result, largest=255 * np.abs(weights).sum(1), begin=begin) if is_arm else result


def _along(values: np.ndarray, axes: int, axis: int) -> np.ndarray:
    """Broadcast a number, or one per index of an axis."""
    shape = [1] * axes
    if values.size > 1:
        shape[axis] = -1
    return values.reshape(shape if axes else ())


def _weights(dequantize: Any, product: Any, layout: ChannelLayout | None) -> np.ndarray | None:
    """Return zero-centred weights (out, in, kh, kw) with one scale per output."""
    if not all(isinstance(operand, GenericConst) for operand in dequantize.args):
        return None
    values, scale, zero = (operand.value.numpy() for operand in dequantize.args)
    order = str(product.attrs.kernel_layout) if name_of(product) == "nn.conv2d" else "IO"
    if values.ndim != len(order) or (layout is None and values.ndim == 4):
        return None
    axis = int(dequantize.attrs.axis) % values.ndim
    # Scales along an input axis would be inside of the sum.
    if max(scale.size, zero.size) > 1 and axis != order.find("O"):
        return None
    differences = integers_of(dequantize)
    if layout:
        return channel_layout.order_weights(product, differences)
    by_output: np.ndarray = differences.T.reshape(*differences.T.shape, 1, 1)
    return by_output


def shape_of(call: Any, layout: ChannelLayout | None, weights: np.ndarray) -> ConvShape | None:
    """Return a product's shape from weights (out, in, height, width)."""
    if layout:
        return conv_shape(layout, call, weights.shape)
    *outer_shape, depth = extents(call.args[0].ty)
    return matmul_shape(math.prod(outer_shape), depth, len(weights)) if outer_shape else None


def packed_sums(  # noqa: PLR0913 - what a product consists of
    rewriter: Rewriter, source: Any, zero: int, values: np.ndarray, conv: ConvShape, *, is_image: bool
) -> Any:
    """Return the placeholder of sums over packed weights."""
    product = byte_products.choose(conv, values.transpose(0, 2, 3, 1), rewriter.cpu)
    padding = -conv.depth % byte_products.channels(product)
    source = pad_channels(rewriter.builder, source, conv.groups, padding)
    padded_weights = np.pad(values, ((0, 0), (0, padding), (0, 0), (0, 0)))
    # Four bytes of neighbouring channels count as one number from here on.
    fours = np.ascontiguousarray(padded_weights.transpose(0, 2, 3, 1)).view(np.int32).transpose(0, 3, 1, 2)
    conv = replace(conv, channels=fours.shape[1] * conv.groups)
    # Outside of the data stands the byte that means zero, four times.
    filler = int(np.array([zero] * BYTES, np.uint8).view(np.int32)[0])
    if product == amx_layout.WAY:
        form, weights = amx_layout.pack(fours, conv, rewriter.cpu, BYTES, filler)
    else:
        cpu = byte_products.for_tiles(rewriter.cpu)
        layout = packing.estimate_layout(conv.flatten() if conv.pointwise and is_image else conv, cpu)
        if layout.depth % (byte_products.channels(product) // BYTES):
            layout = structs.replace(layout, depth=conv.depth)
        form = structs.replace(layout, conv=conv, element_channels=BYTES, filler=filler, way=product)
        weights = packing.pack(fours, layout, lambda block: byte_products.order_bytes(block, product))
    operands = [source, constant(weights)]
    if is_image:
        return DirectConvolution.placeholder(rewriter.builder, form, operands, conv.result, "int32")
    shape = (*extents(source.ty)[:-1], conv.out_channels)
    return Matmul.placeholder(rewriter.builder, form, operands, shape, "int32")


def depthwise_sums(
    rewriter: Rewriter, source: Any, zero: int, values: np.ndarray, conv: ConvShape
) -> tuple[Callable[[np.ndarray], Any], int]:
    """Return the sums' placeholder by what they begin with, and the data's remaining zero point.

    Elsewhere than on Arm the sums are float32, which is exact for numbers as small as these.
    """
    if byte_depthwise.applies(rewriter.cpu, values):
        return ByteDepthwise().convolve(rewriter, source, zero, values, conv)
    # Float32 begins with zero alone.
    weights = values.astype(np.float32)
    return lambda _: DepthwiseConvolution().convolve(rewriter.builder, source, conv, weights, zero), 0
