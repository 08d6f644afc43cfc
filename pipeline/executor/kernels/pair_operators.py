"""Products of bfloat16 pairs: convolutions and matmuls by constant weights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.kernels.conv import DirectConvolution, read_conv
from pipeline.executor.kernels.depthwise import is_depthwise
from pipeline.executor.kernels.layout.expressions import AXIS, constant, extents, is_image, name_of, pad_channels
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewrite, Rewriter
from pipeline.executor.kernels.matmul import Matmul, is_float_matmul, matmul_shape
from pipeline.executor.kernels.tiles import amx_layout, byte_products, packing, pair_products
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tiles.pair_products import PAIR

# Fewest products per pixel, group and line of the kernel in a matrix tile: in a nearly empty one, vectors are faster.
_FEWEST = 128
# Fewest terms in a step of three products, which take as long as vectors of float32 take for six.
_SPLIT_TERMS = 12


# What passes an image on to a product.
_PASSING = {"add", "concat", "multiply", "nn.avg_pool2d", "nn.max_pool2d", "nn.relu", "nn.silu", "sigmoid"}


class PairOperators(Rewrite):
    """Products by constant weights, rounded to bfloat16 like their data."""

    operators = frozenset({"nn.conv2d", "matmul", "concat"})

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return the placeholder of sums of float32, or images joined as bfloat16."""
        is_narrow = rewriter.cpu.arithmetic == pair_products.ARITHMETIC
        if name_of(call) == "concat":
            return _concatenate(rewriter, call) if is_narrow else None
        if not is_possible(rewriter):
            return None
        return _convolve(rewriter, call) if name_of(call) == "nn.conv2d" else _multiply(rewriter, call)


def _convolve(rewriter: Rewriter, call: Any) -> Any:
    conv = read_conv(call)
    if conv is None or not applies(conv.shape, rewriter) or not isinstance(call.args[0], relax.Var):
        return None
    form, weights = pack(conv.weights, conv.shape, rewriter)
    operands = [source(rewriter, call.args[0], conv.shape.groups, is_last=conv.layout.first), constant(weights)]
    return conv.layout.result(DirectConvolution.placeholder(rewriter.builder, form, operands, conv.shape.result))


def _multiply(rewriter: Rewriter, call: Any) -> Any:
    data, weights = call.args
    if not is_float_matmul(call) or not isinstance(weights, GenericConst) or weights.ty.ndim != 2:
        return None
    *outer_shape, depth = extents(data.ty)
    columns = extents(weights.ty)[1]
    shape = matmul_shape(math.prod(outer_shape), depth, columns)
    if not isinstance(data, relax.Var) or not applies(shape, rewriter):
        return None
    matrix = np.asarray(weights.value.numpy()).T.reshape(columns, depth, 1, 1)
    form, packed_weights = pack(matrix, shape, rewriter)
    operands = [source(rewriter, data, 1, is_last=False), constant(packed_weights)]
    return ModelLayout(Matmul.placeholder(rewriter.builder, form, operands, (*outer_shape, columns)))


