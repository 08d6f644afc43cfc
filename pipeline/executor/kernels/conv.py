"""Convolution of float32 and bytes: register tiles over packed weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import structs
from tvm.ir import GenericConst

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import Kernel, epilogue_store
from pipeline.executor.kernels.layout import channel_layout
from pipeline.executor.kernels.layout.channel_layout import ChannelLayout
from pipeline.executor.kernels.layout.expressions import constant, extents, is_static
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import accumulators, byte_products, half_products, packing, tiling
from pipeline.executor.kernels.tiles.amx_loops import AmxLoops, loops_of
from pipeline.executor.kernels.tiles.conv_loops import ConvLoops, TileEpilogue
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.tvm import statements as tir


@dataclass(frozen=True)
class ConvCall:
    """Convolution by constant float32 weights, in the kernels' terms."""

    layout: ChannelLayout
    shape: ConvShape
    weights: np.ndarray
    """Weights of shape (out, in of one group, kernel height, kernel width)."""


class DirectConvolution(Kernel[PackedLayout]):
    """Direct convolution, also grouped."""

    name = "convolution"
    operators = frozenset({"nn.conv2d"})
    form = PackedLayout

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match a convolution by constant weights, and pack them."""
        conv = read_conv(call)
        # Weights that are data, and shapes that are not known, are left to TVM.
        if conv is None:
            return None
        source = conv.layout.source(rewriter, call.args[0])
        form, is_tuned = packing.choose_layout(conv.shape, rewriter.cpu)
        # Once, while the stage is compiled; in the model's order each tile would gather them.
        weights = constant(packing.store_weights(packing.pack(conv.weights, form), rewriter.cpu))
        result = self.placeholder(rewriter.builder, form, [source, weights], conv.shape.result, tuned=is_tuned)
        return conv.layout.result(result)

    def write(self, group: FusedGroup, form: PackedLayout, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over tiles."""
        return _loops(group, form, cpu, tasks).statement()

    def operations(self, form: PackedLayout) -> int:
        """Count multiplications and additions."""
        return form.operations

    def writes_once(self, group: FusedGroup, form: PackedLayout, cpu: Microarchitecture, tasks: int) -> bool:
        """Test if no two tasks compute the same rows."""
        return _loops(group, form, cpu, tasks).exact


def read_conv(call: Any) -> ConvCall | None:
    """Return a ``conv2d`` by constant float32 weights, channels first or last."""
    data, weights = call.args
    layout = channel_layout.layout_of_call(call)
    if layout is None or not isinstance(weights, GenericConst) or not is_static(data, call):
        return None
    # Of no elements there is no tile.
    if 0 in (*extents(data.ty), *extents(call.ty)):
        return None
    array = channel_layout.order_weights(call, np.asarray(weights.value.numpy()))
    if array is None or any(str(value.ty.dtype) != "float32" for value in (data, weights, call)):
        return None
    return ConvCall(layout, conv_shape(layout, call, array.shape), array)


def conv_shape(layout: ChannelLayout, call: Any, weights: tuple[int, ...]) -> ConvShape:
    """Return a convolution's shape from weights (out, in, height, width)."""
    attrs = call.attrs
    batch, height, width, channels = layout.extents(call.args[0].ty)
    _, out_height, out_width, out_channels = layout.extents(call.ty)
    pad_top, pad_left, pad_bottom, pad_right = (int(pad) for pad in attrs.padding)
    return ConvShape(
        batch, height, width, channels, out_height, out_width, out_channels, (weights[2], weights[3]),
        channel_layout.pair(attrs.strides), channel_layout.pair(attrs.dilation),
        (pad_top, pad_left, pad_bottom, pad_right), int(attrs.groups),
    )  # fmt: skip


def _loops(group: FusedGroup, form: PackedLayout, cpu: Microarchitecture, tasks: int) -> ConvLoops | AmxLoops:
    data, weights = group.operands
    line = accumulators.line_values(str(group.target.dtype))
    epilogue = TileEpilogue(epilogue_store(group), group.prefetch, line, group.is_long)
    loops = loops_of(form)
    # What is fused in must not ask for height and width, which one column of pixels does not have.
    if loops is ConvLoops and form.conv.pointwise and group.is_pixelwise():
        form = structs.replace(form, conv=form.conv.flatten())
        epilogue = _flat_epilogue(group, epilogue)
    elif loops is ConvLoops and form.conv.pointwise:
        # The packed tile was chosen for all pixels in one column.
        form = structs.replace(form, tile=tiling.with_vectors(form.conv, _tile_cpu(form, cpu), form.tile.vectors))
    return loops(form, cpu, data, weights, epilogue, tasks)


def _tile_cpu(form: PackedLayout, cpu: Microarchitecture) -> Microarchitecture:
    if form.way == half_products.WAY:
        return half_products.for_tiles(cpu)
    return cpu if form.element_channels == 1 else byte_products.for_tiles(cpu)


def _flat_epilogue(group: FusedGroup, epilogue: TileEpilogue) -> TileEpilogue:
    """Return the epilogue of flattened pixels."""

    # Pixels lie side by side, so that counting on beyond a row's end finds the next row.
    def store(total: Any, _image: Any, pixel: Any, _w: Any, c: Any) -> Any:
        return epilogue.store(total, tir.number(0), tir.number(0), pixel, c)

    def prefetch(_image: Any, pixel: Any, _w: Any, c: Any) -> list[Any]:
        return group.prefetch(tir.number(0), tir.number(0), pixel, c)

    return epilogue._replace(store=store, prefetch=prefetch)
