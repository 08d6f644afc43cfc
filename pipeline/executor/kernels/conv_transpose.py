"""Transposed convolution: one ordinary convolution per phase of the result."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm.ir import GenericConst

from pipeline.executor.kernels import pair_operators
from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import Kernel, epilogue_store
from pipeline.executor.kernels.layout import channel_layout
from pipeline.executor.kernels.layout.expressions import constant, is_static
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import packing, phases
from pipeline.executor.kernels.tiles.amx_loops import loops_of
from pipeline.executor.kernels.tiles.conv_loops import TileEpilogue
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tiles.phases import ConvTransposeAxis, ConvTransposeForm, PhaseGroup
from pipeline.executor.kernels.tiles.sliding_window import SlidingWindowLoops
from pipeline.executor.kernels.tiles.tiling import RegisterTile
from pipeline.tvm import statements as tir

Store = Callable[..., Any]


class ConvTranspose(Kernel[ConvTransposeForm]):
    """Transposed convolution, also grouped and depthwise."""

    name = "conv_transpose"
    operators = frozenset({"nn.conv2d_transpose"})
    form = ConvTransposeForm

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match a transposed convolution by constant float32 weights."""
        data, weights = call.args
        if not isinstance(weights, GenericConst) or isinstance(data, GenericConst) or not is_static(data, call):
            return None
        if any(str(value.ty.dtype) != "float32" for value in (data, weights, call)):
            return None
        layout = channel_layout.layout_of_call(call)
        array = channel_layout.order_weights(call, np.asarray(weights.value.numpy()), "IOHW")
        if layout is None or array is None:
            return None
        batch, *size, channels = layout.extents(data.ty)
        shape, groups = layout.extents(call.ty), int(call.attrs.groups)
        axes = _axis(call, size, shape, array, 0), _axis(call, size, shape, array, 1)
        kernel = _by_output(array, channels, shape[3], groups)
        form, packed_weights = _pack(kernel, axes, (batch, channels, shape[3], groups), rewriter)
        if packed_weights.dtype == np.int32:
            source = pair_operators.source(rewriter, data, groups, is_last=layout.first)
        else:
            # Depthwise weights are few.
            packed_weights = packed_weights if form.depthwise else packing.store_weights(packed_weights, rewriter.cpu)
            source = layout.source(rewriter, data)
        return layout.result(self.placeholder(rewriter.builder, form, [source, constant(packed_weights)], shape))

    def write(self, group: FusedGroup, form: ConvTransposeForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over phases."""
        data, weights = group.operands
        loops = _PhaseLoops(form, cpu, data, weights, epilogue_store(group))
        return tir.sequence([loops.part(part, tasks) for part in form.parts])

    def operations(self, form: ConvTransposeForm) -> int:
        """Count multiplications and additions."""
        return form.operations


def _axis(
    call: Any, size: list[int], shape: tuple[int, int, int, int], weights: np.ndarray, axis: int
) -> ConvTransposeAxis:
    attrs = call.attrs
    return ConvTransposeAxis(
        size[axis], shape[1 + axis], weights.shape[2 + axis], int(attrs.strides[axis]), int(attrs.dilation[axis]),
        int(attrs.padding[axis]),
    )  # fmt: skip


def _by_output(weights: np.ndarray, channels: int, out_channels: int, groups: int) -> np.ndarray:
    """Reorder weights (in, out/group, kh, kw) to (out, in/group, kh, kw)."""
    window = weights.shape[2:]
    kernel = weights.reshape(groups, channels // groups, out_channels // groups, *window).transpose(0, 2, 1, 3, 4)
    by_output: np.ndarray = kernel.reshape(out_channels, channels // groups, *window)
    return by_output


def _pack(
    kernel: np.ndarray,
    axes: tuple[ConvTransposeAxis, ConvTransposeAxis],
    sizes: tuple[int, int, int, int],
    rewriter: Rewriter,
) -> tuple[ConvTransposeForm, np.ndarray]:
    batch, channels, out_channels, groups = sizes
    depthwise = groups == channels == out_channels
    shapes = [
        (rows, columns, phases.phase_shape(batch, (channels, out_channels), axes, rows, columns, groups))
        for rows in axes[0].classes()
        for columns in axes[1].classes()
    ]
    # All phases read the same data.
    by_pairs = not depthwise and pair_operators.is_possible(rewriter) and all(
        pair_operators.applies(conv, rewriter) for _, _, conv in shapes
    )  # fmt: skip
    parts, pieces, offset = [], list[np.ndarray](), 0
    for rows, columns, conv in shapes:
        layout, size = _layout(conv, rewriter.cpu, depthwise=depthwise), 0
        for weights in phases.weights_of(kernel, axes, rows, columns) if conv.terms else []:
            if by_pairs:
                layout, packed_weights = pair_operators.pack(weights, conv, rewriter)
            else:
                # A channel's own weights lie as the channels do.
                by_channel = weights[:, 0].transpose(1, 2, 0).reshape(-1)
                packed_weights = by_channel if depthwise else packing.pack(weights, layout)
            pieces.append(packed_weights)
            size = packed_weights.size
        parts.append(PhaseGroup(rows, columns, layout, offset, size))
        offset += size * parts[-1].phases
    # An array without elements is none.
    pieces = pieces if offset else [np.zeros(1, np.float32)]
    return ConvTransposeForm((axes[0].stride, axes[1].stride), depthwise, tuple(parts)), np.concatenate(pieces)


def _layout(conv: ConvShape, cpu: Microarchitecture, *, depthwise: bool) -> PackedLayout:
    if depthwise or not conv.terms:
        return PackedLayout(replace(conv, groups=1) if depthwise else conv, RegisterTile(1, 1, 1), 1, cpu.lanes)
    return packing.float_layout(conv, cpu)


class _PhaseLoops:
    """Writes the loops of one part after the other."""

    def __init__(self, form: ConvTransposeForm, cpu: Microarchitecture, data: Any, weights: Any, store: Store) -> None:
        self._form, self._cpu, self._store = form, cpu, store
        self._data, self._weights = data, weights

    def part(self, part: PhaseGroup, tasks: int) -> Any:
        """Return the loops of one part."""
        conv = part.layout.conv

        def phase(index: Any) -> Any:
            row, column = tir.unravel(index, (part.rows.count, part.columns.count))
            store = self._phase_store(row + part.rows.first, column + part.columns.first)
            first = index * part.size + part.weights
            # A stride larger than the kernel leaves results that no tap reaches.
            if not conv.kernel[0] * conv.kernel[1]:
                return self._zeros(conv, store, tasks)
            if self._form.depthwise:
                return self._depthwise(conv, first, store, tasks)
            loops = loops_of(part.layout)
            epilogue = TileEpilogue(store)
            return loops(part.layout, self._cpu, self._data, self._weights, epilogue, tasks, first).statement()

        return tir.loop("phase", part.phases, phase)

    def _phase_store(self, row: Any, column: Any) -> Store:
        """Return the store of a phase at a row and column."""
        dy, dx = self._form.strides

        def store(total: Any, image: Any, h: Any, w: Any, c: Any) -> Any:
            return self._store(total, image, h * dy + row, w * dx + column, c)

        return store

    def _depthwise(self, conv: ConvShape, first: Any, store: Store, tasks: int) -> Any:
        width, channels = conv.kernel[1], conv.channels

        def weight(dy: Any, dx: Any, c: Any, lanes: int) -> Any:
            return tir.load(self._weights, tir.span((dy * width + dx) * channels + (first + c), lanes))

        return SlidingWindowLoops(conv, self._cpu, self._data, 0.0, operator.add, store, tasks, weight).statement()

    @staticmethod
    def _zeros(conv: ConvShape, store: Store, tasks: int) -> Any:
        def pixel(index: Any) -> Any:
            position = tir.unravel(index, (conv.batch, conv.out_height, conv.out_width))
            zero = tir.constant(0.0)
            return tir.loop("c", conv.out_channels, lambda c: store(zero, *position, c), tir.VECTORIZED)

        pixels = conv.batch * conv.out_height * conv.out_width
        return tir.loop("pixel", pixels, pixel, tir.parallel(tasks))