def source(rewriter: Rewriter, value: Any, groups: int, *, is_last: bool) -> Any:
    """Return data as their products take them, with zeros behind the channels of each group."""
    if _splits(rewriter):
        data = rewriter.last(value) if is_last else rewriter.plain(value)
    else:
        data = rewriter.narrow(value, is_last=is_last)
    padding = -(extents(data.ty)[-1] // groups) % pair_products.multiple(rewriter.cpu)
    return pad_channels(rewriter.builder, data, groups, padding)


def _concatenate(rewriter: Rewriter, call: Any) -> Any:
    """Join images as bfloat16, if only products of bfloat16 read them."""
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    if not all(isinstance(field, relax.Var) and is_image(field.ty) and rewriter.is_last(field) for field in fields):
        return None
    if str(call.ty.dtype) != "float32" or not _ends_in_products(rewriter, rewriter.name):
        return None
    images = [rewriter.narrow(field, is_last=True) for field in fields]
    return rewriter.adopt_narrow(rewriter.builder.emit(relax.op.concat(images, AXIS[int(call.attrs.axis) % 4])))


def _ends_in_products(rewriter: Rewriter, name: str) -> bool:
    """Test if all that reads a tensor, also through elementwise operators, multiplies bfloat16."""

    def ends(reader: str, call: Any) -> bool:
        kind = name_of(call)
        if kind == "nn.conv2d":
            return rewriter.numerics.arithmetic_of(reader) == pair_products.ARITHMETIC
        return kind in _PASSING and _ends_in_products(rewriter, reader)

    readers = rewriter.readers(name)
    return bool(readers) and all(ends(*reader) for reader in readers)


def applies(conv: ConvShape, rewriter: Rewriter) -> bool:
    """Test if pairs are faster than float32."""
    cpu, pixels = rewriter.cpu, conv.out_height * conv.out_width * (conv.batch if conv.pointwise else 1)
    # One pixel reads all weights for one product each; memory sets the pace, whatever multiplies.
    if conv.depth == 1 or is_depthwise(conv, cpu) or pixels == 1:
        return False
    if _splits(rewriter):
        summed, step = amx_layout.summed_shape(replace(conv, channels=-(-conv.depth // PAIR) * conv.groups))
        return conv.terms * step >= _SPLIT_TERMS * summed.terms and conv.group_outputs >= cpu.lanes
    return cpu.pairs != amx_layout.WAY or conv.depth * conv.kernel[1] * conv.group_outputs >= _FEWEST


def is_possible(rewriter: Rewriter) -> bool:
    """Test if the present call's products may be of pairs."""
    return rewriter.cpu.arithmetic == pair_products.ARITHMETIC or _splits(rewriter)


def _splits(rewriter: Rewriter) -> bool:
    """Test for a float32 layer among others of bfloat16, whose numbers are sums of two of these.

    16 bits are as good as exact beside the others' 8, at three times their price.
    """
    cpu, others = rewriter.cpu, rewriter.numerics.arithmetic
    return (cpu.arithmetic, others, cpu.pairs) == ("float32", pair_products.ARITHMETIC, amx_layout.WAY)


def pack(weights: np.ndarray, conv: ConvShape, rewriter: Rewriter) -> tuple[PackedLayout, np.ndarray]:
    """Return the layout of a float32 convolution as pairs, and its packed weights."""
    cpu, halves = rewriter.cpu, packing.round_to_bfloat16(weights)
    zeros = -conv.depth % pair_products.multiple(cpu)
    pairs = _pair_channels(halves, zeros)
    conv = replace(conv, channels=pairs.shape[1] * conv.groups)
    if cpu.pairs == amx_layout.WAY:
        rest = weights - (halves.astype(np.uint32) << 16).view(np.float32)
        parts = [pairs, _pair_channels(packing.round_to_bfloat16(rest), zeros)] if _splits(rewriter) else [pairs]
        way = amx_layout.SPLIT if _splits(rewriter) else amx_layout.WAY
        layouts = [amx_layout.pack(part, conv, cpu, PAIR, way=way) for part in parts]
        return layouts[0][0], np.concatenate([packed_weights for _, packed_weights in layouts])
    tiles_cpu = byte_products.for_tiles(cpu)
    form = packing.estimate_layout(conv.flatten() if conv.pointwise else conv, tiles_cpu)
    # Rows of matrices have two pairs.
    depth = conv.depth if form.depth * PAIR % pair_products.multiple(cpu) else form.depth
    form = structs.replace(form, conv=conv, depth=depth, element_channels=PAIR, way=cpu.pairs)
    return form, packing.pack(pairs, form, lambda block: byte_products.order_bytes(block, cpu.pairs))


def _pair_channels(halves: np.ndarray, zeros: int) -> Any:
    """Return weights of 16 bits, filled up with zeros, as units of two channels."""
    filled = np.pad(halves, ((0, 0), (0, zeros), (0, 0), (0, 0)))
    return np.ascontiguousarray(filled.transpose(0, 2, 3, 1)).view(np.int32).transpose(0, 3, 1, 2)
