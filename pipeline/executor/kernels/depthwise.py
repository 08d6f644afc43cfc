"""Depthwise convolution: vectors along independent channels."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.conv import read_conv
from pipeline.executor.kernels.kernel import Kernel, epilogue_store
from pipeline.executor.kernels.layout.expressions import constant
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import half_products
from pipeline.executor.kernels.tiles.byte_window import lanes_of
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.sliding_window import SlidingWindowLoops
from pipeline.tvm import statements as tir


class DepthwiseConvolution(Kernel[ConvShape]):
    """Convolution with few kernels for each channel."""

    name = "depthwise"
    operators = frozenset({"nn.conv2d"})
    form = ConvShape

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match a convolution with as many groups as channels."""
        conv = read_conv(call)
        if conv is None or not is_depthwise(conv.shape, rewriter.cpu):
            return None
        source = conv.layout.source(rewriter, call.args[0])
        # Longer sums than these would have to be taken apart.
        is_half = rewriter.cpu.arithmetic == half_products.WAY and conv.shape.terms <= half_products.BLOCK
        weights = conv.weights.astype(np.float16) if is_half else conv.weights
        return conv.layout.result(self.convolve(rewriter.builder, source, conv.shape, weights))

    def convolve(self, builder: Any, source: Any, conv: ConvShape, weights: np.ndarray, zero: int | None = None) -> Any:
        """Convolve channels-last data, copying channels for several kernels.

        Products have the dtype of the weights.  Of bytes, `zero` is subtracted before.
        """
        if conv.group_outputs > 1:
            # Outputs of one channel are neighbours in ONNX's order, so each channel is repeated in its place.
            source = builder.emit(relax.op.repeat(source, conv.group_outputs, 3))
        packed_weights = constant(weights[:, 0].transpose(1, 2, 0))
        # A channel that sees itself only is what a window without groups has.
        form = replace(conv, channels=conv.out_channels, groups=1)
        zeros = [] if zero is None else [constant(np.array([zero], np.float32))]
        return self.placeholder(builder, form, [source, packed_weights, *zeros], conv.result)

    def write(self, group: FusedGroup, form: ConvShape, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over windows."""
        data, weights, *zeros = group.operands

        def weight(dy: Any, dx: Any, c: Any, lanes: int) -> Any:
            return tir.load(weights, dy, dx, tir.span(c, lanes))

        def center(elements: Any) -> Any:
            lanes = lanes_of(elements)
            return tir.convert(elements, "float32", lanes) - tir.wide(tir.load(zeros[0], tir.number(0)), lanes)

        store = epilogue_store(group)
        if zeros:
            # The copy between margins is float32: what makes the data stores a quarter.
            return SlidingWindowLoops(
                form, cpu, data, 0.0, operator.add, store, tasks, weight, "float32", center
            ).statement()
        if str(weights.dtype) != half_products.WAY:
            return SlidingWindowLoops(form, cpu, data, 0.0, operator.add, store, tasks, weight).statement()

        def store_wide(total: Any, *indices: Any) -> Any:
            return store(total.astype("float32"), *indices)

        halves_cpu = half_products.for_tiles(cpu)
        return SlidingWindowLoops(
            form, halves_cpu, data, 0.0, operator.add, store_wide, tasks, weight, half_products.WAY
        ).statement()

    def operations(self, form: ConvShape) -> int:
        """Count multiplications and additions."""
        return form.window_operations


def is_depthwise(conv: ConvShape, cpu: Microarchitecture) -> bool:
    """Test for independent channels with few kernels, vectorised best along channels."""
    return conv.depth == 1 and conv.group_outputs < (cpu.lanes if conv.groups > 1 else 2)
