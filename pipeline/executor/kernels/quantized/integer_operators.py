"""Integer operators: byte products in 16-bit notation, summed in 32 bits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.kernels.depthwise import is_depthwise
from pipeline.executor.kernels.layout import channel_layout
from pipeline.executor.kernels.layout.channel_layout import ChannelLayout
from pipeline.executor.kernels.layout.expressions import constant, is_static, name_of
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewrite, Rewriter
from pipeline.executor.kernels.quantized import integer_sums, rescaling
from pipeline.executor.kernels.tiles import byte_products
from pipeline.executor.kernels.tiles.conv_shape import ConvShape

_EXACT = 1 << 24
"""Up to here float32 has all whole numbers."""

_LARGEST = (1 << 31) - 1


class ByteSource(NamedTuple):
    """An operand's bytes and zero point."""

    value: Any
    zero: int


class IntegerOperators(Rewrite):
    """Byte products less zero points, by constant weights."""

    operators = frozenset({"nn.conv2d", "matmul"})

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return the sums in int32."""
        layout = channel_layout.layout_of_call(call) if name_of(call) == "nn.conv2d" else None
        weights = _weights(call, layout)
        source = _source(rewriter, call.args[0])
        if source is None or weights is None or str(call.ty.dtype) != "int32" or not is_static(call, source.value):
            return None
        conv = integer_sums.shape_of(call, layout, weights)
        if conv is None:
            return None
        sums = sum_products(rewriter, source, weights, conv, layout)
        if sums is None:
            return None
        return layout.result(sums) if layout else ModelLayout(sums)


def _weights(call: Any, layout: ChannelLayout | None) -> np.ndarray | None:
    """Return constant weights as (out, in/group, kh, kw)."""
    operand = call.args[1]
    if not isinstance(operand, GenericConst) or str(operand.ty.dtype) != "int16":
        return None
    values = operand.value.numpy()
    if layout:
        return channel_layout.order_weights(call, values)
    return values.T.reshape(*values.T.shape, 1, 1) if name_of(call) == "matmul" and values.ndim == 2 else None


def _source(rewriter: Rewriter, operand: Any) -> ByteSource | None:
    """Return an operand's bytes behind cast and zero point."""
    difference, zero = rewriter.producer(operand, "subtract"), 0
    if difference is not None:
        operand, subtrahend = difference.args
        if not isinstance(subtrahend, GenericConst) or subtrahend.value.numpy().size != 1:
            return None
        zero = int(subtrahend.value.numpy().reshape(-1)[0])
    cast = rewriter.producer(operand, "astype")
    data = cast.args[0] if cast is not None and str(cast.ty.dtype) == "int16" else None
    is_bytes = isinstance(data, relax.Var) and str(data.ty.dtype) in ("int8", "uint8")
    return ByteSource(data, zero) if is_bytes else None


def sum_products(
    rewriter: Rewriter, source: ByteSource, weights: np.ndarray, conv: ConvShape, layout: ChannelLayout | None
) -> Any:
    """Sum byte products with weights (out, in, kh, kw), or None on overflow."""
    is_signed = str(source.value.ty.dtype) == "int8"
    terms = math.prod(weights.shape[1:])
    if layout and is_depthwise(conv, rewriter.cpu):
        # Larger ones are not exact where they are summed as float32.
        if terms * 255 * int(np.abs(weights).max(initial=0)) >= _EXACT:
            return None
        data = layout.source(rewriter, source.value)
        begin, zero = integer_sums.depthwise_sums(rewriter, data, source.zero, weights, conv)
        sizes = weights.reshape(len(weights), -1).sum(1, dtype=np.int64)
        return rescaling.integers(rewriter.builder, rewriter.builder.emit(begin(np.zeros(1))), -zero * sizes)
    offset = _offset(weights)
    if offset is None or terms * 255 * 256 * 2 > _LARGEST:
        return None
    data = layout.source(rewriter, source.value) if layout else rewriter.plain(source.value)
    zero = source.zero
    # Instructions take unsigned data: 128 is added to them and to their zero point.
    if is_signed:
        data, zero = rewriter.builder.emit(rescaling.as_unsigned(rewriter.builder, data)), zero + 128
    sums = _packed(rewriter, data, zero, weights - offset, conv, is_image=layout is not None)
    if not offset:
        return sums
    # What the weights lack is the same for all outputs of a group: so many times the sum of the data in the window.
    ones = np.ones((conv.groups, *weights.shape[1:]), np.int64)
    single = replace(conv, out_channels=conv.groups)
    totals = _packed(rewriter, data, zero, ones, single, is_image=layout is not None)
    share = rewriter.builder.emit(relax.op.multiply(rewriter.builder.emit(totals), constant(np.int32(offset))))
    if conv.groups > 1:
        share = rewriter.builder.emit(relax.op.repeat(share, conv.out_channels // conv.groups, -1))
    return relax.op.add(rewriter.builder.emit(sums), share)


def _offset(weights: np.ndarray) -> int | None:
    """Return the offset from weights to signed bytes."""
    low, high = int(weights.min()), int(weights.max())
    if low >= -128 and high <= 127:
        return 0
    return None if high - low > 255 else (high - 127 if high > 127 else low + 128)


def _packed(  # noqa: PLR0913 - what a product consists of
    rewriter: Rewriter, data: Any, zero: int, weights: np.ndarray, conv: ConvShape, *, is_image: bool
) -> Any:
    """Sum unsigned bytes less zero point, times signed bytes."""
    values = weights.astype(np.int8)
    sums = rewriter.builder.emit(integer_sums.packed_sums(rewriter, data, zero, values, conv, is_image=is_image))
    # The sum of (data - zero) * weight is that of data * weight, less zero times the weights' sum.
    sizes = weights.reshape(len(weights), -1).sum(1, dtype=np.int64)
    return rescaling.integers(rewriter.builder, sums, -(zero - byte_products.offset(rewriter.cpu)) * sizes)
