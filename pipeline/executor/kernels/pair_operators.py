"""Products of bfloat16 pairs: convolutions and matmuls by constant weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.kernels.conv import DirectConvolution, read_conv
from pipeline.executor.kernels.depthwise import is_depthwise
from pipeline.executor.kernels.layout.expressions import constant, extents, name_of
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewrite, Rewriter
from pipeline.executor.kernels.matmul import Matmul, is_float_matmul, matmul_shape
from pipeline.executor.kernels.tiles import pair_products
from pipeline.executor.kernels.tiles.pair_products import PAIR


class PairOperators(Rewrite):
    """Products by constant weights, rounded to bfloat16 like their data."""

    operators = frozenset({"nn.conv2d", "matmul"})

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return the placeholder of sums of float32."""
        return _convolve(rewriter, call) if name_of(call) == "nn.conv2d" else _multiply(rewriter, call)


def _convolve(rewriter: Rewriter, call: Any) -> Any:
    conv = read_conv(call)
    if conv is None or is_depthwise(conv.shape, rewriter.cpu) or not pair_products.applies(conv.shape, rewriter.cpu):
        return None
    data = rewriter.narrow(call.args[0], is_last=conv.layout.first)
    form, weights = pair_products.pack(conv.weights, conv.shape, rewriter.cpu)
    operands = [_pad_channels(rewriter.builder, data, conv.shape.groups), constant(weights)]
    return conv.layout.result(DirectConvolution.placeholder(rewriter.builder, form, operands, conv.shape.result))


def _multiply(rewriter: Rewriter, call: Any) -> Any:
    data, weights = call.args
    if not is_float_matmul(call) or not isinstance(weights, GenericConst) or weights.ty.ndim != 2:
        return None
    *outer_shape, depth = extents(data.ty)
    columns = extents(weights.ty)[1]
    shape = matmul_shape(math.prod(outer_shape), depth, columns)
    if not isinstance(data, relax.Var) or not pair_products.applies(shape, rewriter.cpu):
        return None
    matrix = np.asarray(weights.value.numpy()).T.reshape(columns, depth, 1, 1)
    form, packed_weights = pair_products.pack(matrix, shape, rewriter.cpu)
    operands = [_pad_channels(rewriter.builder, rewriter.narrow(data, is_last=False), 1), constant(packed_weights)]
    return ModelLayout(Matmul.placeholder(rewriter.builder, form, operands, (*outer_shape, columns)))


def _pad_channels(builder: Any, data: Any, groups: int) -> Any:
    """Pad every group's channels to whole pairs."""
    *outer_shape, channels = extents(data.ty)
    depth = channels // groups
    padding = -depth % PAIR
    if not padding:
        return data
    grouped = builder.emit(relax.op.reshape(data, (*outer_shape, groups, depth)))
    widths = [0, 0] * (len(outer_shape) + 1) + [0, padding]
    padded = builder.emit(relax.op.nn.pad(grouped, widths, "constant", 0))
    return builder.emit(relax.op.reshape(padded, (*outer_shape, groups * (depth + padding))))
